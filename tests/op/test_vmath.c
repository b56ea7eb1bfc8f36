/* Vector exp, logistic, tanh and erf against libm in double over dense sweeps of all magnitudes,
 * in the instruction set this test is compiled for. The bounds are those that vmath.h states for
 * machines without fused multiply-add. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "op/cpu/vmath.h"

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

static vf apply(int which, vf x) {
    return which == 0 ? v_exp(x) : which == 1 ? v_logistic(x) : which == 2 ? v_tanh(x) : v_erf(x);
}

/* Largest error over every `step`-th float in [from, to] by bit pattern, both signs. */
static double sweep(int which, double (*exact)(double), float from, float to, uint32_t step) {
    uint32_t lo, hi;
    double worst = 0.0;
    memcpy(&lo, &from, 4), memcpy(&hi, &to, 4);
    for (uint32_t u = lo; u <= hi; u += step * VW / 2) {
        float x[VW], y[VW];
        for (int i = 0; i < VW; i++) {
            uint32_t bits = (u + (uint32_t)(i / 2) * step) | (uint32_t)(i % 2) << 31;
            memcpy(&x[i], &bits, 4);
        }
        v_store(y, apply(which, v_load(x)));
        for (int i = 0; i < VW; i++) {
            double want = exact((double)x[i]);
            if (fabs(want) < 1.17549435e-38) continue; /* flushed or subnormal */
            double err = ulp_error(y[i], want);
            if (err > worst) worst = err;
        }
    }
    return worst;
}

static void check(const char *name, int which, double (*exact)(double), float to, double bound) {
    double worst = sweep(which, exact, 1e-30f, to, 997);
    double middle = sweep(which, exact, 0.01f, to, 37);
    if (middle > worst) worst = middle;
    print_message("%s: %.2f ulp\n", name, worst);
    assert_true(worst <= bound);
}

static void test_exp(void **state) {
    (void)state;
    check("exp", 0, exp, 88.7f, 2.0);
}
static void test_logistic(void **state) {
    (void)state;
    check("logistic", 1, logistic, 87.0f, 3.0);
}
static void test_tanh(void **state) {
    (void)state;
    check("tanh", 2, tanh, 30.0f, 3.0);
}
static void test_erf(void **state) {
    (void)state;
    check("erf", 3, erf, 10.0f, 3.0);
}

static float lane(int which, float x) {
    return apply(which, v_set1(x))[0];
}

static void test_special_values(void **state) {
    (void)state;
    assert_true(lane(0, INFINITY) == INFINITY && lane(0, -INFINITY) == 0.0f);
    assert_true(lane(0, 0.0f) == 1.0f && lane(0, 89.0f) == INFINITY && lane(0, -104.0f) == 0.0f);
    assert_true(lane(1, INFINITY) == 1.0f && lane(1, -INFINITY) == 0.0f && lane(1, 0.0f) == 0.5f);
    assert_true(lane(2, INFINITY) == 1.0f && lane(2, -INFINITY) == -1.0f);
    assert_true(lane(3, INFINITY) == 1.0f && lane(3, -INFINITY) == -1.0f && lane(3, 0.0f) == 0.0f);
    for (int which = 0; which < 4; which++) assert_true(isnan(lane(which, NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_logistic),
        cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_erf),
        cmocka_unit_test(test_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
