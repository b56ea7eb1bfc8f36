/* What a program tells about its ops, and the replay that times them: every op once, FLOPs that add
 * up to the totals, the same bits as the ordinary replay, time only for the phases that ran. */
#include "test.h"

#include "prog/prog.h"
#include "prog_memory.h"

enum { N = 6, C = 16, F = 24, V = 32, PARAMS = V * C + 2 * (C + 2 * F * C), MAX_OPS = 64 };

typedef struct lab {
    arena *a;
    dev *dev;
    prog *p;
    int64_t used; /* floats of param and grad */
    float param[PARAMS], grad[PARAMS];
    void *frame, *pinned;
} lab;

static val weight(lab *l, graph *g, int64_t rows, int64_t cols) {
    char name[32];
    snprintf(name, sizeof name, "w%ld", (long)l->used);
    graph_param_ref ref = {.name = name,
                           .where = SPACE_MASTER,
                           .dt = DT_F32,
                           .rows = rows,
                           .cols = cols,
                           .offset_bytes = l->used * 4,
                           .grad_offset_bytes = l->used * 4,
                           .trainable = true};
    l->used += rows * cols;
    CHECK(l->used <= PARAMS, "more parameters than the test has room for");
    return graph_param(g, &ref);
}

/* x + down(act(up(norm(x)))), named as families name things. */
static val block(lab *l, graph *g, int layer, val x) {
    graph_block_begin(g, layer);
    val h = graph_rmsnorm(g, x, weight(l, g, 1, C), 1e-5f, false, 0);
    graph_name(g, h, "layers.%d.norm", layer);
    h = graph_linear(g, h, weight(l, g, F, C), VAL_NONE);
    graph_name(g, h, "layers.%d.up", layer);
    h = graph_linear(g, graph_act(g, h, ACT_SILU), weight(l, g, C, F), VAL_NONE);
    graph_name(g, h, "layers.%d.down", layer);
    x = graph_add(g, x, h);
    graph_block_end(g);
    return x;
}

static void lab_open(lab *l, recompute_policy policy) {
    memset(l, 0, sizeof *l);
    l->a = arena_new("profile");
    assert_int_equal(dev_open(&l->dev, DEV_CPU, 1, NULL), ST_OK);
    graph_options opt = {.dev = l->dev, .dt = DT_F32, .train = true, .recompute = policy};
    graph *g = graph_new(l->a, &opt);
    val ids = graph_input(g, "ids", DT_I32, N, 1),
        targets = graph_input(g, "targets", DT_I32, N, 1);
    val table = weight(l, g, V, C), x = graph_embed(g, table, ids, -1);
    for (int i = 0; i < 2; i++) x = block(l, g, i, x);
    graph_output(g, graph_head_ce(g, &(graph_head_spec){0}, x, table, VAL_NONE, targets), "nll");
    err e = {0};
    if (prog_finish(&l->p, g, &e) != ST_OK) fail_msg("%s", e.message);
    const prog_stats *s = prog_get_stats(l->p);
    assert_in_range(s->ops, 10, MAX_OPS);
    l->frame = aligned_alloc(64, (size_t)s->frame_bytes + 64);
    l->pinned = aligned_alloc(64, (size_t)(s->pinned_bytes + s->const_bytes) + 64);
    prog_frame where = {{[SPACE_FRAME] = l->frame,
                         [SPACE_PINNED] = l->pinned,
                         [SPACE_CONST] = (char *)l->pinned + s->pinned_bytes,
                         [SPACE_MASTER] = l->param,
                         [SPACE_GRAD] = l->grad}};
    prog_bind(l->p, &where, 1);
    for (int i = 0; i < PARAMS; i++) l->param[i] = (float)(i * 37 % 101 - 50) / 100.0f;
    for (int i = 0; i < N; i++) {
        ((int32_t *)prog_at(l->p, "ids"))[i] = (i * 5 + 2) % V;
        ((int32_t *)prog_at(l->p, "targets"))[i] = (i * 3 + 1) % V;
    }
}

static void lab_close(lab *l) {
    free(l->frame);
    free(l->pinned);
    dev_close(l->dev);
    arena_free(l->a);
}

static op_run run_of(const lab *l) {
    return (op_run){.dev = l->dev, .first_micro = true, .grad_scale = 0.5f};
}

static void test_totals(void **state) {
    (void)state;
    for (recompute_policy policy = RECOMPUTE_NONE; policy <= RECOMPUTE_FULL; policy++) {
        lab l;
        lab_open(&l, policy);
        const prog_stats *s = prog_get_stats(l.p);
        double forward = 0, all = 0, bytes = 0;
        int recomputed = 0;
        for (int i = 0; i < s->ops; i++) {
            prog_op o = prog_get_op(l.p, i);
            all += o.flops;
            bytes += o.bytes;
            if (o.phase == PHASE_F) forward += o.flops;
            recomputed += o.recomputed;
            assert_true(!o.recomputed || (o.phase == PHASE_B && o.entry == ENTRY_FWD));
        }
        assert_true(forward == s->flops_forward);
        assert_true(all == s->flops_forward + s->flops_backward + s->flops_recompute);
        assert_true(bytes == s->bytes_moved);
        assert_int_equal(recomputed, s->ops_recomputed);
        assert_true((recomputed > 0) == (policy != RECOMPUTE_NONE));
        lab_close(&l);
    }
}

