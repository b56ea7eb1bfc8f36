/* The mixture: shares and ordinals for many weights, rare sources beside common ones; and the
 * permutation that the order within a source is made of. */
#include "data_test.h"

#include <math.h>

#include "data/order/mixture.h"

enum { MOST = 50 };

/* What a public 3B run mixed, stage 1: web, code, mathematics, and much that is small. */
static const double REAL[] = {0.333,  0.37,   0.02,   0.005,  0.01,   0.005,  0.02,    0.005,
                              0.01,   0.0125, 0.0075, 0.0008, 0.0022, 0.0016, 0.0044,  0.0024,
                              0.0015, 0.0035, 0.0186, 0.0082, 0.0156, 0.1006, 0.00045, 0.0007};

static double sum_of(const double *w, int n) {
    double sum = 0;
    for (int k = 0; k < n; k++) sum += w[k];
    return sum;
}

/* Deals `samples`; every ordinal must follow the last one of its source, every prefix be close. */
static void deal(const mixture *m, const double *w, int n, uint64_t samples) {
    uint64_t count[256] = {0};
    double sum = sum_of(w, n);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t ordinal;
        int k = mixture_source(m, i, &ordinal);
        assert_in_range(k, 0, n - 1);
        assert_int_equal(ordinal, count[k]++);
        assert_true(fabs((double)count[k] - (double)(i + 1) * w[k] / sum) < 3);
    }
    for (int k = 0; k < n; k++) {
        assert_int_equal(mixture_count(m, k, samples), count[k]);
        assert_true(fabs((double)count[k] - (double)samples * w[k] / sum) < 3);
    }
}

/* 10,000 steps: the share is within 0.1 % of its weight, or three samples where that is more. */
static void check_steps(const mixture *m, const double *w, int n, uint64_t batch) {
    uint64_t samples = 10000 * batch, dealt = 0;
    double sum = sum_of(w, n);
    for (int k = 0; k < n; k++) {
        uint64_t count = mixture_count(m, k, samples);
        double want = (double)samples * w[k] / sum, allowed = 1e-3 * want;
        assert_true(fabs((double)count - want) <= (allowed < 3 ? 3 : allowed));
        dealt += count;
    }
    assert_int_equal(dealt, samples);
}

static void check_weights(const double *w, int n, uint64_t samples) {
    mixture *m;
    assert_ok(mixture_new(&m, w, NULL, n, e));
    double shares = 0;
    for (int k = 0; k < n; k++) {
        shares += mixture_share(m, k);
        assert_true(fabs(mixture_share(m, k) - w[k] / sum_of(w, n)) < 1e-6);
    }
    assert_true(fabs(shares - 1) < 1e-12);
    deal(m, w, n, samples);
    check_steps(m, w, n, 1);
    check_steps(m, w, n, 96);
    check_steps(m, w, n, 1024);
    mixture_free(m);
}

static void test_shares_of_a_real_mixture(void **state) {
    (void)state;
    check_weights(REAL, ARRAY_LEN(REAL), 400000);
    check_weights((double[]){1}, 1, 1000);
    check_weights((double[]){0.7, 0.3}, 2, 100000);
    check_weights((double[]){1, 1, 1}, 3, 100000);
    check_weights((double[]){0.5, 0.25, 0.25}, 3, 100000); /* whole slots: no fractions */
    check_weights((double[]){1, 2e-7}, 2, 100000);
    check_weights((double[]){0.1, 0.2, 0.7}, 3, 100000);
}

static void test_shares_of_random_mixtures(void **state) {
    (void)state;
    rng_key key = rng_key_named(11, "mixture test");
    uint64_t c = 0;
    for (int trial = 0; trial < 60; trial++) {
        double w[MOST];
        int n = 2 + (int)(rng_u32(key, c++) % (MOST - 1));
        for (int k = 0; k < n; k++) /* over four orders of magnitude */
            w[k] = pow(10, -4 * (double)rng_uniform(key, c++) * (trial % 3 != 0));
        check_weights(w, n, 20000);
    }
}

/* 256 sources, and counts far away. */
static void test_many_sources_far_away(void **state) {
    (void)state;
    double w[256];
    for (int k = 0; k < 256; k++) w[k] = k + 1;
    mixture *m;
    assert_ok(mixture_new(&m, w, NULL, 256, e));
    uint64_t far = UINT64_C(3000000000000000), ordinal, count[256];
    for (int k = 0; k < 256; k++) count[k] = mixture_count(m, k, far);
    for (uint64_t i = 0; i < 100000; i++) {
        int k = mixture_source(m, far + i, &ordinal);
        assert_int_equal(ordinal, count[k]++);
    }
    mixture_free(m);
}

