/* Random numbers: known answers, moments, quantiles against erfc, golden bits, permutations. */
#include "test.h"

#include "base/rng.h"
#include "base/rng_normal_table.h"
#include "base/status.h"

/* Known-answer vectors of the Random123 distribution (philox4x32, 10 rounds). */
static void test_philox_vectors(void **state) {
    (void)state;
    static const struct {
        uint64_t lo, hi;
        rng_key key;
        uint32_t want[4];
    } V[] = {
        {0, 0, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         UINT64_MAX,
         {{0xffffffff, 0xffffffff}},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x85a308d3243f6a88,
         0x0370734413198a2e,
         {{0xa4093822, 0x299f31d0}},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < ARRAY_LEN(V); i++) {
        uint32_t got[4];
        rng_block(V[i].key, V[i].lo, V[i].hi, got);
        assert_memory_equal(got, V[i].want, sizeof got);
    }
}

static void test_keys_differ(void **state) {
    (void)state;
    rng_key k[6] = {rng_key_named(1, "a"),  rng_key_named(1, "b"),  rng_key_named(2, "a"),
                    rng_key_numbered(1, 2), rng_key_numbered(2, 1), rng_key_numbered(0, 0)};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++) assert_memory_not_equal(&k[i], &k[j], sizeof k[0]);
    rng_key again = rng_key_named(1, "a");
    assert_memory_equal(&again, &k[0], sizeof again);
}

static void test_uniform(void **state) {
    (void)state;
    enum { N = 1 << 20, BINS = 64 };
    rng_key key = rng_key_numbered(7, 0);
    int count[BINS] = {0};
    double sum = 0;
    for (uint64_t i = 0; i < N; i++) {
        float u = rng_uniform(key, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        count[(int)(u * BINS)]++;
    }
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    double chi2 = 0, expect = (double)N / BINS;
    for (int i = 0; i < BINS; i++) chi2 += (count[i] - expect) * (count[i] - expect) / expect;
    assert_true(chi2 < 63 + 6 * sqrt(2 * 63)); /* 63 degrees of freedom */
}

/* The stream's bits at an index, from the definition in rng.c. */
static uint64_t bits_at(rng_key key, uint64_t index) {
    uint32_t r[4];
    rng_block(key, index >> 1, 0, r);
    return index & 1 ? (uint64_t)r[3] << 32 | r[2] : (uint64_t)r[1] << 32 | r[0];
}

/* If z is the quantile of tail probability p, then |erfc(z/sqrt 2)/2 - p| / density is the error in
 * z. A million draws reach every sub-interval of the centre and tails to 5 sigma. */
static void test_normal_against_erfc(void **state) {
    (void)state;
    rng_key key = rng_key_named(3, "quantiles");
    double worst = 0;
    for (uint64_t i = 0; i < 1000000; i++) {
        uint64_t bits = bits_at(key, i);
        double z = rng_normal_q24(key, i) * 0x1p-24;
        assert_true(z == 0 || (z < 0) == (bool)(bits >> 63));
        z = fabs(z);
        double p = (double)(bits & INT64_MAX) * 0x1p-64;
        double density = exp(-z * z / 2) / sqrt(2 * M_PI);
        double error = fabs(erfc(z / sqrt(2)) / 2 - p) / density;
        if (error > worst) worst = error;
    }
    assert_true(worst < 1e-4);
}

/* Every knot, and the middle of every sub-interval, where a chord is farthest from its curve: so
 * also the tails that no number of draws would reach. */
static void test_normal_table(void **state) {
    (void)state;
    int sub = 1 << RNG_NORMAL_SUB_BITS, knots = ARRAY_LEN(RNG_NORMAL_Q24);
    assert_int_equal(knots, (63 - RNG_NORMAL_MIN_EXP) * sub + 1);
    assert_true(RNG_NORMAL_Q24[0] > 6 << 24);
    assert_int_equal(RNG_NORMAL_Q24[knots - 1], 0);
    for (int i = 0; i + 1 < knots; i++) {
        double octave = ldexp(1, i / sub + RNG_NORMAL_MIN_EXP - 64);
        for (int half = 0; half < 2; half++) {
            double p = octave * (1 + (i % sub + half * 0.5) / sub);
            double z =
                (RNG_NORMAL_Q24[i] + (half ? RNG_NORMAL_Q24[i + 1] : RNG_NORMAL_Q24[i])) * 0x1p-25;
            double density = exp(-z * z / 2) / sqrt(2 * M_PI);
            double error = fabs(erfc(z / sqrt(2)) / 2 - p) / density;
            assert_true(error < (half ? 1e-4 : 1e-7));
        }
    }
}

static void test_normal_moments(void **state) {
    (void)state;
    enum { N = 1 << 22 };
    float *x = malloc(N * sizeof *x);
    rng_fill_normal(rng_key_named(1337, "moments"), 0, x, N, 1.0);
    double m[5] = {0}, lag = 0;
    for (int i = 0; i < N; i++) {
        double power = 1;
        for (int k = 1; k <= 4; k++) m[k] += power *= x[i];
        if (i) lag += (double)x[i] * x[i - 1];
    }
    double se = 1 / sqrt(N); /* the powers of a normal have variance 1, 2, 15, 96 */
    assert_true(fabs(m[1] / N) < 5 * se);
    assert_true(fabs(m[2] / N - 1) < 5 * sqrt(2) * se);
    assert_true(fabs(m[3] / N) < 5 * sqrt(15) * se);
    assert_true(fabs(m[4] / N - 3) < 5 * sqrt(96) * se);
    assert_true(fabs(lag / N) < 5 * se);
    free(x);
}

/* Every machine and every later version makes these bits: initial weights depend on them. */
static void test_golden_bits(void **state) {
    (void)state;
    static const int32_t WANT[8] = {1295920,  23743098,  10882764,  -25903709,
                                    -8251995, -29077046, -24414077, 5846804};
    rng_key key = rng_key_named(42, "w");
    for (int i = 0; i < 8; i++) assert_int_equal(rng_normal_q24(key, (uint64_t)i), WANT[i]);
    float x[8];
    rng_fill_normal(key, 0, x, 8, 0.02);
    for (int i = 0; i < 8; i++) assert_true(x[i] == (float)(0.02 * (WANT[i] * 0x1p-24)));
}

/* Any split of a range makes the same values. */
static void test_fill_is_split_free(void **state) {
    (void)state;
    enum { N = 101 };
    rng_key key = rng_key_named(5, "split");
    float whole[N], part[N];
    uint64_t first = ((uint64_t)1 << 33) + 1;
    rng_fill_normal(key, first, whole, N, 0.5);
    for (int cut = 0; cut <= N; cut++) {
        memset(part, 0xff, sizeof part);
        rng_fill_normal(key, first, part, cut, 0.5);
        rng_fill_normal(key, first + (uint64_t)cut, part + cut, N - cut, 0.5);
        assert_memory_equal(part, whole, sizeof whole);
    }
}

static void check_bijection(uint64_t n, rng_key key) {
    uint8_t *seen = calloc(n, 1);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t j = rng_permute(key, n, i);
        assert_true(j < n && !seen[j]);
        seen[j] = 1;
    }
    free(seen);
}

