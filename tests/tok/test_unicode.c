/* Character classes, the byte alphabet, and the two pattern matchers on texts whose splits are
 * worked out by hand. */
#include "tok/internal.h"
#include "tok/tok_test.h"
#include "tok/text/unicode.h"
#include "tok/text/unicode_sets.h"

static void test_classes(void **state) {
    (void)state;
    int n[4] = {0};
    for (uint32_t cp = 0; cp < 0x110000; cp++) n[uni_class_of(cp)]++;
    assert_int_equal(n[UNI_LETTER], 141028); /* Unicode 16 */
    assert_int_equal(n[UNI_NUMBER], 1911);
    assert_int_equal(n[UNI_SPACE], 25);
    static const uint32_t LETTER[] = {'a',   'Z',   0xAA,   0xDF,   0x17F,
                                      0x430, 0x5D0, 0x4E00, 0xAC00, 0x1E030};
    static const uint32_t NUMBER[] = {'0', '9', 0xB2, 0xBD, 0x663, 0x2167, 0x3007, 0x1D7D8};
    static const uint32_t SPACE[] = {'\t',   '\n',   0x0B,   0x0C,   '\r',   ' ',
                                     0x85,   0xA0,   0x1680, 0x2000, 0x200A, 0x2028,
                                     0x2029, 0x202F, 0x205F, 0x3000};
    static const uint32_t OTHER[] = {0,      0x1C,    0x1F,   '_',      0x301,  0x200B,  0x200D,
                                     0xFEFF, 0x1F600, 0xE000, 0x10FFFF, 0xD800, 0x110000};
    for (int i = 0; i < ARRAY_LEN(LETTER); i++)
        assert_int_equal(uni_class_of(LETTER[i]), UNI_LETTER);
    for (int i = 0; i < ARRAY_LEN(NUMBER); i++)
        assert_int_equal(uni_class_of(NUMBER[i]), UNI_NUMBER);
    for (int i = 0; i < ARRAY_LEN(SPACE); i++) assert_int_equal(uni_class_of(SPACE[i]), UNI_SPACE);
    for (int i = 0; i < ARRAY_LEN(OTHER); i++) assert_int_equal(uni_class_of(OTHER[i]), UNI_OTHER);
}

/* The class bits are those of the general category, and ASCII has them in one load. */
static void test_bits(void **state) {
    (void)state;
    static const struct {
        uni_category first, last;
        unsigned bits;
        int n; /* Unicode 16 */
    } GROUPS[] = {
        {UNI_LU, UNI_LU, UNI_UPPER, 1858}, {UNI_LL, UNI_LL, UNI_LOWER, 2258},
        {UNI_LT, UNI_LT, UNI_UPPER, 31},   {UNI_LM, UNI_LO, UNI_CASELESS, 136881},
        {UNI_MN, UNI_ME, UNI_MARK, 2501},  {UNI_ND, UNI_NO, UNI_DIGIT, 1911},
        {UNI_PC, UNI_PO, UNI_PUNCT, 855},  {UNI_SM, UNI_SO, UNI_SYMBOL, 8514},
        {UNI_ZS, UNI_ZP, UNI_BLANK, 19},   {UNI_CF, UNI_CO, 0, 170 + 137468},
    };
    int n[ARRAY_LEN(GROUPS)] = {0};
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uni_category c = uni_category_of(cp);
        for (int g = 0; g < ARRAY_LEN(GROUPS); g++) {
            if (c < GROUPS[g].first || c > GROUPS[g].last) continue;
            assert_int_equal(uni_bits(cp), GROUPS[g].bits);
            n[g]++;
        }
        if (cp < 256) assert_int_equal(uni_byte[cp], cp < 128 ? uni_bits(cp) : 0);
    }
    for (int g = 0; g < ARRAY_LEN(GROUPS); g++) assert_int_equal(n[g], GROUPS[g].n);
}

