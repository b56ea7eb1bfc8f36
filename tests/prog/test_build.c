/* What the builders decide: nothing recorded where an option is off, which buffer an op takes, the
 * dtype of a look-up. Nothing is computed. */
#include "test.h"

#include "prog/graph_int.h"

enum { N = 6, C = 32, V = 10 };

typedef struct lab {
    arena *a;
    dev *dev;
    graph *g;
} lab;

static void lab_open(lab *l, dtype dt, bool train) {
    l->a = arena_new("build");
    assert_int_equal(dev_open_meta(&l->dev, DEV_CPU, 1, NULL), ST_OK);
    l->g = graph_new(l->a, &(graph_options){.dev = l->dev, .dt = dt, .train = train});
}

static void lab_close(lab *l) {
    dev_close(l->dev);
    arena_free(l->a);
}

static val param(lab *l, const char *name, space where, dtype dt, int64_t rows, int64_t cols) {
    graph_param_ref ref = {.name = name, .where = where, .dt = dt, .rows = rows, .cols = cols};
    ref.trainable = where != SPACE_FILE;
    return graph_param(l->g, &ref);
}

static const op_rec *last_op(const lab *l) {
    return &l->g->op[l->g->n_ops - 1];
}

static void test_options_that_are_off(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_F32, false);
    val x = graph_input(l.g, "x", DT_F32, N, C);
    assert_true(graph_scale(l.g, x, 1) == x);
    assert_true(graph_softcap(l.g, x, 0) == x);
    assert_true(graph_clamp(l.g, x, 0) == x);
    assert_true(graph_dropout(l.g, x, 0.5f) == x); /* not training */
    assert_int_equal(l.g->n_ops, 0);
    lab_close(&l);
}

static void test_limits(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_BF16, true);
    val x = graph_input(l.g, "x", DT_BF16, N, C);
    assert_true(graph_softcap(l.g, x, 30) != x);
    assert_true(last_op(&l)->attr.act.kind == ACT_SOFTCAP && last_op(&l)->attr.act.c == 30);
    assert_true(graph_clamp(l.g, x, 8) != x);
    assert_true(last_op(&l)->attr.act.kind == ACT_CLAMP && last_op(&l)->attr.act.c == 8);
    graph_clamp(l.g, x, -1);
    assert_true(graph_failed(l.g));
    lab_close(&l);
}

/* A factor takes the buffer of what was just made, but not of an input, a view or a value that its
 * own backward reads. */
static void test_scale_in_place(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_F32, true);
    val x = graph_input(l.g, "x", DT_F32, N, C), w = param(&l, "w", SPACE_MASTER, DT_F32, C, C);
    val a = graph_scale(l.g, x, 2);
    assert_true(l.g->value[a].buf != l.g->value[x].buf);
    val y = graph_linear(l.g, x, w, VAL_NONE), b = graph_scale(l.g, y, 2);
    assert_true(b != y && l.g->value[b].buf == l.g->value[y].buf);
    assert_true(last_op(&l)->kind == OP_SCALE && last_op(&l)->attr.scale.c == 2);
    val half = graph_scale(l.g, graph_view(l.g, graph_linear(l.g, x, w, VAL_NONE), 0, C / 2), 2);
    assert_true(graph_cols(l.g, half) == C / 2);
    assert_true(l.g->value[half].buf != l.g->value[last_op(&l)->in[0]].buf);
    assert_false(graph_failed(l.g));
    lab_close(&l);
}

static void test_norm_of_heads(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_BF16, true);
    val x = graph_input(l.g, "x", DT_BF16, N, C), w = param(&l, "w", SPACE_MASTER, DT_F32, 1, 8);
    val y = graph_rmsnorm(l.g, graph_view(l.g, x, 8, 24), w, 1e-6f, true, 8);
    assert_int_equal(graph_cols(l.g, y), 24);
    assert_int_equal(graph_cols(l.g, last_op(&l)->out[1]), 3);
    assert_true(last_op(&l)->attr.norm.unit_offset);
    graph_rmsnorm(l.g, x, VAL_NONE, 1e-6f, false, 0);
    assert_int_equal(graph_cols(l.g, last_op(&l)->out[1]), 1);
    graph_layernorm(l.g, x, w, VAL_NONE, 1e-6f, 8);
    assert_int_equal(graph_cols(l.g, last_op(&l)->out[2]), 4);
    assert_false(graph_failed(l.g));
    lab_close(&l);
}

