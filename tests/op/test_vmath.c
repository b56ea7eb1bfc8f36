/* Vector exp, log, logistic, tanh and erf against libm in double over dense sweeps of all
 * magnitudes, and vector normals against their definition, in the instruction set this file is
 * compiled for. The bounds are those that vmath.h states. */
#include "test.h"

#include <float.h>

#include "dev/dev.h"
#include "op/cpu/normal.h"
#include "op/cpu/vmath.h"

#if V_AVX512
static const cpu_isa NEEDED = ISA_AVX512;
#elif V_BYTES == 32
static const cpu_isa NEEDED = ISA_AVX2;
#else
static const cpu_isa NEEDED = ISA_BASE;
#endif

static double ulp_error(float got, double want) {
    float rounded = (float)want;
    if (isinf(rounded)) return isinf(got) && (got > 0) == (rounded > 0) ? 0.0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    if (exponent < -125) exponent = -125; /* subnormals have the spacing of FLT_MIN */
    return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

static double logistic(double x) {
    return 1.0 / (1.0 + exp(-x));
}

enum { EXP, LOGISTIC, TANH, ERF, LOG };

static vf apply(int which, vf x) {
    switch (which) {
        case EXP: return v_exp(x);
        case LOGISTIC: return v_logistic(x);
        case TANH: return v_tanh(x);
        case ERF: return v_erf(x);
        default: return v_log(x);
    }
}

/* Largest error over every `step`-th float in [from, to] by bit pattern, both signs (of log's
 * argument only the positive one). */
static double sweep(int which, double (*exact)(double), float from, float to, uint32_t step) {
    uint32_t lo, hi;
    double worst = 0.0;
    memcpy(&lo, &from, 4), memcpy(&hi, &to, 4);
    for (uint32_t u = lo; u <= hi; u += step * VW / 2) {
        float x[VW], y[VW];
        for (int i = 0; i < VW; i++) {
            uint32_t bits =
                (u + (uint32_t)(i / 2) * step) | (which == LOG ? 0 : (uint32_t)(i % 2) << 31);
            memcpy(&x[i], &bits, 4);
        }
        v_store(y, apply(which, v_load(x)));
        for (int i = 0; i < VW; i++) {
            double want = exact((double)x[i]);
            if (fabs(want) < 1.17549435e-38) continue; /* flushed or subnormal */
            double error = ulp_error(y[i], want);
            if (error > worst) worst = error;
        }
    }
    return worst;
}

static void check(const char *name, int which, double (*exact)(double), float to, double limit) {
    double worst = sweep(which, exact, which == LOG ? FLT_MIN : 1e-30f, to, 997);
    double middle = sweep(which, exact, 0.01f, to, 37);
    if (middle > worst) worst = middle;
    print_message("%s: %.2f ulp\n", name, worst);
    assert_true(worst <= limit);
}

static void test_exp(void **state) {
    (void)state;
    check("exp", EXP, exp, 88.7f, 1.1);
}
static void test_logistic(void **state) {
    (void)state;
    check("logistic", LOGISTIC, logistic, 87.0f, 2.5);
}
static void test_tanh(void **state) {
    (void)state;
    check("tanh", TANH, tanh, 30.0f, 1.5);
}
static void test_erf(void **state) {
    (void)state;
    check("erf", ERF, erf, 10.0f, 1.5);
}
static void test_log(void **state) {
    (void)state;
    check("log", LOG, log, FLT_MAX, 1.0);
}

static float lane(int which, float x) {
    return apply(which, v_set1(x))[0];
}

static void test_special_values(void **state) {
    (void)state;
    assert_true(lane(EXP, INFINITY) == INFINITY && lane(EXP, -INFINITY) == 0.0f);
    assert_true(lane(EXP, 0.0f) == 1.0f && lane(EXP, 89.0f) == INFINITY &&
                lane(EXP, -104.0f) == 0.0f);
    assert_true(lane(LOGISTIC, INFINITY) == 1.0f && lane(LOGISTIC, -INFINITY) == 0.0f &&
                lane(LOGISTIC, 0.0f) == 0.5f);
    assert_true(lane(TANH, INFINITY) == 1.0f && lane(TANH, -INFINITY) == -1.0f);
    assert_true(lane(ERF, INFINITY) == 1.0f && lane(ERF, -INFINITY) == -1.0f &&
                lane(ERF, 0.0f) == 0.0f);
    assert_true(lane(LOG, 1.0f) == 0.0f && lane(LOG, INFINITY) == INFINITY);
    for (int which = EXP; which <= LOG; which++) assert_true(isnan(lane(which, NAN)));
}

#if V_NORMALS
/* Bits of every exponent, around every edge: all ones or zeros below, random elsewhere. A lane each
 * in the even and the odd vector. */
static void check_normals(uint64_t even, uint64_t odd) {
    vq e = (vq){0} + even, o = (vq){0} + odd;
    for (int i = 0; i < VQ_LANES; i++) e[i] ^= (uint64_t)i << 63, o[i] += (uint64_t)i;
    vi q = normals_from_bits(e, o);
    for (int i = 0; i < VQ_LANES; i++) {
        assert_int_equal(q[2 * i], rng_normal_from_bits(e[i]));
        assert_int_equal(q[2 * i + 1], rng_normal_from_bits(o[i]));
    }
}

static void test_normals(void **state) {
    (void)state;
    for (int top = 0; top < 64; top++) {
        uint64_t one = (uint64_t)1 << top;
        check_normals(one, one - 1);
        check_normals(one - 2, ~one);
        check_normals(one | 1023, (one - 1) & ~(uint64_t)1023);
        for (uint64_t k = 0; k < 2000; k++)
            check_normals(one | (mix64(k) & (one - 1)), mix64(~k) >> (63 - top));
    }
    check_normals(0, UINT64_MAX);
}
#endif

/* 77: this machine has not the instruction set. */
int main(void) {
    dev *d;
    if (dev_open(&d, DEV_CPU, 1, NULL) != ST_OK) return 1;
    bool runs = dev_isa(d) >= NEEDED;
    dev_close(d);
    if (!runs) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_logistic),
        cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_erf),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_special_values),
#if V_NORMALS
        cmocka_unit_test(test_normals),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
