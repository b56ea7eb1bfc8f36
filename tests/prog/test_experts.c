/* A layer of experts as a program: what a token gets does not depend on where in the batch it stands, and nothing
 * depends on the number of threads. */
#include "test.h"

#include "base/rng.h"
#include "prog/graph_int.h"
#include "prog_memory.h"

/* Experts with many rows, which all threads share, and such with few. */
enum { N = 900, C = 40, F = 56, E = 7, K = 2, IN = E * F * C, OUT = E * C * F };

typedef struct layer {
    arena *a;
    dev *dev;
    prog *p;
    float *weights, *grads; /* of the router, then in, then out */
    float *y, *dx;          /* after a run, in the order of tokens */
    void *frame, *pinned;
} layer;

static const int64_t PARAMS = E * C + IN + OUT;

static val weight(graph *g, const char *name, int64_t at, int64_t rows, int64_t cols) {
    graph_param_ref ref = {.name = name,
                           .where = SPACE_MASTER,
                           .dt = DT_F32,
                           .rows = rows,
                           .cols = cols,
                           .offset_bytes = at * 4,
                           .grad_offset_bytes = at * 4,
                           .trainable = true};
    return graph_param(g, &ref);
}

static void record(layer *l) {
    graph_options opt = {.dev = l->dev, .dt = DT_F32, .train = true};
    graph *g = graph_new(l->a, &opt);
    op_router r = {.experts = E, .k = K, .scale = 1, .renormalise = true};
    val x = graph_input(g, "x", DT_F32, N, C);
    graph_keep_grad(g, x, "dx");
    val logits = graph_linear(g, x, weight(g, "router", 0, E, C), VAL_NONE);
    graph_routes to = graph_route(g, &r, logits, VAL_NONE);
    val h = graph_take_rows(g, x, to.rows);
    h = graph_expert_linear(g, &r, h, weight(g, "in", E * C, E * F, C), to.starts);
    h = graph_act(g, h, ACT_SILU);
    h = graph_expert_linear(g, &r, h, weight(g, "out", E * C + IN, E * C, F), to.starts);
    val y = graph_expert_sum(g, h, &to, VAL_NONE);
    graph_output(g, y, "y");
    graph_root(g, y, "dy");
    err e = {0};
    if (prog_finish(&l->p, g, &e) != ST_OK) fail_msg("%s", e.message);
}

static void layer_open(layer *l, int threads) {
    *l = (layer){.a = arena_new("experts")};
    assert_int_equal(dev_open(&l->dev, DEV_CPU, threads, NULL), ST_OK);
    record(l);
    const prog_stats *s = prog_get_stats(l->p);
    l->weights = ARENA_ARRAY(l->a, float, PARAMS);
    l->grads = ARENA_ARRAY(l->a, float, PARAMS);
    l->y = ARENA_ARRAY(l->a, float, N *C);
    l->dx = ARENA_ARRAY(l->a, float, N *C);
    l->frame = aligned_alloc(64, ((size_t)s->frame_bytes / 64 + 1) * 64);
    l->pinned = aligned_alloc(64, ((size_t)s->pinned_bytes / 64 + 1) * 64);
    prog_frame where = {{[SPACE_FRAME] = l->frame,
                         [SPACE_PINNED] = l->pinned,
                         [SPACE_MASTER] = l->weights,
                         [SPACE_GRAD] = l->grads}};
    prog_bind(l->p, &where, 1);
    for (int64_t i = 0; i < PARAMS; i++)
        l->weights[i] = (float)rng_normal_q24(rng_key_numbered(1, 1), (uint64_t)i) * 0x1p-25f;
}

static void layer_close(layer *l) {
    free(l->frame);
    free(l->pinned);
    dev_close(l->dev);
    arena_free(l->a);
}

/* Token t stands in row t * step modulo N. Tokens differ in size, so that experts have uneven loads. */
static void run(layer *l, int step) {
    float *x = prog_at(l->p, "x"), *dy = prog_at(l->p, "dy");
    op_run r = {.dev = l->dev, .first_micro = true, .grad_scale = 1};
    for (int t = 0; t < N; t++)
        for (int i = 0; i < C; i++) {
            uint64_t at = (uint64_t)(t * C + i);
            int to = t * step % N * C + i;
            float even = (float)rng_normal_q24(rng_key_numbered(2, 1), at) * 0x1p-24f;
            x[to] = even + (i % 3 ? 0.0f : 0.7f);
            dy[to] = (float)rng_normal_q24(rng_key_numbered(3, 1), at) * 0x1p-24f;
        }
    prog_replay(l->p, PROG_F, &r);
    const float *y = prog_at(l->p, "y");
    for (int t = 0; t < N; t++) memcpy(l->y + t * C, y + t * step % N * C, C * sizeof *y);
    prog_replay(l->p, PROG_B | PROG_W, &r);
    const float *dx = prog_at(l->p, "dx");
    for (int t = 0; t < N; t++) memcpy(l->dx + t * C, dx + t * step % N * C, C * sizeof *dx);
}

static void assert_near(const char *what, const float *a, const float *b, int64_t n, double by) {
    double most = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)a[i]));
    for (int64_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    assert_true(most > 0.1);
    if (!(worst <= by * most)) fail_msg("%s: %.3g of %.3g", what, worst, most);
}

static void test_order_and_threads(void **state) {
    (void)state;
    layer one, other;
    layer_open(&one, 1);
    run(&one, 1);
    for (int threads = 1; threads <= 2; threads++) {
        layer_open(&other, threads);
        run(&other, 1);
        assert_memory_equal(other.y, one.y, N * C * sizeof(float));
        assert_memory_equal(other.dx, one.dx, N * C * sizeof(float));
        assert_memory_equal(other.grads, one.grads, (size_t)PARAMS * sizeof(float));
        run(&other, 611); /* no divisor of N */
        assert_near("y", one.y, other.y, N * C, 1e-6);
        assert_near("dx", one.dx, other.dx, N * C, 1e-6);
        assert_near("router", one.grads, other.grads, E * C, 1e-5);
        assert_near("in", one.grads + E * C, other.grads + E * C, IN, 1e-5);
        assert_near("out", one.grads + E * C + IN, other.grads + E * C + IN, OUT, 1e-5);
        layer_close(&other);
    }
    layer_close(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