/* Where other libraries than the pattern engine decide, other versions of Unicode do. */
static void test_other_properties(void **state) {
    (void)state;
    assert_true(uni_is_numeric(0x11DE0) && uni_is_numeric('7') && uni_is_numeric(0x2167));
    assert_true(!uni_is_numeric('a') && !(uni_bits(0x11DE0) & UNI_DIGIT));
    assert_true(uni_is_bert_punct('$') && uni_is_bert_punct('~') && uni_is_bert_punct(0x166D));
    assert_true(!uni_is_bert_punct(0x2E52) && (uni_bits(0x2E52) & UNI_PUNCT));
    assert_true(!uni_is_bert_punct('a') && !uni_is_bert_punct(0xA3));
    static const uint32_t WORD[] = {'a', '_', '0', 0x200D, 0x24B6, 0x301, 0x203F, 0x2160, 0x4E00};
    static const uint32_t NO_WORD[] = {' ', '-', 0xB2, 0x2028, 0x1F600, 0xE000, 0x378};
    for (int i = 0; i < ARRAY_LEN(WORD); i++) assert_true(uni_is_word(WORD[i]));
    for (int i = 0; i < ARRAY_LEN(NO_WORD); i++) assert_false(uni_is_word(NO_WORD[i]));
    assert_string_equal(uni_script_names[uni_script_of(0x3005)], "han");
    assert_string_equal(uni_script_names[uni_script_of('q')], "latin");
    assert_int_equal(uni_script_of(0x378), 0);
    assert_int_equal(uni_spm_script_of(0x3042), uni_spm_script_of(0x4E00));
    assert_int_equal(uni_spm_script_of(' '), 0);
}

static void test_alphabet(void **state) {
    (void)state;
    bool used[0x144] = {false};
    for (int b = 0; b < 256; b++) {
        uint32_t cp = byte_alphabet_char((uint8_t)b);
        assert_true(cp < 0x144 && !used[cp]);
        used[cp] = true;
        assert_int_equal(byte_alphabet_byte(cp), b);
    }
    assert_int_equal(byte_alphabet_char(' '), 0x120);
    assert_int_equal(byte_alphabet_char('\n'), 0x10A);
    assert_int_equal(byte_alphabet_byte(' '), -1);
    assert_int_equal(byte_alphabet_byte(0x144), -1);
}

/* `want` is the text with | between the pieces. */
static void check_split(bool gpt2, const char *want) {
    char text[256];
    size_t n = 0, at = 0;
    for (const char *p = want; *p; p++) {
        if (*p != '|') text[n++] = *p;
    }
    for (const char *p = want; *p;) {
        size_t piece = strcspn(p, "|");
        size_t end = gpt2 ? pretok_gpt2_end(text, n, at) : pretok_cl100k_end(text, n, at);
        if (end - at != piece) fail_msg("%s: piece of %zu bytes at %zu", want, end - at, at);
        at = end;
        p += piece + (p[piece] == '|');
    }
    assert_int_equal(at, n);
}

static void test_gpt2_splits(void **state) {
    (void)state;
    check_split(true, "Hello|,| world|!!|  | 42|nd");
    check_split(true, "don|'t| DON|'|T|'|x");
    check_split(true, "a| |\n|b|\n\n");
    check_split(true, "   | x|   ");
    check_split(true, "12345| 678");
    check_split(true, "a|\xC2\xA0|\xC2\xA0|b| \xE4\xB8\xAD");
}

static void test_llama3_splits(void **state) {
    (void)state;
    check_split(false, "Hello|,| world|!!| | |42|nd");
    check_split(false, "don|'t| DON|'T|'x|'Re");
    check_split(false, "a| \n|b|\n\n");
    check_split(false, "   | x|   ");
    check_split(false, "123|45| |678");
    check_split(false, "(x|);\r\n|\ty| \n \n|  | z");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_alphabet),
        cmocka_unit_test(test_gpt2_splits), cmocka_unit_test(test_llama3_splits),
        cmocka_unit_test(test_bits),        cmocka_unit_test(test_other_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
