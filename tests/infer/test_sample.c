/* The sampler against distributions computed the plain way: what may never come does not come, what
 * may comes as often as it should (chi-square, fixed seeds). */
#include "test.h"

#include "base/status.h"
#include "infer/sample.h"

enum { V = 9, DRAWS = 20000, PROMPT = 2 /* tokens of what was seen that are no answer */ };

/* Not sorted; two equal, both signs. */
static const float LOGITS[V] = {0.5f, -1.0f, 2.0f, 0.5f, 3.0f, -4.0f, 1.25f, 2.5f, -0.25f};

/* How many tokens are more likely than i (ties: the smaller id first). */
static int rank_of(const double *p, int i) {
    int rank = 0;
    for (int j = 0; j < V; j++) rank += p[j] > p[i] || (p[j] == p[i] && j < i);
    return rank;
}

static void normalise(double *p) {
    double sum = 0;
    for (int i = 0; i < V; i++) sum += p[i];
    for (int i = 0; i < V; i++) p[i] /= sum;
}

/* The definition of each filter, over all tokens, one after the other. */
static void expected(const sample_options *o, const int32_t *seen, int n_seen, double *p) {
    double x[V];
    for (int i = 0; i < V; i++) {
        x[i] = LOGITS[i];
        for (int k = 0; k < n_seen; k++)
            if (seen[k] == i) {
                x[i] = x[i] > 0 ? x[i] / o->repetition_penalty : x[i] * o->repetition_penalty;
                break;
            }
        int times = 0;
        for (int k = PROMPT; k < n_seen; k++) times += seen[k] == i;
        x[i] -= times * o->frequency_penalty + (times > 0) * o->presence_penalty;
        p[i] = exp(x[i] / o->temperature);
    }
    double q[V];
    memcpy(q, p, sizeof q);
    for (int i = 0; i < V; i++)
        if (o->top_k > 0 && rank_of(q, i) >= o->top_k) p[i] = 0;
    normalise(p);
    memcpy(q, p, sizeof q);
    for (int i = 0; i < V; i++) { /* dropped when those before it have the mass already */
        double before = 0;
        for (int j = 0; j < V; j++)
            if (rank_of(q, j) < rank_of(q, i)) before += q[j];
        if (rank_of(q, i) > 0 && before >= o->top_p) p[i] = 0;
    }
    double most = 0;
    for (int i = 0; i < V; i++)
        if (p[i] > most) most = p[i];
    for (int i = 0; i < V; i++)
        if (p[i] < o->min_p * most) p[i] = 0;
    normalise(p);
}

static int32_t pick(sampler *s, uint64_t index, const int32_t *seen, int n_seen) {
    float logits[V];
    memcpy(logits, LOGITS, sizeof logits);
    return sampler_pick(s, logits, index, seen, n_seen, n_seen < PROMPT ? n_seen : PROMPT);
}

static void check_distribution(sample_options o, const int32_t *seen, int n_seen) {
    double p[V], chi = 0;
    int count[V] = {0}, possible = 0;
    if (o.repetition_penalty == 0) o.repetition_penalty = 1;
    expected(&o, seen, n_seen, p);
    sampler *s = sampler_new(&o, V);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t id = pick(s, i, seen, n_seen);
        assert_in_range(id, 0, V - 1);
        count[id]++;
    }
    sampler_free(s);
    for (int i = 0; i < V; i++) {
        if (p[i] == 0 && count[i] > 0) fail_msg("token %d came %d times, never due", i, count[i]);
        if (p[i] == 0) continue;
        possible++;
        double want = DRAWS * p[i];
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    /* mean + 5 sigma of the distribution with possible - 1 degrees of freedom */
    double limit = possible - 1 + 5 * sqrt(2.0 * (possible - 1)) + 3;
    if (chi > limit) fail_msg("chi-square %.1f over %d tokens, limit %.1f", chi, possible, limit);
}

static void test_distributions(void **state) {
    (void)state;
    const sample_options cases[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 1, .top_p = 1, .seed = 99},
        {.temperature = 0.5, .top_p = 1},
        {.temperature = 3, .top_p = 1},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1, .top_k = 3},
        {.temperature = 2, .top_p = 1, .top_k = 5}, /* cuts between the two equal ones */
        {.temperature = 1, .top_p = 1, .top_k = 100},
        {.temperature = 1, .top_p = 0},
        {.temperature = 1, .top_p = 1e-9},
        {.temperature = 1, .top_p = 0.3},
        {.temperature = 1, .top_p = 0.6},
        {.temperature = 2, .top_p = 0.9},
        {.temperature = 1, .top_p = 0.999999},
        {.temperature = 1, .top_p = 1, .min_p = 0.1},
        {.temperature = 1.5, .top_p = 1, .min_p = 0.5},
        {.temperature = 1, .top_p = 1, .min_p = 1},
        {.temperature = 1.5, .top_p = 0.8, .top_k = 4, .min_p = 0.2},
        {.temperature = 4, .top_p = 0.7, .top_k = 6, .min_p = 0.3, .seed = 5},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) check_distribution(cases[i], NULL, 0);
}

