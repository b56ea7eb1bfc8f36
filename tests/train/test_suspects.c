/* Suspects: repetition against a slow count over all runs, and ranking with planted documents among
 * ordinary ones. */
#include "test.h"

#include "base/arena.h"
#include "base/rng.h"
#include "train/events.h"

static int below(int n, uint64_t stream, int64_t counter) {
    return (int)(mix64(stream << 32 ^ mix64((uint64_t)counter)) % (uint64_t)n);
}

/* ---- repetition ---- */

/* By the definition: for every start and period, how far it repeats. O(13 n^2). */
static double slow_share(const int32_t *ids, int64_t n) {
    uint8_t *in = xcalloc((size_t)n + 1, 1);
    int64_t count = 0;
    for (int64_t first = 0; first < n; first++)
        for (int64_t period = 1; period <= 13; period++) {
            int64_t end = first + period;
            while (end < n && ids[end] == ids[end - period]) end++;
            if (end - first >= 32 * period) memset(in + first, 1, (size_t)(end - first));
        }
    for (int64_t i = 0; i < n; i++) count += in[i];
    free(in);
    return n ? (double)count / (double)n : 0;
}

static void put_repeats(int32_t *ids, int64_t first, int period, int64_t n) {
    for (int64_t i = 0; i < n; i++) ids[first + i] = 1000 + (int32_t)(i % period);
}

static void test_share_of_known_runs(void **state) {
    (void)state;
    int32_t ids[1000];
    for (int period = 1; period <= 14; period++) {
        for (int less = 0; less <= 1; less++) {
            int64_t n = 32 * period - less;
            for (int i = 0; i < ARRAY_LEN(ids); i++) ids[i] = i;
            put_repeats(ids, 100, period, n);
            double want = less || period > 13 ? 0 : (double)n / 1000;
            if (suspects_repeated_share(ids, 1000) != want)
                fail_msg("period %d, %d ids", period, (int)n);
        }
    }
    put_repeats(ids, 0, 7, 1000);
    assert_true(suspects_repeated_share(ids, 1000) == 1);
    assert_true(suspects_repeated_share(ids, 0) == 0);
    assert_true(suspects_repeated_share(ids, 31) == 0);
    put_repeats(ids, 0, 1, 32);
    assert_true(suspects_repeated_share(ids, 32) == 1);
}

/* Runs that touch, overlap and lie at the edges, of few different ids. */
static void test_share_equals_the_slow_count(void **state) {
    (void)state;
    int32_t ids[400];
    for (uint64_t round = 0; round < 200; round++) {
        int n = 1 + below(400, round, 0), vocab = 1 + (int)(round % 3);
        for (int i = 0; i < n; i++) ids[i] = below(vocab, round, 1 + i);
        for (int k = 0; k < 4; k++) {
            int first = below(n, round, 1000 + k), period = 1 + (int)(round % 5);
            for (int i = first + period; i < n && i < first + 170; i++) ids[i] = ids[i - period];
        }
        double got = suspects_repeated_share(ids, n), want = slow_share(ids, n);
        if (got != want) fail_msg("round %d: %g, not %g", (int)round, got, want);
    }
}

/* ---- ranking ---- */

enum { T = 512, ROWS = 8 };

static loader_span span_of(uint64_t document, uint64_t first_tok, int row_first, int n) {
    return (loader_span){.set = "shards/train",
                         .shard = "shard-00000.bin",
                         .place = {.document = document,
                                   .first_tok = first_tok,
                                   .end_tok = first_tok + (uint64_t)n,
                                   .source = "crawl.jsonl",
                                   .line = (uint32_t)document + 1,
                                   .score = NAN},
                         .first_tok = first_tok,
                         .end_tok = first_tok + (uint64_t)n,
                         .row_first = row_first};
}

/* Ordinary text: no repeats, 3 nats a token with some noise. */
static void put_ordinary(int row, int32_t *ids, int32_t *targets, float *nll) {
    for (int t = 0; t < T; t++) {
        ids[t] = below(5000, 7, row * T + t);
        targets[t] = 1;
        nll[t] = 3 + (float)below(100, 8, row * T + t) / 50 - 1;
    }
}

/* Eight rows of four documents; `plant` changes document 2 of row 5, ids 256..383. */
static suspects *make_step(void (*plant)(int32_t *ids, float *nll)) {
    suspects *s = suspects_new();
    int32_t ids[T], targets[T];
    float nll[T];
    for (int row = 0; row < ROWS; row++) {
        char source[] = "crawl.jsonl";
        loader_span spans[4];
        put_ordinary(row, ids, targets, nll);
        for (int k = 0; k < 4; k++)
            spans[k] =
                span_of((uint64_t)(row * 4 + k), (uint64_t)(row * T + k * 128), k * 128, 128);
        for (int k = 0; k < 4; k++) spans[k].place.source = source;
        if (row == 5) plant(ids + 256, nll + 256);
        suspects_add_row(s, 1000 + (uint64_t)row, row, T, ids, targets, nll, spans, 4);
        memset(spans, 0xff, sizeof spans); /* nothing of the caller is kept */
        memset(source, 'x', sizeof source - 1);
    }
    return s;
}

