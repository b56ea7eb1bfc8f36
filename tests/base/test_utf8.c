/* UTF-8 at its borders. */
#include "test.h"

#include "base/arena.h"
#include "base/utf8.h"

static void test_borders(void **state) {
    (void)state;
    char c[4];
    uint32_t back;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (cp >= 0xD800 && cp < 0xE000) continue;
        int n = utf8_encode(cp, c);
        assert_int_equal(utf8_decode(c, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        if (n > 1) {
            assert_int_equal(utf8_decode(c, (size_t)n - 1, &back), 0);
            assert_int_equal(utf8_open_tail(c, (size_t)n - 1), n - 1);
            assert_int_equal(utf8_open_tail(c, (size_t)n), 0);
        }
    }
    static const char *const BAD[] = {
        "\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"};
    for (int i = 0; i < ARRAY_LEN(BAD); i++) {
        assert_int_equal(utf8_decode(BAD[i], strlen(BAD[i]), &back), 0);
        assert_int_equal(utf8_valid_prefix(BAD[i], strlen(BAD[i])), 0);
        assert_int_equal(utf8_open_tail(BAD[i], strlen(BAD[i]) > 2 ? 2 : 1), 0);
    }
    assert_int_equal(utf8_valid_prefix("abcdefghi\xFFxyz", 13), 9);
}

/* As Python's bytes.decode("utf-8", "replace"). */
static void test_append(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"", ""},
        {"a\xe4\xb8\xad", "a\xe4\xb8\xad"},
        {"\xff\x80z", "\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xe4\xb8z", "\xef\xbf\xbdz"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},
        {"\xf0\x9f\x98\xf0\x9f", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90", "\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (int i = 0; i < ARRAY_LEN(CASES); i++) {
        strbuf out = {0};
        utf8_append(&out, CASES[i][0], strlen(CASES[i][0]));
        assert_string_equal(strbuf_cstr(&out), CASES[i][1]);
        strbuf_free(&out);
    }
}

static void test_cut(void **state) {
    (void)state;
    static const char text[] = "ab\xf0\x9f\x98\x80"
                               "c";
    static const size_t WANT[] = {0, 1, 2, 2, 2, 2, 6, 7};
    for (size_t n = 0; n < ARRAY_LEN(WANT); n++) assert_int_equal(utf8_cut(text, n), WANT[n]);
    assert_int_equal(utf8_cut("\x80\x80\x80\x80\x80\x80", 5), 5); /* no text: anywhere */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