/* A backward knows name, layer and shapes of its forward, also of operands that it does not read.
 */
static void test_linear_layers(void **state) {
    (void)state;
    lab l;
    lab_open(&l, RECOMPUTE_NONE);
    static const op_phase phases[] = {PHASE_F, PHASE_B, PHASE_W};
    int seen[3] = {0};
    for (int i = 0; i < prog_get_stats(l.p)->ops; i++) {
        prog_op o = prog_get_op(l.p, i);
        if (o.kind != OP_LINEAR || strcmp(o.name, "layers.1.up") != 0) continue;
        seen[o.entry]++;
        assert_int_equal(o.block, 1);
        assert_int_equal(o.in[0].rows, N);
        assert_int_equal(o.in[0].cols, C);
        assert_int_equal(o.in[1].rows, F);
        assert_int_equal(o.out[0].cols, F);
        assert_true(o.flops == 2.0 * N * C * F);
        assert_int_equal(o.phase, phases[o.entry]);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(seen[i], 1);
    lab_close(&l);
}

static void test_timed_replay(void **state) {
    (void)state;
    lab l;
    lab_open(&l, RECOMPUTE_FULL);
    int ops = prog_get_stats(l.p)->ops;
    int64_t ns[MAX_OPS] = {0}, before[MAX_OPS], sum = 0;
    float want[PARAMS];
    op_run run = run_of(&l);
    prog_replay(l.p, PROG_ALL, &run);
    memcpy(want, l.grad, sizeof want);
    memset(l.grad, 0xff, sizeof l.grad);

    int forward = prog_get_stats(l.p)->ops_forward;
    prog_replay_range(l.p, 0, forward, &run, ns);
    for (int i = 0; i < ops; i++) {
        sum += ns[i];
        if (prog_get_op(l.p, i).phase != PHASE_F) assert_int_equal(ns[i], 0);
    }
    assert_true(sum > 0);
    memcpy(before, ns, sizeof before);
    prog_replay_range(l.p, forward, ops, &run, ns);
    int64_t backward = 0;
    for (int i = 0; i < ops; i++) {
        if (prog_get_op(l.p, i).phase == PHASE_F)
            assert_int_equal(ns[i], before[i]);
        else
            backward += ns[i];
    }
    assert_true(backward > 0);
    assert_memory_equal(l.grad, want, sizeof want);

    memcpy(before, ns, sizeof before);
    prog_replay_range(l.p, 0, ops, &run, ns); /* adds */
    sum = 0;
    for (int i = 0; i < ops; i++) {
        assert_true(ns[i] >= before[i]);
        sum += ns[i] - before[i];
    }
    assert_true(sum > 0);
    lab_close(&l);
}

/* The op by the name of its output, the forward. */
static prog_op find_op(const lab *l, const char *name) {
    for (int i = 0; i < prog_get_stats(l->p)->ops; i++) {
        prog_op o = prog_get_op(l->p, i);
        if (o.entry == ENTRY_FWD && !o.recomputed && strcmp(o.name, name) == 0) return o;
    }
    fail_msg("no %s", name);
    return (prog_op){0};
}

/* A product reads what the op before it has just written, and a weight that the backward of the replay before read last. */
static void test_touches(void **state) {
    (void)state;
    lab l;
    lab_open(&l, RECOMPUTE_NONE);
    const prog_stats *s = prog_get_stats(l.p);
    prog_op up = find_op(&l, "layers.0.up");
    assert_int_equal(up.touches, 3);
    assert_true(up.touch[0].bytes == N * C * 4 && up.touch[0].since == N * C * 4 &&
                !up.touch[0].before);
    assert_true(up.touch[1].bytes == F * C * 4 && up.touch[1].before);
    assert_true(up.touch[2].bytes == N * F * 4); /* its result, where something else lay before */
    assert_true(up.touch[2].since > 0 && up.touch[2].since < s->bytes_moved);
    /* all but what lies between the product and the gradient of its input, which reads the weight again, was moved in between */
    assert_true(up.touch[1].since > 0 && up.touch[1].since < s->bytes_moved);
    prog_op later = find_op(&l, "layers.1.up");
    assert_true(later.touch[1].since > up.touch[1].since);
    /* a gradient of a weight reads an activation of the forward, and adds to what the replay before wrote */
    int kept = 0;
    for (int i = s->ops_forward; i < s->ops; i++) {
        prog_op o = prog_get_op(l.p, i);
        if (o.kind != OP_LINEAR || o.entry != ENTRY_BWD_WEIGHT) continue;
        const prog_touch *last = &o.touch[o.touches - 1];
        assert_true(last->before && last->bytes == F * C * 4);
        kept++;
    }
    assert_int_equal(kept, 4);
    /* whatever was moved in between, there are no more bytes than these */
    double most = (double)(s->frame_bytes + s->scratch_bytes) + s->outside_bytes;
    assert_true(s->outside_bytes > 0 && most < s->bytes_moved);
    for (int i = 0; i < s->ops; i++) {
        prog_op o = prog_get_op(l.p, i);
        for (int k = 0; k < o.touches; k++) assert_true(o.touch[k].since <= most);
    }
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_touches), cmocka_unit_test(test_totals),
        cmocka_unit_test(test_linear_layers), cmocka_unit_test(test_timed_replay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
