/* States in bf16 that are rounded stochastically (op/narrow.h): the rounding itself, and AdamW with such states against
 * the definition, bit for bit, on every instruction set, with any number of threads, however a tensor is cut; then
 * on the emulated CUDA device. */
#include "test.h"

#include "base/arena.h"
#include "base/dtype.h"
#include "op/vecops.h"

static uint32_t bits_of(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* ---- the rounding ---- */

/* Over all draws the mean is the number itself, exactly; what bf16 has stays. */
static void test_mean(void **state) {
    (void)state;
    static const float x[] = {1.0f + 0x1p-9f, -3.14159274f, 1e-20f,
                              0x1.fffffep-3f, -0x1p-130f,   65504.0f};
    for (int i = 0; i < ARRAY_LEN(x); i++) {
        double sum = 0;
        for (uint32_t draw = 0; draw < 1u << 16; draw++)
            sum += (double)bf16_to_f32(narrow_round(bits_of(x[i]), draw));
        assert_true(sum * 0x1p-16 == (double)x[i]);
    }
    static const float stays[] = {0, -0.0f, 1, -1.5f, 0x1p-133f, INFINITY, -INFINITY};
    for (int i = 0; i < ARRAY_LEN(stays); i++)
        for (uint32_t draw = 0; draw < 1u << 16; draw += 257)
            assert_int_equal(narrow_round(bits_of(stays[i]), draw), bits_of(stays[i]) >> 16);
    for (uint32_t draw = 0; draw < 1u << 16; draw += 255) {
        assert_true(isnan(bf16_to_f32(narrow_round(0x7fffffffu, draw))));
        assert_true(isnan(bf16_to_f32(narrow_round(0xff800001u, draw))));
    }
}

/* Steps, seeds, tensors and elements draw for themselves. */
static void test_draws(void **state) {
    (void)state;
    uint64_t seen[] = {narrow_draws(1, 1), narrow_draws(1, 2), narrow_draws(2, 1),
                       narrow_draws(0, 3)};
    for (int i = 0; i < ARRAY_LEN(seen); i++)
        for (int k = 0; k < i; k++) assert_true(seen[i] != seen[k]);
    rng_key key = key_of_stream(seen[0], 5);
    double sum = 0;
    enum { N = 100000 };
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(philox_u32(key, i), rng_u32(key, i));
        sum += (rng_u32(key, i) & 0xffff) / 65536.0 - 0.5;
    }
    assert_true(fabs(sum / N) < 4 * sqrt(1.0 / 12 / N)); /* four standard errors */
}

/* ---- AdamW ---- */

enum { ROWS = 67, COLS = 517, WHOLE = ROWS * COLS, LEN = 2 * WHOLE };

static float *make(arena *a, uint64_t seed, float scale) {
    float *x = ARENA_ARRAY(a, float, LEN);
    for (int i = 0; i < LEN; i++)
        x[i] = scale * (2 * rng_uniform(rng_key_numbered(9, seed), (uint64_t)i) - 1);
    return x;
}

static uint16_t *round_all(arena *a, float *x) {
    uint16_t *h = ARENA_ARRAY(a, uint16_t, LEN);
    dtype_convert(h, DT_BF16, x, DT_F32, LEN);
    dtype_convert(x, DT_F32, h, DT_BF16, LEN); /* so that both are the same numbers */
    return h;
}

/* With states in fp32, or the same numbers in bf16. */
static vec_update_args make_step(arena *a, bool narrow) {
    static const bool decay[] = {true};
    vec_update_args s = {.kind = VEC_ADAMW, .param = make(a, 1, 1), .grad = make(a, 4, 1)};
    float *m = make(a, 2, 1), *v = make(a, 3, 1);
    for (int i = 0; i < LEN; i++) v[i] = fabsf(v[i]);
    uint16_t *narrow_m = round_all(a, m), *narrow_v = round_all(a, v);
    if (narrow)
        s.narrow[0] = narrow_m, s.narrow[1] = narrow_v;
    else
        s.state[0] = m, s.state[1] = v;
    s.decay = decay, s.draws = narrow_draws(3, 17);
    s.lr = 0.01f, s.beta1 = 0.9f, s.beta2 = 0.999f, s.eps = 1e-8f, s.weight_decay = 0.1f;
    s.correction1 = 0.19f, s.correction2 = 0.002f, s.grad_scale = 0.5f;
    return s;
}

/* A matrix as one span; or cut into four blocks of columns, each of all rows and a span of its own, with gaps between them. */
static vec_spans spans_of(arena *a, bool cut) {
    vec_span all = {.n = WHOLE, .at = 3, .name = 99, .copy_dt = DT_F32, .counted = true};
    vec_spans s = {.item = ARENA_ARRAY(a, vec_span, 8)};
    static const int64_t borders[] = {0, 100, 101, 260, COLS};
    for (int i = 0; cut && i < ARRAY_LEN(borders) - 1; i++) {
        vec_span k = all;
        k.run = borders[i + 1] - borders[i], k.index = borders[i], k.stride = COLS;
        k.n = k.run * ROWS, k.at = i ? s.item[i - 1].at + s.item[i - 1].n + i : 1;
        s.item[s.n++] = k;
    }
    if (!cut) s.item[s.n++] = all;
    vec_spans_index(&s);
    return s;
}

