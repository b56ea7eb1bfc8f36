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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_from_text),
                                       cmocka_unit_test(test_pace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