static void test_permutation_is_bijection(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) check_bijection(n, rng_key_numbered(n, 1));
    static const uint64_t LARGE[] = {4095, 4096, 4097, 65536, 65537, 1000003};
    for (int i = 0; i < ARRAY_LEN(LARGE); i++) check_bijection(LARGE[i], rng_key_numbered(1, 2));
    uint64_t huge = ((uint64_t)1 << 63) + 12345; /* the widest network still ends, in range */
    for (uint64_t i = 0; i < 100; i++)
        assert_true(rng_permute(rng_key_numbered(1, 2), huge, huge - 1 - i) < huge);
}

/* Each index lands everywhere equally often over keys, and neighbours part. */
static void test_permutation_mixes(void **state) {
    (void)state;
    enum { N = 10, KEYS = 20000 };
    int count[N][N] = {{0}};
    int adjacent = 0;
    for (uint64_t k = 0; k < KEYS; k++) {
        rng_key key = rng_key_numbered(k, 9);
        uint64_t last = 0;
        for (uint64_t i = 0; i < N; i++) {
            uint64_t j = rng_permute(key, N, i);
            count[i][j]++;
            if (i > 0 && j == last + 1) adjacent++;
            last = j;
        }
    }
    double expect = (double)KEYS / N;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) assert_true(fabs(count[i][j] - expect) < 6 * sqrt(expect));
    assert_true(fabs(adjacent / (double)KEYS - 0.9) <
                0.05); /* expected: (N-1) / N per permutation */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_vectors),
        cmocka_unit_test(test_keys_differ),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal_against_erfc),
        cmocka_unit_test(test_normal_table),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_golden_bits),
        cmocka_unit_test(test_fill_is_split_free),
        cmocka_unit_test(test_permutation_is_bijection),
        cmocka_unit_test(test_permutation_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