/* Tokens seen twice are punished once; negative logits get smaller too. */
static void test_repetition_penalty(void **state) {
    (void)state;
    const int32_t seen[] = {4, 1, 4, 4, 7};
    check_distribution((sample_options){.temperature = 1, .top_p = 1, .repetition_penalty = 1.5},
                       seen, 5);
    check_distribution(
        (sample_options){.temperature = 1, .top_p = 0.8, .top_k = 5, .repetition_penalty = 3}, seen,
        5);
    check_distribution((sample_options){.temperature = 1, .top_p = 1, .repetition_penalty = 0.5},
                       seen, 5);
    /* A pick does not remember what the one before it saw. */
    sampler *s = sampler_new(&(sample_options){.top_p = 1, .repetition_penalty = 100}, V);
    assert_int_equal(pick(s, 0, seen, 5), 2); /* 4 and 7 are out */
    assert_int_equal(pick(s, 0, seen, 0), 4);
    sampler_free(s);
}

/* Of the answer alone, 4 three times and 7 once; of the prompt 4 and 1. */
static void test_presence_and_frequency(void **state) {
    (void)state;
    const int32_t seen[] = {4, 1, 4, 4, 7, 4};
    check_distribution((sample_options){.temperature = 1, .top_p = 1, .presence_penalty = 1.5},
                       seen, 6);
    check_distribution((sample_options){.temperature = 1, .top_p = 1, .frequency_penalty = 0.7},
                       seen, 6);
    check_distribution((sample_options){.temperature = 1, .top_p = 1, .frequency_penalty = -0.5},
                       seen, 6);
    check_distribution((sample_options){.temperature = 1.5,
                                        .top_p = 0.9,
                                        .presence_penalty = -1,
                                        .frequency_penalty = 0.7,
                                        .repetition_penalty = 1.3},
                       seen, 6);
}

static void test_greedy(void **state) {
    (void)state;
    const sample_options greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    sampler *s = sampler_new(&greedy, V);
    for (uint64_t i = 0; i < 50; i++) assert_int_equal(pick(s, i, NULL, 0), 4);
    float equal[V] = {1, 2, 2, 2};
    assert_int_equal(sampler_pick(s, equal, 0, NULL, 0, 0), 1);
    sampler_free(s);
    sample_options one = {.temperature = 9, .top_k = 1, .top_p = 1, .repetition_penalty = 1};
    s = sampler_new(&one, V);
    for (uint64_t i = 0; i < 50; i++) assert_int_equal(pick(s, i, NULL, 0), 4);
    sampler_free(s);
}

/* The draw is a function of seed and index: order and history do not matter. */
static void test_draws(void **state) {
    (void)state;
    sample_options o = {.temperature = 2, .top_p = 1, .repetition_penalty = 1, .seed = 3};
    sampler *a = sampler_new(&o, V), *b = sampler_new(&o, V);
    o.seed = 4;
    sampler *c = sampler_new(&o, V);
    int32_t want[200];
    int other = 0, changes = 0;
    for (int i = 0; i < 200; i++) want[i] = pick(a, (uint64_t)i, NULL, 0);
    for (int i = 199; i >= 0; i--) {
        assert_int_equal(pick(b, (uint64_t)i, NULL, 0), want[i]);
        other += pick(c, (uint64_t)i, NULL, 0) != want[i];
        changes += i > 0 && want[i] != want[i - 1];
    }
    assert_true(other > 100 && changes > 100);
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
}

/* ---- large vocabularies ---- */

enum { WIDE = 4001 };

static int by_value(const void *a, const void *b) {
    const float *x = *(const float *const *)a, *y = *(const float *const *)b;
    return *x != *y ? (*x < *y ? 1 : -1) : (x > y) - (x < y);
}

/* Marks what the filters keep, by sorting everything; the tokens beside an end that rounding could
 * move are left open (2). */
