/* Calibration from planted times: terms of products, shares by size, and what ranks do to each other. */
#include "test.h"

#include "base/arena.h"
#include "plan/clock/clock.h"
#include "plan/clock/roofline.h"
#include "train/bench/rates.h"
#include "train/bench/together.h"

static const double planted[CLUSTER_TERMS] = {
    [TERM_CALL] = 3e-6,    [TERM_FLOP] = 1e-12, [TERM_FIRST] = 2e-10,  [TERM_SECOND] = 0,
    [TERM_RESULT] = 5e-10, [TERM_FAR] = 2e-11,  [TERM_FARTHER] = 3e-11};

/* z: m, n, k, and which parts of the second operand's bytes are far and farther. */
static rate_sample product(const double z[5]) {
    double m = z[0], n = z[1], k = z[2], far = z[3], farther = z[4];
    rate_sample x = {.kind = OP_LINEAR,
                     .format = DT_BF16,
                     .has_terms = true,
                     .count = {[TERM_CALL] = 1,
                               [TERM_FLOP] = 2 * m * n * k,
                               [TERM_FIRST] = m * k,
                               [TERM_SECOND] = n * k,
                               [TERM_RESULT] = m * n,
                               [TERM_FAR] = far * 4 * n * k,
                               [TERM_FARTHER] = farther * 4 * n * k}};
    x.ideal = x.count[TERM_FLOP] / 2e12;
    return x;
}

static const cluster_rate *rate_of(const cluster *c, const char *of) {
    for (int i = 0; i < c->n_rates; i++)
        if (strcmp(c->rate[i].of, of) == 0) return &c->rate[i];
    fail_msg("no rate of %s", of);
    return NULL;
}

static const double sizes[][5] = {
    {64, 64, 64, 0, 0},     {128, 512, 256, 1, 0},  {1024, 256, 64, 1, 1}, {512, 2048, 32, 1, 0.5},
    {2048, 128, 512, 0, 0}, {256, 256, 1024, 1, 0}, {64, 4096, 128, 1, 1}, {4096, 64, 2048, 1, 0.2},
    {64, 1024, 256, 0, 0},  {128, 2048, 512, 1, 1}, {32, 2048, 1024, 1, 0}};

/* Times that are sums of terms are found again, and calls of sizes between and beyond those measured are told. */
static void test_terms(void **state) {
    (void)state;
    rate_samples s = {0};
    cluster c = {.memory_bytes_per_s = 1e11};
    for (int round = 0; round < RATES_ROUNDS; round++) {
        rates_begin_round(&s);
        for (int i = 0; i < ARRAY_LEN(sizes); i++) {
            rate_sample x = product(sizes[i]);
            double t = roofline_sum(planted, x.count);
            rates_add_sample(&s, x, round == 1 ? 7 * t : t); /* a round that others disturbed */
        }
    }
    rates_add_to(&c, &s);
    const cluster_rate *r = rate_of(&c, "linear");
    static const double others[][5] = {
        {300, 300, 300, 0, 0}, {8192, 512, 32, 1, 0}, {32, 32, 8192, 1, 1}, {64, 512, 512, 1, 1}};
    for (int i = 0; i < ARRAY_LEN(others); i++) {
        rate_sample x = product(others[i]);
        double ideal = roofline_sum(r->term, x.count), seconds = roofline_sum(planted, x.count);
        double said = ideal / cluster_curve_at(&r->share, ideal * 1e6, 1);
        if (fabs(said / seconds - 1) > 0.02)
            fail_msg("%g us are told as %g", seconds * 1e6, said * 1e6);
    }
    for (int i = 0; i < CLUSTER_TERMS; i++) assert_true(r->term[i] >= 0);
    rates_free(&s);
}

/* Fewer calls than terms have none: the roofline and its share count. */
static void test_few(void **state) {
    (void)state;
    rate_samples s = {0};
    cluster c = {.memory_bytes_per_s = 1e11};
    rates_begin_round(&s);
    for (int i = 0; i < CLUSTER_TERMS - 1; i++) {
        rate_sample x = product(sizes[i]);
        rates_add_sample(&s, x, 2 * x.ideal);
    }
    rates_add_to(&c, &s);
    const cluster_rate *r = rate_of(&c, "linear");
    for (int i = 0; i < CLUSTER_TERMS; i++) assert_true(r->term[i] == 0);
    for (int i = 0; i < r->share.n; i++) assert_true(fabs(r->share.y[i] - 0.5) < 1e-12);
    rates_free(&s);
}