/* Of a stored table come values of the program's dtype, and so of its rows. */
static void test_look_up(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_F32, false);
    val ids = graph_input(l.g, "ids", DT_I32, N, 1);
    val table = param(&l, "table", SPACE_FILE, DT_Q8_0, V, C);
    val x = graph_embed(l.g, table, ids, 3);
    assert_true(l.g->value[x].t.dt == DT_F32 && last_op(&l)->attr.embed.no_grad_id == 3);
    val rows = graph_take_rows(l.g, x, graph_input(l.g, "rows", DT_I32, 2, 1));
    assert_true(l.g->value[rows].t.dt == DT_F32 && graph_rows(l.g, rows) == 2);
    assert_false(graph_failed(l.g));
    lab_close(&l);
}

/* The head writes the gradients of its parameters; a later use of one adds to it. */
static void test_head(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_F32, true);
    val x = graph_input(l.g, "x", DT_F32, N, C), targets = graph_input(l.g, "t", DT_I32, N, 1);
    val w = param(&l, "w", SPACE_MASTER, DT_F32, V, C),
        b = param(&l, "b", SPACE_MASTER, DT_F32, 1, V);
    graph_head_spec spec = {.chunk_rows = 2, .z_loss = 0.5f, .softcap = 30};
    graph_head_ce(l.g, &spec, x, w, b, targets);
    const op_rec *r = last_op(&l);
    assert_true(r->attr.head.chunk_rows == 2 && r->attr.head.z_loss == 0.5f);
    assert_true(r->attr.head.softcap == 30 && r->attr.head.with_grad);
    assert_true(r->din[1] == l.g->value[w].param_grad && r->din[3] == l.g->value[b].param_grad);
    assert_int_equal(r->acc_param, 2 | 8);
    assert_true(l.g->value[r->din[1]].written && l.g->value[r->din[3]].written);
    graph_head_ce(l.g, &(graph_head_spec){.weight = 0.5f}, x, w, VAL_NONE, targets);
    assert_true(last_op(&l)->acc == 2 && last_op(&l)->acc_param == 0); /* a second head adds */
    assert_true(last_op(&l)->attr.head.weight == 0.5f);
    assert_true(last_op(&l)->din[3] == VAL_NONE);
    lab_close(&l);
}

/* The second mode asks for nothing in the forward pass; it has no z_loss, and no form for ranks. */
static void test_second_head(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_BF16, true);
    val x = graph_input(l.g, "x", DT_BF16, N, C), targets = graph_input(l.g, "t", DT_I32, N, 1);
    val w = param(&l, "w", SPACE_WORK, DT_BF16, V, C);
    graph_head_spec spec = {.chunk_rows = 2, .softcap = 30};
    val nll = graph_head_nll(l.g, &spec, x, w, VAL_NONE, targets);
    assert_true(graph_rows(l.g, nll) == N && l.g->value[nll].t.dt == DT_F32);
    assert_true(l.g->value[nll].needs_grad && last_op(&l)->din[1] == VAL_NONE);
    assert_true(last_op(&l)->attr.head.chunk_rows == 2 && last_op(&l)->attr.head.softcap == 30);
    assert_false(graph_failed(l.g));
    spec.z_loss = 0.1f;
    assert_true(graph_head_nll(l.g, &spec, x, w, VAL_NONE, targets) == VAL_NONE);
    assert_true(graph_failed(l.g));
    mesh ranks = {.size[MESH_TP] = 2};
    graph_options opt = {.dev = l.dev, .dt = DT_BF16, .train = true, .mesh = &ranks};
    l.g = graph_new(l.a, &opt);
    x = graph_input(l.g, "x", DT_BF16, N, C), targets = graph_input(l.g, "t", DT_I32, N, 1);
    w = param(&l, "w", SPACE_WORK, DT_BF16, V, C);
    spec = (graph_head_spec){.vocab = 2 * V, .z_loss = 0.1f};
    assert_true(graph_head_nll(l.g, &spec, x, w, VAL_NONE, targets) == VAL_NONE);
    assert_non_null(strstr(l.g->first_error.message, "z_loss"));
    lab_close(&l);
}