static void plant_one_token(int32_t *ids, float *nll) {
    put_repeats(ids, 0, 1, 128);
    for (int i = 8; i < 128; i++) nll[i] = 0.1f; /* the model has seen through it */
}

static void plant_spans(int32_t *ids, float *nll) {
    put_repeats(ids, 10, 3, 100);
    nll[0] = 4;
}

/* Nothing repeats, but no text looks so. */
static void plant_random_bytes(int32_t *ids, float *nll) {
    for (int i = 0; i < 128; i++) {
        ids[i] = below(256, 9, i);
        nll[i] = 7;
    }
}

static void plant_nan(int32_t *ids, float *nll) {
    ids[5] = 1;
    nll[5] = NAN;
}

static void expect_planted_first(void (*plant)(int32_t *ids, float *nll)) {
    suspects *s = make_step(plant);
    int n;
    const suspect *ranked = suspects_ranked(s, &n);
    assert_int_equal(n, 32);
    assert_int_equal(ranked[0].span.place.document, 22);
    assert_int_equal(ranked[0].row, 5);
    assert_int_equal(ranked[0].sample, 1005);
    assert_true(ranked[0].score > 2 * ranked[1].score && ranked[0].score > 10);
    assert_string_equal(ranked[0].span.place.source, "crawl.jsonl");
    suspects_free(s);
}

static void test_planted_documents_come_first(void **state) {
    (void)state;
    expect_planted_first(plant_one_token);
    expect_planted_first(plant_spans);
    expect_planted_first(plant_random_bytes);
    expect_planted_first(plant_nan);
}

/* A tail of two tokens with a high loss is no reason. */
static void test_few_targets_count_less(void **state) {
    (void)state;
    int32_t ids[T], targets[T];
    float nll[T];
    int n;
    suspects *s = suspects_new();
    for (int row = 0; row < ROWS; row++) {
        put_ordinary(row, ids, targets, nll);
        for (int t = 0; t < 2 && row == 6; t++) nll[t] = 6;
        for (int t = 2; t < T && row == 3; t++) nll[t] += 2;
        const loader_span spans[] = {span_of((uint64_t)row, 0, 0, 2),
                                     span_of(100 + (uint64_t)row, 2, 2, T)};
        suspects_add_row(s, (uint64_t)row, row, T, ids, targets, nll, spans, 2);
    }
    assert_int_equal(suspects_ranked(s, &n)[0].span.place.document, 103);
    assert_int_equal(suspects_ranked(s, &n)[0].n_targets, T - 2);
    suspects_free(s);
}

static void test_without_targets_and_rows(void **state) {
    (void)state;
    suspects *s = suspects_new();
    int n = -1;
    suspects_ranked(s, &n);
    assert_int_equal(n, 0);
    json_t *list = events_documents(s, 5);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    int32_t ids[T], targets[T];
    float nll[T];
    put_ordinary(0, ids, targets, nll);
    for (int t = 0; t < T; t++) targets[t] = LOADER_IGNORE;
    loader_span spans[] = {span_of(3, 0, 0, T + 1), span_of(4, 0, T, 1)};
    suspects_add_row(s, 0, 0, T, ids, targets, nll, spans, 2);
    const suspect *ranked = suspects_ranked(s, &n);
    assert_int_equal(n, 1);
    assert_true(isnan(ranked[0].loss) && ranked[0].score == 0);
    suspects_free(s);
}

static void test_json(void **state) {
    (void)state;
    suspects *s = make_step(plant_one_token);
    json_t *list = events_documents(s, 3), *first = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(json_integer_value(json_object_get(first, "document")), 22);
    assert_int_equal(json_integer_value(json_object_get(first, "line")), 23);
    assert_int_equal(json_integer_value(json_object_get(first, "first_tok")), 5 * T + 256);
    assert_int_equal(json_integer_value(json_object_get(first, "row")), 5);
    assert_string_equal(json_string_value(json_object_get(first, "shard")), "shard-00000.bin");
    assert_true(json_is_null(json_object_get(first, "id")));
    assert_true(json_number_value(json_object_get(first, "repeated")) == 1);
    assert_true(json_number_value(json_object_get(first, "loss")) < 0.4);
    json_decref(list);
    suspects_free(s);
}

/* A file of others does not say which document it is, nor where its text was. */
static void test_json_of_unknown_places(void **state) {
    (void)state;
    int32_t ids[T], targets[T];
    float nll[T];
    put_ordinary(0, ids, targets, nll);
    loader_span span = span_of(UINT64_MAX, 0, 0, T);
    span.place.source = "";
    span.place.line = 0;
    suspects *s = suspects_new();
    suspects_add_row(s, 0, 0, T, ids, targets, nll, &span, 1);
    json_t *list = events_documents(s, 1), *first = json_array_get(list, 0);
    assert_true(json_is_null(json_object_get(first, "document")));
    assert_true(json_is_null(json_object_get(first, "source")));
    assert_true(json_is_null(json_object_get(first, "line")));
    json_decref(list);
    suspects_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share_of_known_runs),
        cmocka_unit_test(test_share_equals_the_slow_count),
        cmocka_unit_test(test_planted_documents_come_first),
        cmocka_unit_test(test_few_targets_count_less),
        cmocka_unit_test(test_without_targets_and_rows),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_unknown_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
