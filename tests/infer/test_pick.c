/* What the emulated GPU picks from rows of logits is what the host's sampler picks. */
#include "test.h"

#include "infer/sample.h"

enum { ROWS = 24, GAP = 3 };

/* Random logits; of some rows many are equal, -0, or cannot come. */
static void fill_rows(float *logits, int V, uint64_t seed) {
    rng_key key = rng_key_named(seed, "logits");
    for (int b = 0; b < ROWS; b++)
        for (int i = 0; i < V + GAP; i++) {
            uint64_t at = (uint64_t)b * 100000 + (uint64_t)i;
            float x = (float)((rng_uniform(key, at) - 0.5) * (b % 3 == 0 ? 60 : 6));
            if (b % 4 == 1) x = roundf(x);
            if (b % 4 == 2 && rng_u32(key, ~at) % 3 == 0) x = -INFINITY;
            if (b % 8 == 3 && rng_u32(key, ~at) % 7 == 0) x = NAN;
            logits[b * (V + GAP) + i] = i < V ? x : 1e9f; /* those of padding are no token's */
        }
}

static int32_t pick_on_host(const sample_options *o, const float *row, int V, uint64_t index,
                            pick_rule *rule) {
    sampler *s = sampler_new(o, V);
    float *copy = malloc(sizeof *copy * (size_t)V);
    memcpy(copy, row, sizeof *copy * (size_t)V);
    assert_true(sampler_rule(s, index, rule));
    int32_t id = sampler_pick(s, copy, index, NULL, 0, 0);
    free(copy);
    sampler_free(s);
    return id;
}

static int check_rows(dev *d, int V, uint64_t seed, const sample_options *o, int n_options) {
    size_t bytes = sizeof(float) * (size_t)(ROWS * (V + GAP));
    float *logits = malloc(bytes);
    void *there;
    pick_rule rule[ROWS];
    int32_t want[ROWS], ids[ROWS];
    int kinds = 0;
    err e = {0};
    fill_rows(logits, V, seed);
    for (int b = 0; b < ROWS; b++)
        want[b] = pick_on_host(&o[(b + (int)seed) % n_options], logits + b * (V + GAP), V,
                               seed * ROWS + (uint64_t)b, &rule[b]);
    assert_int_equal(dev_reserve(d, &there, bytes, "logits", &e), ST_OK);
    dev_write(d, there, logits, bytes);
    pick_rows(d, there, V + GAP, ROWS, V, rule, ids);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
    for (int b = 0; b < ROWS; b++) {
        if (ids[b] != want[b])
            fail_msg("V %d, seed %d, row %d: %d, not %d", V, (int)seed, b, ids[b], want[b]);
        kinds += b > 0 && ids[b] != ids[b - 1];
    }
    dev_release(d, there, bytes);
    free(logits);
    return kinds;
}

static void test_same_tokens(void **state) {
    (void)state;
    const sample_options o[] = {
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 5},
        {.temperature = 0.7, .top_k = 9, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 3, .top_p = 0.8, .repetition_penalty = 1},
        {.temperature = 2, .top_k = 30, .top_p = 0.5, .min_p = 0.02, .repetition_penalty = 1},
        {.temperature = 1.5, .top_p = 1, .min_p = 0.3, .repetition_penalty = 1},
        {.temperature = 50, .top_k = 100000, .top_p = 0, .repetition_penalty = 1},
        {.temperature = 1e-9, .top_p = 0.999, .repetition_penalty = 1},
        {.temperature = 100, .top_k = 700, .top_p = 0.97, .repetition_penalty = 1, .seed = 9}};
    const int V[] = {1, 2, 31, 700, 4001};
    dev *d;
    err e = {0};
    if (dev_open(&d, DEV_CUDA, 1, &e) != ST_OK) fail_msg("%s", e.message);
    assert_true(pick_is_on_device(d));
    for (int v = 0; v < ARRAY_LEN(V); v++)
        for (uint64_t seed = 0; seed < (V[v] > 1000 ? 3 : 9); seed++) {
            int kinds = check_rows(d, V[v], seed, o, ARRAY_LEN(o));
            assert_true(V[v] < 31 || kinds > ROWS / 2);
        }
    dev_close(d);
}

/* A row whose best is no number, and one with nothing to choose from. */
static void test_no_distribution(void **state) {
    (void)state;
    enum { V = 40 };
    static float logits[3 * V];
    const pick_rule rule[3] = {{.temperature = 1, .top_p = 0.5}, {.top_p = 1}, {.top_p = 1}};
    int32_t ids[3];
    void *there;
    dev *d;
    err e = {0};
    for (int i = 0; i < 3 * V; i++) logits[i] = i < V ? -INFINITY : 1;
    logits[V + 7] = INFINITY;
    if (dev_open(&d, DEV_CUDA, 1, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(dev_reserve(d, &there, sizeof logits, "logits", &e), ST_OK);
    dev_write(d, there, logits, sizeof logits);
    pick_rows(d, there, V, 3, V, rule, ids);
    assert_int_equal(ids[0], -1);
    assert_int_equal(ids[1], -1);
    assert_int_equal(ids[2], 0);
    dev_release(d, there, sizeof logits);
    dev_close(d);
}

/* Who looks at the tokens so far has no rule. */
static void test_rules(void **state) {
    (void)state;
    const sample_options with[] = {{.repetition_penalty = 1.1},
                                   {.repetition_penalty = 1, .presence_penalty = 1},
                                   {.repetition_penalty = 1, .frequency_penalty = -1},
                                   {.repetition_penalty = 1, .no_repeat_ngram = 3}};
    pick_rule rule;
    for (int i = 0; i < ARRAY_LEN(with); i++) {
        sampler *s = sampler_new(&with[i], 4);
        assert_false(sampler_rule(s, 0, &rule));
        sampler_free(s);
    }
}

int main(void) {
    setenv("ATHANOR_CUDA", "emulated", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens),
        cmocka_unit_test(test_no_distribution),
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
