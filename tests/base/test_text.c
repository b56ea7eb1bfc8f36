/* Numbers with suffixes and nearest words. */
#include "test.h"

#include "base/text.h"

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"10B", 1e10},   {"0.5M", 5e5}, {"64k", 64000},  {"64K", 64000}, {"64Ki", 65536},
        {"8Gi", 0x1p33}, {"2T", 2e12},  {"1Mi", 0x1p20}, {"-3", -3},     {"+.5k", 500},
        {"3e-4", 3e-4},  {"1e3k", 1e6}, {"0", 0},
    };
    static const char *const bad[] = {"",    " 1",    "1 ", "k",    "1kk", "1 k",   "0x10", "inf",
                                      "nan", "1e999", "1b", "10Bi", "--1", "1.2.3", "."};
    double v;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(text_parse_number(good[i].text, &v));
        assert_true(v == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (text_parse_number(bad[i], &v)) fail_msg("'%s' was taken as a number", bad[i]);
}

static void test_integers(void **state) {
    (void)state;
    int64_t n;
    assert_true(text_parse_int("9007199254740993", &n) && n == 9007199254740993);
    assert_true(text_parse_int("1.1k", &n) && n == 1100);
    assert_true(text_parse_int("0.5M", &n) && n == 500000);
    assert_true(text_parse_int("1e6", &n) && n == 1000000);
    assert_false(text_parse_int("1.5", &n));
    assert_false(text_parse_int("0.0001k", &n));
    assert_false(text_parse_int("99999999999999999999", &n));
    assert_false(text_parse_int("10000000T", &n));
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const words[] = {"steps", "tokens", "epochs", "seq_len"};
    assert_int_equal(text_nearest("stps", words, 4), 0);
    assert_int_equal(text_nearest("setps", words, 4), 0);
    assert_int_equal(text_nearest("Steps", words, 4), 0);
    assert_int_equal(text_nearest("seqlen", words, 4), 3);
    assert_int_equal(text_nearest("zzzzzz", words, 4), -1);
    assert_int_equal(text_nearest("x", words, 0), -1);
    assert_int_equal(text_distance("abcd", "abdc"), 2);
    assert_int_equal(text_distance("abc", "aBc"), 1);
    assert_int_equal(text_distance("", "abc"), 6);
}

/* Three digits and a suffix; beyond the last suffix all digits before the point. */
static void test_short_numbers(void **state) {
    (void)state;
    const struct {
        double x;
        const char *text;
    } all[] = {{12.34, "12.3"},    {12.3e6, "12.3M"},      {999.6e9, "1T"},     {11.1e12, "11.1T"},
               {1.89e15, "1890T"}, {123456e12, "123456T"}, {4.5e22, "4.5e+10T"}};
    char out[16];
    for (int i = 0; i < ARRAY_LEN(all); i++)
        assert_string_equal(text_short_number(all[i].x, out), all[i].text);
}

static void test_ends(void **state) {
    (void)state;
    assert_true(text_ends_with("model.gguf", ".gguf"));
    assert_true(text_ends_with(".gguf", ".gguf"));
    assert_true(text_ends_with("a", ""));
    assert_false(text_ends_with("gguf", ".gguf"));
    assert_false(text_ends_with("model.gguf.part", ".gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_integers),
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_short_numbers),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