/* ---- the slope of gelu, joined with the product whose gradient it multiplies ---- */

typedef struct joint {
    dev_kind device;
    dtype dt;
    act_kind act;
    recompute_policy recompute;
    bool read_twice; /* a second product reads the activation */
    int joined;      /* how many ops become one */
} joint;

/* One feed-forward part in a block; how many joined ops its backward has. */
static int joined_ops(const joint *j) {
    lab l = {.a = arena_new("joined")};
    assert_int_equal(dev_open_meta(&l.dev, j->device, 1, NULL), ST_OK);
    graph_options opt = {.dev = l.dev, .dt = j->dt, .train = true, .recompute = j->recompute};
    l.g = graph_new(l.a, &opt);
    val x = graph_input(l.g, "x", j->dt, N, C), targets = graph_input(l.g, "t", DT_I32, N, 1);
    val up = param(&l, "up", SPACE_WORK, j->dt, 2 * C, C);
    val down = param(&l, "down", SPACE_WORK, j->dt, C, 2 * C);
    graph_block_begin(l.g, 0);
    val h = graph_act(l.g, graph_linear(l.g, x, up, VAL_NONE), j->act);
    val y = graph_linear(l.g, h, down, VAL_NONE);
    if (j->read_twice) y = graph_add(l.g, y, graph_linear(l.g, h, down, VAL_NONE));
    graph_block_end(l.g);
    val w = param(&l, "w", SPACE_WORK, j->dt, V, C);
    graph_head_ce(l.g, &(graph_head_spec){.weight = 1}, y, w, VAL_NONE, targets);
    prog *p;
    err e;
    if (prog_finish(&p, l.g, &e) != ST_OK) fail_msg("%s", e.message);
    int joined = 0, slopes = 0;
    for (int i = 0; i < prog_get_stats(p)->ops; i++) {
        prog_op o = prog_get_op(p, i);
        joined += o.kind == OP_LINEAR_DGELU && o.phase == PHASE_B;
        slopes += o.kind == OP_ACT && o.entry == ENTRY_BWD_INPUT;
    }
    assert_int_equal(joined + slopes, 1);
    lab_close(&l);
    return joined;
}

/* On GPUs in 16 bits, under every policy, so that all have the same bits. */
static void test_joined_slope(void **state) {
    (void)state;
    static const joint all[] = {
        {DEV_CUDA, DT_BF16, ACT_GELU_TANH, RECOMPUTE_NONE, false, 1},
        {DEV_CUDA, DT_F16, ACT_GELU_TANH, RECOMPUTE_SELECTIVE, false, 1},
        {DEV_CUDA, DT_BF16, ACT_GELU_TANH, RECOMPUTE_FULL, false, 1},
        {DEV_CUDA, DT_BF16, ACT_GELU_TANH, RECOMPUTE_NONE, true, 0},
        {DEV_CUDA, DT_BF16, ACT_GELU_EXACT, RECOMPUTE_NONE, false, 0},
        {DEV_CUDA, DT_F32, ACT_GELU_TANH, RECOMPUTE_NONE, false, 0},
        {DEV_CPU, DT_BF16, ACT_GELU_TANH, RECOMPUTE_NONE, false, 0},
    };
    for (int i = 0; i < ARRAY_LEN(all); i++) assert_int_equal(joined_ops(&all[i]), all[i].joined);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_that_are_off),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_scale_in_place),
        cmocka_unit_test(test_norm_of_heads),
        cmocka_unit_test(test_look_up),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_second_head),
        cmocka_unit_test(test_joined_slope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
