/* Records of what a teacher said: what is packed is unpacked, and bytes that are not a record are refused. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "train/lessons.h"

enum { T = 5, V = 300 };

static void fill(float *logits, int64_t vocab) {
    rng_key key = rng_key_named(3, "lessons");
    for (int64_t i = 0; i < T * vocab; i++)
        logits[i] = (float)(8 * rng_uniform(key, (uint64_t)i) - 4);
    logits[7] = logits[9] = logits[11] = 5; /* three are equal */
    for (int64_t v = 0; v < vocab; v += 2) logits[2 * vocab + v] = -INFINITY;
}

/* The k largest log-probabilities, of equal ones the first, each once. */
static void check_token(const float *logits, int64_t vocab, int k, const float *logp,
                        const int32_t *tokens) {
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v]);
    float least = INFINITY;
    for (int i = 0; i < k; i++) {
        assert_true(i == 0 || tokens[i] > tokens[i - 1]);
        float x = logits[tokens[i]];
        double want = (double)x - log(sum);
        least = x < least ? x : least;
        if (isinf(x))
            assert_true(logp[i] == x);
        else
            assert_true(fabs((double)logp[i] - want) <= 0x1p-11 * fabs(want) + 1e-6);
    }
    int64_t larger = 0;
    for (int64_t v = 0; v < vocab; v++) larger += logits[v] > least;
    assert_true(larger < k);
}

static void check(int64_t vocab, int k) {
    lesson_format f = lesson_format_of(T, k, vocab);
    float *logits = xcalloc((size_t)(T * vocab), sizeof *logits);
    float *logp = xcalloc((size_t)(T * k), sizeof *logp);
    int32_t *tokens = xcalloc((size_t)(T * k), sizeof *tokens);
    uint8_t *record = xcalloc(f.bytes, 1);
    fill(logits, vocab);
    lessons_pack(&f, logits, vocab, record);
    err e = {0};
    assert_int_equal(lessons_unpack(&f, record, vocab, logp, tokens, &e), ST_OK);
    for (int t = 0; t < T; t++)
        check_token(logits + t * vocab, vocab, k, logp + t * k, tokens + t * k);
    if (k == 2) assert_true(tokens[0] == 7 && tokens[1] == 9);
    for (size_t at = 0; at < f.bytes; at += f.bytes / 7) {
        record[at] ^= 4;
        assert_int_equal(lessons_unpack(&f, record, vocab, logp, tokens, &e), ST_FORMAT);
        record[at] ^= 4;
    }
    /* of a larger vocabulary */
    assert_int_equal(lessons_unpack(&f, record, 8, logp, tokens, &e), ST_FORMAT);
    free(logits);
    free(logp);
    free(tokens);
    free(record);
}

static void test_records(void **state) {
    (void)state;
    check(V, 2);
    check(V, 64);
    check(V, V);
    check(70000, 16); /* ids of four bytes */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_records)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