/* Calls of two sizes, however often, have no terms: those of others would be guessed. */
static void test_alike(void **state) {
    (void)state;
    rate_samples s = {0};
    cluster c = {.memory_bytes_per_s = 1e11};
    rates_begin_round(&s);
    for (int i = 0; i < 4 * CLUSTER_TERMS; i++) {
        rate_sample x = product((double[]){64 << i % 2, 64, 64, 0, 0});
        rates_add_sample(&s, x, 2 * x.ideal);
    }
    rates_add_to(&c, &s);
    for (int i = 0; i < CLUSTER_TERMS; i++) assert_true(rate_of(&c, "linear")->term[i] == 0);
    rates_free(&s);
}

/* One op of one model that was slow does not count for all others of its size. */
static void test_outlier(void **state) {
    (void)state;
    rate_samples s = {0};
    cluster c = {.memory_bytes_per_s = 1e11};
    rates_begin_round(&s);
    for (int i = 0; i < 5; i++) {
        rate_sample x = {.kind = OP_ADD, .format = DT_F32, .ideal = 1e-4};
        rates_add_sample(&s, x, i == 2 ? 1e-2 : 2e-4);
    }
    rates_add_to(&c, &s);
    const cluster_rate *r = rate_of(&c, "add");
    assert_int_equal(r->share.n, 1);
    assert_true(fabs(r->share.x[0] - 100) < 1e-9 && fabs(r->share.y[0] - 0.5) < 1e-12);
    rates_free(&s);
}

/* What few far bytes seem to take is not believed beyond some times of what memory takes. */
static void test_far_limit(void **state) {
    (void)state;
    rate_samples s = {0};
    cluster c = {.memory_bytes_per_s = 1e11};
    rates_begin_round(&s);
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        const double *z = sizes[i];
        rate_sample x = product((double[]){z[0], z[1], z[2], 0, 0});
        x.count[TERM_FAR] = i % 2 ? 8 : 0;
        rates_add_sample(&s, x, roofline_sum(planted, x.count) * (i % 2 ? 1.5 : 1));
    }
    rates_add_to(&c, &s);
    double far = rate_of(&c, "linear")->term[TERM_FAR];
    assert_true(far > 0 && far < 1.001 * 4 / c.memory_bytes_per_s);
    rates_free(&s);
}

/* An op that hands on what it got takes no time; its share is one that a file may have. */
static void test_nothing(void **state) {
    (void)state;
    rate_samples s = {0};
    cluster c = {.memory_bytes_per_s = 1e11};
    rates_begin_round(&s);
    rates_add_sample(&s, (rate_sample){.kind = OP_ADD, .format = DT_F32, .ideal = 1e-3}, 1e-8);
    rates_add_to(&c, &s);
    assert_true(rate_of(&c, "add")->share.y[0] == CLUSTER_MOST_IN_CACHE);
    rates_free(&s);
}

/* What the clock says with some guess leads to that guess, also where kernels are slower by the same factor alone and together, and
 * the rest longer by the same time. */
static void test_together(void **state) {
    (void)state;
    enum { PAIRS = 6, BATCH = 212, LAYERS = 2 };
    together_pair pairs[PAIRS];
    cluster c = {.node = {1e10, 1e-6, 1}, .network = {1e10, 1e-6, 1}};
    for (int i = 0; i < PAIRS; i++) {
        together_pair *p = &pairs[i];
        double size = i + 1;
        *p = (together_pair){.kind = i % 2 ? TOGETHER_LAYERS : TOGETHER_BATCH,
                             .alone = {0.3 * size, 0.2 * size},
                             .said_alone = {0.1 * size, 0.1 * size}};
        for (int g = 0; g < TOGETHER_GUESSES; g++)
            p->said[g] = (together_time){p->said_alone.kernels * (1.1 + 0.001 * g * size),
                                         p->said_alone.rest + 0.002 * g};
        together_time said = p->said[i % 2 ? LAYERS : BATCH];
        p->together = (together_time){said.kernels * 3, said.rest + 0.1 * size};
    }
    together_fit(&c, pairs, PAIRS);
    assert_true(c.node.reached == 0.5 && c.straggle == 0.01 && fabs(c.contention - 0.2) < 1e-12);
    assert_true(c.node.latency_s == 3e-6 && c.network.latency_s == 3e-6);
    /* what was not measured stays */
    c.contention = 0.7;
    pairs[0] = pairs[1];
    together_fit(&c, pairs, 1);
    assert_true(c.contention == 0.7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terms),   cmocka_unit_test(test_few),
        cmocka_unit_test(test_nothing), cmocka_unit_test(test_alike),
        cmocka_unit_test(test_outlier), cmocka_unit_test(test_far_limit),
        cmocka_unit_test(test_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