static void mark_kept(const sample_options *o, const float *logits, char *kept) {
    const float *order[WIDE];
    double p[WIDE], all = 0, before = 0;
    for (int i = 0; i < WIDE; i++) order[i] = &logits[i];
    qsort(order, WIDE, sizeof order[0], by_value);
    int k = o->top_k > 0 ? o->top_k : WIDE;
    for (int i = 0; i < WIDE; i++) {
        p[i] = exp(((double)*order[i] - (double)*order[0]) / o->temperature);
        if (i < k) all += p[i];
    }
    memset(kept, 0, WIDE);
    for (int i = 0; i < k && i < WIDE; before += p[i++]) {
        double share = before / all;
        bool in = (o->top_p >= 1 || share < o->top_p) && p[i] >= o->min_p;
        bool open = fabs(share - o->top_p) < 1e-5 || fabs(p[i] / o->min_p - 1) < 1e-5;
        kept[order[i] - logits] = open ? 2 : in;
    }
}

static void check_kept(const sample_options *o, const float *logits) {
    static float copy[WIDE];
    static char kept[WIDE], came[WIDE];
    sampler *s = sampler_new(o, WIDE);
    int n = 0, missing = 0;
    mark_kept(o, logits, kept);
    memset(came, 0, sizeof came);
    for (int i = 0; i < WIDE; i++) n += kept[i] == 1;
    for (uint64_t i = 0; i < 400; i++) {
        memcpy(copy, logits, sizeof copy);
        int32_t id = sampler_pick(s, copy, i, NULL, 0, 0);
        assert_in_range(id, 0, WIDE - 1);
        if (!kept[id]) fail_msg("token %d came, which the filters drop", id);
        came[id] = 1;
    }
    for (int i = 0; i < WIDE; i++) missing += kept[i] == 1 && !came[i];
    if (n <= 8 && o->temperature >= 5) assert_int_equal(missing, 0);
    sampler_free(s);
}

static void test_large_vocabularies(void **state) {
    (void)state;
    static float normal[WIDE], rough[WIDE], equal[WIDE], far[WIDE];
    for (int i = 0; i < WIDE; i++) {
        normal[i] = (float)rng_normal_q24(rng_key_numbered(1, 2), (uint64_t)i) / 16777216.0f * 3;
        rough[i] = (float)(int)normal[i]; /* many are equal */
        equal[i] = -2.5f;
        far[i] = i == 1234 ? 80.0f : i == 7 ? 79.0f : i % 3 ? -1e30f : -INFINITY;
    }
    const sample_options cases[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 0.7, .top_p = 0.9, .min_p = 0.05},
        {.temperature = 1, .top_p = 0.5, .top_k = 100},
        {.temperature = 5, .top_p = 1, .top_k = 7},
        {.temperature = 5, .top_p = 0.7, .top_k = 8},
        {.temperature = 100, .top_p = 0.001},
        {.temperature = 100, .top_p = 0.9},
        {.temperature = 1e-5, .top_p = 0.9},
        {.temperature = 1e-300, .top_p = 1},
        {.temperature = 2, .top_p = 1, .min_p = 0.2},
        {.temperature = 1, .top_p = 1, .top_k = 1},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        check_kept(&cases[i], normal);
        check_kept(&cases[i], rough);
        check_kept(&cases[i], equal);
        check_kept(&cases[i], far);
    }
}

/* Logits that are not numbers never come; without one that is, there is no token. */
static void test_not_finite(void **state) {
    (void)state;
    for (int greedy = 0; greedy < 2; greedy++) {
        sample_options o = {.temperature = greedy ? 0 : 1, .top_p = 0.99, .repetition_penalty = 1};
        sampler *s = sampler_new(&o, V);
        for (uint64_t i = 0; i < 50; i++) {
            float some[V] = {NAN, -INFINITY, NAN, 1, NAN, NAN, -INFINITY, NAN, NAN};
            assert_int_equal(sampler_pick(s, some, i, NULL, 0, 0), 3);
        }
        float none[V];
        for (int i = 0; i < V; i++) none[i] = i % 2 ? NAN : -INFINITY;
        assert_int_equal(sampler_pick(s, none, 0, NULL, 0, 0), -1);
        none[4] = INFINITY;
        assert_int_equal(sampler_pick(s, none, 0, NULL, 0, 0), -1);
        sampler_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_vocabularies),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_distributions),
                                       cmocka_unit_test(test_repetition_penalty),
                                       cmocka_unit_test(test_presence_and_frequency),
                                       cmocka_unit_test(test_greedy),
                                       cmocka_unit_test(test_draws)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
