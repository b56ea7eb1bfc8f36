/* Drafts: where a text's end came before, and how many tokens to try. */
#include "test.h"

#include "infer/engine_int.h"

static void expect(const char *words, int most, const char *want) {
    int32_t ids[64], out[DRAFT_MOST];
    int n = (int)strlen(words);
    for (int i = 0; i < n; i++) ids[i] = words[i];
    int got = draft_from_text(ids, n, most, out);
    if (got != (int)strlen(want)) fail_msg("'%s' has %d after it, not '%s'", words, got, want);
    for (int i = 0; i < got; i++) assert_int_equal(out[i], want[i]);
}

static void test_from_text(void **state) {
    (void)state;
    expect("", 4, "");
    expect("ab", 4, "");
    expect("abcdefg", 4, "");
    expect("xab ab", 4, ""); /* two are chance */
    expect("abcdef abc", 3, "def");
    expect("abc1 abc2 abc", 3, "2 a");   /* the latest */
    expect("zabc1 abc2 zabc", 3, "1 a"); /* the longest */
    expect("q abab", 5, "");
    expect("ababab", 5, "ababa"); /* goes on repeating */
    expect("aaaa", 3, "aaa");
}

static void test_pace(void **state) {
    (void)state;
    draft_pace p = {0};
    int first = draft_next_length(&p);
    assert_in_range(first, 1, 4);
    draft_learn(&p, first, first);
    assert_int_equal(draft_next_length(&p), 2 * first);
    draft_learn(&p, first, first); /* there was no room for more: nothing is known of more */
    assert_int_equal(draft_next_length(&p), 2 * first);
    for (int i = 0; i < 9; i++) draft_learn(&p, p.length, p.length);
    assert_int_equal(draft_next_length(&p), DRAFT_MOST);
    draft_learn(&p, DRAFT_MOST, 3);
    assert_int_equal(draft_next_length(&p), 4);
    /* the more often none is right, the longer it waits */
    int before = 0;
    for (int i = 0; i < 4; i++) {
        int waits = 0;
        draft_learn(&p, p.length, 0);
        while (draft_next_length(&p) == 0) waits++;
        assert_true(waits > before && waits < 64);
        before = waits;
    }
    draft_learn(&p, 1, 1);
    assert_int_equal(draft_next_length(&p), 2);
}

/* A trial in which a pass takes 10 ms, one with a guess tried_ms and the module 3 ms, and one guess of `one_of` is right. */
static engine_cost judged(double tried_ms, int one_of) {
    engine *en = calloc(1, sizeof *en);
    en->ahead_body[0].p = (const prog *)en; /* there is one; nobody runs it */
    en->trial.module_ns = 3000000;
    for (int i = 0; i < 100; i++) {
        trial_time(en, 1, false, 10000000 + i);
        trial_time(en, 2, true, (int64_t)(1e6 * tried_ms) + i);
        trial_time(en, 4, false, 1); /* of tokens that the text suggests: no word on the module */
        trial_learn(en, i % one_of == 0);
    }
    engine_cost cost = engine_get_cost(en);
    free(en);
    assert_true(fabs(cost.plain_ms - 10) < 1e-3 && fabs(cost.tried_ms - tried_ms) < 1e-3);
    assert_true(fabs(cost.right - 1.0 / one_of) < 1e-6);
    return cost;
}

/* 14 ms for one token and a half are less than 15, and for one and a quarter more than 12.5. */
static void test_trial(void **state) {
    (void)state;
    assert_true(judged(11, 2).pays);
    assert_false(judged(11, 4).pays);
    assert_false(judged(13, 2).pays);
    assert_true(judged(13, 1).pays);
}

static tok *bytes_and(const char *special) {
    err e = {0};
    tok_trainer *tr;
    tok *t;
    const tok_train_options opt = {.kind = TOK_BYTE, .special = &special, .n_special = 1};
    assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_OK);
    assert_int_equal(tok_trainer_add(tr, "text", 4, &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &t, &e), ST_OK);
    tok_trainer_free(tr);
    return t;
}

static void test_check(void **state) {
    (void)state;
    err e = {0};
    tok *a = bytes_and("<a>"), *same = bytes_and("<a>"), *b = bytes_and("<b>");
    assert_int_equal(draft_check(a, same, &e), ST_OK);
    assert_int_equal(draft_check(a, b, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "tokenizer"));
    assert_int_equal(draft_check(a, NULL, &e), ST_USAGE);
    tok_free(a);
    tok_free(same);
    tok_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_from_text),
                                       cmocka_unit_test(test_pace), cmocka_unit_test(test_trial),
                                       cmocka_unit_test(test_check)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
