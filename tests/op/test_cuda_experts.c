/* EXPERT_LINEAR on the emulated GPU where the op matrix does not go: weights as files store them, in every format, and
 * experts that lie anywhere in the file, beside the reference on the CPU; rows that have the same bits among others. */
#include "op/weights.h"

enum { EXPERTS = 70, OUT = 13 }; /* more than the arguments of one launch have places for */

/* Experts in another order than their numbers, a few bytes apart where that is allowed; NULL: one behind the other. */
typedef struct layout {
    weights w;
    const int64_t *at;
} layout;

/* Each expert is a matrix of its own. */
static layout make_nf4_layout(arena *a, int64_t cols) {
    int64_t bytes = nf4_bytes(OUT, cols), *at = ARENA_ARRAY(a, int64_t, EXPERTS);
    layout l = {.w.t = {.dt = DT_NF4, .rows = EXPERTS * OUT, .cols = cols, .ld = cols}, .at = at};
    nf4_matrix *all = arena_alloc(a, (size_t)(EXPERTS * bytes));
    l.w.t.data = (char *)nf4_rows(all) + EXPERTS / 2 * bytes;
    for (int64_t e = 0; e < EXPERTS; e++) {
        weights w = make_weights(a, DT_NF4, OUT, cols, (uint32_t)e);
        at[e] = (e * 11 % EXPERTS - EXPERTS / 2) * bytes;
        memcpy((char *)l.w.t.data + at[e] - sizeof *all, (nf4_matrix *)w.t.data - 1, (size_t)bytes);
    }
    return l;
}

static layout make_layout(arena *a, dtype dt, int64_t cols, bool evenly) {
    if (dt == DT_NF4 && !evenly) return make_nf4_layout(a, cols);
    layout l = {make_weights(a, dt, EXPERTS * OUT, cols, 3), NULL};
    if (evenly) return l;
    int64_t bytes = OUT * dtype_span_bytes(dt, l.w.t.ld),
            *at = arena_alloc(a, EXPERTS * sizeof *at);
    for (int64_t e = 0; e < EXPERTS; e++) at[e] = (e * 11 % EXPERTS - EXPERTS / 2) * bytes;
    /* the first of the file is the expert that is farthest in front */
    l.w.t.data = (char *)l.w.t.data + EXPERTS / 2 * bytes;
    l.at = at;
    return l;
}

static int32_t *make_starts(arena *a, int64_t rows, int64_t behind) {
    int32_t *starts = arena_alloc(a, (EXPERTS + 1) * sizeof *starts);
    for (int e = 0; e <= EXPERTS; e++)
        starts[e] = (int32_t)((rows - behind) * (e == EXPERTS ? e : e / 3 * 3) / EXPERTS);
    return starts;
}

typedef struct call {
    const layout *l;
    tensor x, starts;
    bool by_row, backward, add;
} call;

/* y, or dx, which is of the shape of x; starting from ones. */
static tensor run(arena *a, const call *k, dev *d, const op_impl *impl) {
    const tensor *w = &k->l->w.t;
    op_attr attr = {.experts = {.n = EXPERTS, .by_row = k->by_row, .at = k->l->at}};
    int64_t I = w->cols, cols = k->backward ? I : OUT;
    tensor out = make_floats(a, k->x.rows, cols, 3, 5);
    float *p = out.data;
    for (int64_t i = 0; i < out.rows * out.ld; i++) p[i] = k->add ? 1.0f : NAN;
    op_run run = {.dev = d};
    op_call c = {.kind = OP_EXPERT_LINEAR, .attr = &attr, .run = &run, .acc = k->add};
    c.in[1] = *w, c.in[2] = k->starts, c.in[0] = k->x;
    if (k->backward) {
        c.dout[0] = k->x, c.din[0] = out;
        c.in[0].cols = I, c.in[0].data = NULL;
    } else {
        c.out[0] = out;
    }
    op_launch(d, k->backward ? impl->bwd_input : impl->fwd, &c);
    dev_sync(d);
    err e;
    if (dev_check(d, &e) != ST_OK) fail_msg("%s, %s", dtype_name(w->dt), e.message);
    return out;
}

