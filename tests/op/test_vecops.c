/* Whole-buffer operations against plain loops, with the same bits for 1 and 3 threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "op/vecops.h"

enum { LEN = 70003 }; /* several blocks and an odd end */

static const char *const ISAS[] = {"base", "avx2", "avx512", "avx512_bf16"};

static dev *open_dev(const char *isa, int threads) {
    dev *d;
    err e = {0};
    setenv("ATHANOR_ISA", isa, 1);
    assert_int_equal(dev_open(&d, DEV_CPU, threads, &e), ST_OK);
    return d;
}

static float *make(arena *a, uint32_t seed) {
    float *x = ARENA_ARRAY(a, float, LEN);
    for (int i = 0; i < LEN; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

static adamw_args make_step(arena *a, bool with_copy) {
    adamw_args s = {.param = make(a, 1), .m = make(a, 2), .v = make(a, 3), .grad = make(a, 4)};
    s.n = LEN;
    for (int i = 0; i < LEN; i++) s.v[i] = fabsf(s.v[i]);
    if (with_copy) s.param_bf16 = ARENA_ARRAY(a, uint16_t, LEN);
    s.lr = 0.01f, s.beta1 = 0.9f, s.beta2 = 0.95f, s.eps = 1e-8f, s.weight_decay = 0.1f;
    s.correction1 = 1.0f - 0.9f * 0.9f, s.correction2 = 1.0f - 0.95f * 0.95f, s.grad_scale = 0.5f;
    return s;
}

static void check_step(const adamw_args *old, const adamw_args *now, int i) {
    double g = (double)old->grad[i] * 0.5, p = (double)old->param[i];
    double m = 0.9 * (double)old->m[i] + 0.1 * g, v = 0.95 * (double)old->v[i] + 0.05 * g * g;
    double root = sqrt(v / (double)old->correction2);
    double want = p - 0.01 * 0.1 * p - 0.01 * (m / (double)old->correction1) / (root + 1e-8);
    assert_true(fabs((double)now->m[i] - m) < 1e-6);
    assert_true(fabs((double)now->v[i] - v) < 1e-6);
    assert_true(fabs((double)now->param[i] - want) < 1e-6 + 1e-5 * fabs(want - p));
    if (now->param_bf16) assert_int_equal(now->param_bf16[i], f32_to_bf16(now->param[i]));
}

static void test_adamw(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        adamw_args old = make_step(a, false), one = make_step(a, true), three = make_step(a, true);
        dev *d1 = open_dev(ISAS[isa], 1), *d3 = open_dev(ISAS[isa], 3);
        vec_update_adamw(d1, &one);
        vec_update_adamw(d3, &three);
        for (int i = 0; i < LEN; i++) check_step(&old, &one, i);
        assert_memory_equal(one.param, three.param, LEN * sizeof(float));
        assert_memory_equal(one.m, three.m, LEN * sizeof(float));
        assert_memory_equal(one.v, three.v, LEN * sizeof(float));
        dev_close(d1), dev_close(d3), arena_free(a);
    }
}

static void test_sum_squares(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        float *x = make(a, 7);
        dev *d1 = open_dev(ISAS[isa], 1), *d3 = open_dev(ISAS[isa], 3);
        for (int n = LEN; n > 0; n /= 3) {
            double want = 0.0;
            for (int i = 0; i < n; i++) want += (double)x[i] * (double)x[i];
            double one = vec_sum_squares(d1, x, n), three = vec_sum_squares(d3, x, n);
            assert_true(fabs(one - want) <= 1e-12 * want);
            assert_true(one == three);
        }
        assert_true(vec_sum_squares(d1, x, 0) == 0.0);
        dev_close(d1), dev_close(d3), arena_free(a);
    }
}

static void test_finite_and_scale(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        float *x = make(a, 9), *y = make(a, 9);
        dev *d = open_dev(ISAS[isa], 3);
        assert_true(vec_all_finite(d, x, LEN));
        static const int places[] = {0, 16384, LEN - 1};
        static const float values[] = {NAN, INFINITY, -INFINITY};
        for (int p = 0; p < 3; p++) {
            float kept = x[places[p]];
            x[places[p]] = values[p];
            assert_false(vec_all_finite(d, x, LEN));
            x[places[p]] = kept;
        }
        vec_scale(d, x, LEN, 0.25f);
        for (int i = 0; i < LEN; i++) assert_true(x[i] == y[i] * 0.25f);
        dev_close(d), arena_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_sum_squares),
        cmocka_unit_test(test_finite_and_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