/* What fp32 states became, rounded by the draw of each element. */
static void check_states(const vec_spans *s, const vec_update_args *wide,
                         const vec_update_args *got) {
    rng_key key = key_of_stream(got->draws, 99);
    for (int k = 0; k < s->n; k++)
        for (int64_t i = 0; i < s->item[k].n; i++) {
            int64_t at = s->item[k].at + i;
            uint32_t draw = rng_u32(key, (uint64_t)vec_whole_index(&s->item[k], i));
            assert_int_equal(got->narrow[0][at],
                             narrow_round(bits_of(wide->state[0][at]), draw & 0xffff));
            assert_int_equal(got->narrow[1][at],
                             narrow_round(bits_of(wide->state[1][at]), draw >> 16));
        }
}

static dev *open_cpu(const char *isa, int threads) {
    dev *d;
    setenv("ATHANOR_ISA", isa, 1);
    assert_int_equal(dev_open(&d, DEV_CPU, threads, NULL), ST_OK);
    return d;
}

static void test_adamw(void **state) {
    (void)state;
    static const char *const isas[] = {"base", "avx2", "avx512", "avx512_bf16"};
    for (int i = 0; i < 2 * ARRAY_LEN(isas); i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            arena *a = arena_new("test");
            vec_spans s = spans_of(a, i % 2);
            vec_update_args wide = make_step(a, false), old = make_step(a, true);
            vec_update_args got = make_step(a, true);
            uint64_t digests[2];
            dev *d = open_cpu(isas[i / 2], threads);
            vec_update(d, &s, &wide, &digests[0]);
            vec_update(d, &s, &got, &digests[1]);
            assert_memory_equal(got.param, wide.param, LEN * sizeof(float));
            assert_true(digests[0] == digests[1]);
            check_states(&s, &wide, &got);
            for (int k = 0; k < 2; k++) /* the gap before the first span */
                assert_int_equal(got.narrow[k][0], old.narrow[k][0]);
            dev_close(d), arena_free(a);
        }
}

/* Without gradients a second moment falls as beta2^n says. Rounded to the nearest it would stay. */
static void test_decay_of_moments(void **state) {
    (void)state;
    enum { STEPS = 1000 };
    arena *a = arena_new("test");
    vec_spans s = spans_of(a, false);
    vec_update_args x = make_step(a, true);
    dev *d = open_cpu("base", 1);
    memset((void *)(uintptr_t)x.grad, 0, LEN * sizeof(float));
    for (int i = 0; i < LEN; i++) x.narrow[1][i] = f32_to_bf16(1);
    for (uint64_t n = 1; n <= STEPS; n++) {
        x.draws = narrow_draws(3, n);
        vec_update(d, &s, &x, NULL);
    }
    double sum = 0;
    for (int64_t i = 0; i < s.item[0].n; i++) sum += bf16_to_f32(x.narrow[1][s.item[0].at + i]);
    double mean = sum / (double)s.item[0].n, want = pow((double)0.999f, STEPS);
    print_message("v after %d steps: %.4f, exact %.4f\n", STEPS, mean, want);
    assert_true(fabs(mean / want - 1) < 0.01);
    assert_int_equal(f32_to_bf16(0.999f * 1.0f),
                     f32_to_bf16(1)); /* to the nearest: no step at all */
    dev_close(d), arena_free(a);
}

/* ---- on the emulated CUDA device ---- */

static dev *open_cuda(const char *seed) {
    dev *d;
    err e;
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_CUDA_SEED", seed, 1);
    if (dev_open(&d, DEV_CUDA, 2, &e) != ST_OK) fail_msg("%s", e.message);
    return d;
}

/* Kernels see the host's memory, wherever it lies; the watch looks at each access. */
static void test_cuda(void **state) {
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        arena *a = arena_new("test");
        vec_spans s = spans_of(a, cut);
        vec_update_args wide = make_step(a, false), got = make_step(a, true);
        dev *d = open_cuda(cut ? "2" : "1");
        uint64_t digests[2];
        vec_update(d, &s, &wide, &digests[0]);
        vec_update(d, &s, &got, &digests[1]);
        err e;
        if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
        assert_memory_equal(got.param, wide.param, LEN * sizeof(float));
        assert_true(digests[0] == digests[1]);
        check_states(&s, &wide, &got);
        dev_close(d), arena_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),  cmocka_unit_test(test_draws),
        cmocka_unit_test(test_adamw), cmocka_unit_test(test_decay_of_moments),
        cmocka_unit_test(test_cuda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