static void test_weights_checked(void **state) {
    (void)state;
    const double bad[][2] = {{1, 0}, {1, -1}, {1, NAN}, {1, INFINITY}, {1, 1e-9}, {1e308, 1e308}};
    for (int i = 0; i < ARRAY_LEN(bad); i++) {
        mixture *m;
        err e = {0};
        assert_int_equal(mixture_new(&m, bad[i], NULL, 2, &e), ST_USAGE);
        assert_non_null(strstr(e.where, "weight"));
    }
}

/* ---- the permutation ---- */

static void test_permutation_visits_all_once(void **state) {
    (void)state;
    const uint64_t sizes[] = {1,    2,    3,     4,     5,     7,     8,     9,     63,   64,
                              65,   97,   100,   127,   128,   129,   1000,  1021,  4095, 4096,
                              4097, 7919, 16383, 16385, 65521, 65536, 65537, 100003};
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        uint64_t n = sizes[i];
        uint8_t *seen = xcalloc(n, 1);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            rng_key key = rng_key_numbered(77 + (uint64_t)i, epoch);
            for (uint64_t x = 0; x < n; x++) {
                uint64_t y = rng_permute(key, n, x);
                assert_true(y < n);
                assert_int_equal(seen[y]++, epoch);
            }
        }
        free(seen);
    }
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Too large to visit: no two of many samples may meet, and they must spread evenly. */
static void test_permutation_of_large_sizes(void **state) {
    (void)state;
    const uint64_t sizes[] = {(UINT64_C(1) << 32) - 1, (UINT64_C(1) << 32) + 1,
                              UINT64_C(1000000000039), (UINT64_C(1) << 48) - 59,
                              (UINT64_C(1) << 62) + 3, UINT64_C(9000000000000000001)};
    enum { SAMPLES = 40000, BINS = 16 };
    uint64_t *out = xcalloc(SAMPLES, sizeof *out);
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        uint64_t n = sizes[i], bins[BINS] = {0};
        rng_key key = rng_key_numbered(5, (uint64_t)i);
        for (uint64_t x = 0; x < SAMPLES; x++) {
            /* from the beginning, and from everywhere */
            uint64_t at = x % 2 ? x : n / SAMPLES * x;
            out[x] = rng_permute(key, n, at);
            assert_true(out[x] < n);
            bins[out[x] / (n / BINS + 1)]++;
        }
        for (int b = 0; b < BINS; b++) assert_in_range(bins[b], 2200, 2800);
        qsort(out, SAMPLES, sizeof *out, ascending);
        for (int x = 1; x < SAMPLES; x++) assert_true(out[x] != out[x - 1]);
    }
    free(out);
}

/* Who gets which slot depends on the given order, not on the list; equal weights, and sums that
 * round. */
static void test_order(void **state) {
    (void)state;
    double forth[MOST], back[MOST];
    int as_listed[MOST], backwards[MOST];
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < MOST; k++) {
            forth[k] = back[MOST - 1 - k] = round ? REAL[k % 24] / 3 : 1;
            as_listed[k] = k;
            backwards[k] = MOST - 1 - k;
        }
        mixture *a, *b;
        assert_ok(mixture_new(&a, forth, as_listed, MOST, e));
        assert_ok(mixture_new(&b, back, backwards, MOST, e));
        for (uint64_t i = 0; i < 40000; i++) {
            uint64_t of_a, of_b;
            int k = mixture_source(a, i, &of_a);
            assert_int_equal(mixture_source(b, i, &of_b), MOST - 1 - k);
            assert_int_equal(of_a, of_b);
        }
        deal(b, back, MOST, 20000);
        assert_true(mixture_share(a, 1) == mixture_share(b, MOST - 2));
        mixture_free(a);
        mixture_free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_shares_of_a_real_mixture),
        cmocka_unit_test(test_shares_of_random_mixtures),
        cmocka_unit_test(test_many_sources_far_away),
        cmocka_unit_test(test_weights_checked),
        cmocka_unit_test(test_permutation_visits_all_once),
        cmocka_unit_test(test_permutation_of_large_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
