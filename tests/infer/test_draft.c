/* Drafts: where a text's end came before, and how many tokens to try. */
#include "test.h"

#include "infer/draft.h"

static void expect(const char *text, int most, const char *want) {
    int32_t ids[64], out[DRAFT_MOST];
    int n = (int)strlen(text);
    for (int i = 0; i < n; i++) ids[i] = text[i];
    int got = draft_from_text(ids, n, most, out);
    if (got != (int)strlen(want)) fail_msg("'%s' has %d after it, not '%s'", text, got, want);
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
                                       cmocka_unit_test(test_pace), cmocka_unit_test(test_check)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
