/* What a round draws: distinct sequences, more often those with a larger loss, by the rule of resample.h. */
#include "test.h"

#include <math.h>

#include "train/course/resample.h"

enum { N = 6, DRAWS = 40000 };

static const float loss[N] = {1.0f, 2.5f, 0.5f,
                              0.0f, 2.0f, NAN}; /* two are not known: the mean, 1.5 */
static const double taken[N] = {1.0, 2.5, 0.5, 1.5, 2.0, 1.5};

/* One of N: with probability exp(l_i) / sum of all. */
static void test_probabilities(void **state) {
    (void)state;
    int count[N] = {0};
    double sum = 0;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        uint32_t one;
        resample_choose(loss, N, 1, seed, 1, &one);
        assert_true(one < N);
        count[one]++;
    }
    for (int i = 0; i < N; i++) sum += exp(taken[i]);
    for (int i = 0; i < N; i++) {
        double p = exp(taken[i]) / sum, spread = sqrt(p * (1 - p) / DRAWS);
        assert_true(fabs((double)count[i] / DRAWS - p) < 4 * spread);
    }
}

/* The second of two: as if the first had not been there. */
static void test_without_replacement(void **state) {
    (void)state;
    int both = 0;
    double sum = 0, want = 0;
    for (int i = 0; i < N; i++) sum += exp(taken[i]);
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        uint32_t two[2];
        resample_choose(loss, N, 2, seed, 1, two);
        assert_true(two[0] < two[1]);
        both += two[0] == 1 && two[1] == 4;
    }
    double a = exp(taken[1]), b = exp(taken[4]);
    want = a / sum * b / (sum - a) + b / sum * a / (sum - b);
    assert_true(fabs((double)both / DRAWS - want) < 4 * sqrt(want * (1 - want) / DRAWS));
}

static void test_all_and_stages(void **state) {
    (void)state;
    float many[300] = {0};
    uint32_t a[300], b[300];
    resample_choose(many, 300, 300, 7, 1, a);
    for (uint32_t i = 0; i < 300; i++) assert_int_equal(a[i], i);
    resample_choose(many, 300, 150, 7, 1, a);
    resample_choose(many, 300, 150, 7, 1, b);
    assert_memory_equal(a, b, 150 * sizeof *a);
    resample_choose(many, 300, 150, 7, 2, b);
    assert_memory_not_equal(a, b, 150 * sizeof *a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_probabilities),
                                       cmocka_unit_test(test_without_replacement),
                                       cmocka_unit_test(test_all_and_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