static void compare(const tensor *y, const tensor *truth, const char *what, dtype dt) {
    double most = 0;
    for (int64_t i = 0; i < y->rows * y->cols; i++)
        most = fmax(most, fabs((double)at(truth, i / y->cols, i % y->cols)));
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->cols; j++)
            if (!(fabs((double)at(y, i, j) - (double)at(truth, i, j)) <= 1e-5 * most))
                fail_msg("%s, w %s: [%d,%d] is %.9g but must be %.9g", what, dtype_name(dt), (int)i,
                         (int)j, (double)at(y, i, j), (double)at(truth, i, j));
}

static void check_format(arena *a, dev *gpu, dev *cpu, dtype dt, bool evenly) {
    const op_impl *there = op_find(gpu, OP_EXPERT_LINEAR, DT_F32);
    const op_impl *truth = op_find_reference(OP_EXPERT_LINEAR, DT_F32);
    int64_t I = block_of(dt) == 1 ? 37 : block_of(dt);
    layout l = make_layout(a, dt, I, evenly);
    static const int64_t ROWS[] = {9, 5 * EXPERTS};
    for (int way = 0; way < 4; way++) {
        int64_t rows = ROWS[way % 2];
        call k = {.l = &l, .backward = way >= 2, .add = way == 3};
        k.x = make_floats(a, rows, k.backward ? OUT : I, 1, 7);
        k.starts = (tensor){make_starts(a, rows, rows / 4), DT_I32, 1, EXPERTS + 1, EXPERTS + 1};
        tensor y = run(a, &k, gpu, there), t = run(a, &k, cpu, truth);
        compare(&y, &t, k.backward ? "dx" : "y", dt);
    }
    arena_reset(a);
}

static void test_stored(void **state) {
    dev *gpu = open_gpu(), *cpu = open_dev("base", 1);
    for (int f = 0; f < GPU_FORMATS; f++) check_format(*state, gpu, cpu, FORMATS[f], f % 2);
    dev_close(gpu);
    dev_close(cpu);
}

/* The rows of one expert, alone and among those of others. */
static void test_by_row(void **state) {
    arena *a = *state;
    dev *gpu = open_gpu();
    const op_impl *impl = op_find(gpu, OP_EXPERT_LINEAR, DT_F32);
    layout l = make_layout(a, DT_Q8_0, 64, true);
    int32_t all_starts[EXPERTS + 1], some_starts[EXPERTS + 1];
    enum { ALL = 23, FIRST = 11, SOME = 3, EXPERT = 40 };
    for (int e = 0; e <= EXPERTS; e++) {
        all_starts[e] = e <= EXPERT ? 0 : ALL;
        some_starts[e] = e <= EXPERT ? 0 : SOME;
    }
    call k = {.l = &l, .by_row = true, .x = make_floats(a, ALL, 64, 0, 9)};
    k.starts = (tensor){all_starts, DT_I32, 1, EXPERTS + 1, EXPERTS + 1};
    tensor all = run(a, &k, gpu, impl);
    k.x.data = (float *)k.x.data + FIRST * k.x.ld, k.x.rows = SOME, k.starts.data = some_starts;
    tensor some = run(a, &k, gpu, impl);
    for (int r = 0; r < SOME; r++)
        for (int j = 0; j < OUT; j++) assert_true(at(&some, r, j) == at(&all, FIRST + r, j));
    dev_close(gpu);
}

static int make_arena(void **state) {
    *state = arena_new("experts");
    return 0;
}
static int free_arena(void **state) {
    arena_free(*state);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stored),
                                       cmocka_unit_test(test_by_row)};
    return cmocka_run_group_tests(tests, make_arena, free_arena);
}
