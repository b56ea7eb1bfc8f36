/* The pattern engine: what it refuses and how, and that hostile patterns end soon. What it accepts
 * is compared with Oniguruma in test_pretok.c. */
#include <time.h>

#include "sanitizer.h"
#include "tok/pretok/pretok.h"
#include "tok/tok_test.h"

static void refuse(const char *pattern, const char *says) {
    err e = {0};
    void *code;
    if (pretok_regex_compile(&code, pattern, &e) != ST_FORMAT) {
        fail_msg("accepted %s", pattern);
    }
    assert_null(code);
    if (!strstr(e.message, says)) fail_msg("%s: \"%s\" does not say %s", pattern, e.message, says);
}

static void test_wrong(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *says;
    } BAD[] = {
        {"(a", "character 2: a group has no )"},
        {"a)", "character 1: a ) has no group"},
        {"[a", "a class has no ]"},
        {"[a-", "a class has no ]"},
        {"[z-a]", "runs backwards"},
        {"[a-\\d]", "ends with a class"},
        {"[\\p{L}--a]", "--"},
        {"[[:nope:]]", "[:"},
        {"*a", "nothing for *"},
        {"a|+", "nothing for +"},
        {"(?=a)*", "looks around"},
        {"^*", "looks around"},
        {"a{3,2}", "{3,2} runs backwards"},
        {"a{1,1001}", "1000"},
        {"\\p{Klingon}", "Klingon"},
        {"\\p{", "no }"},
        {"\\p", "\\p has no"},
        {"\\x{110000}", "\\x{...}"},
        {"\\x{D800}", "\\x{...}"},
        {"\\xE4\\xB8", "\\x.."},
        {"\\", "backslash"},
        {"(a)\\1", "\\1 is not supported"},
        {"\\Gx", "\\G is not supported"},
        {"\\X", "\\X is not supported"},
        {"a\\Kb", "\\K is not supported"},
        {"(?~ab)", "(?~ is not supported"},
        {"(?(1)a|b)", "(?( is not supported"},
        {"(?s:.)", "(?s is not supported"},
        {"(?<=a(?=b))", "inside a look behind"},
        {"(?#", "a comment has no )"},
        {"(?<n", "no >"},
        {"\xff", "UTF-8"},
        {"(?:(?:(?:\\p{L}{1000}){1000}){1000})", "too large"},
    };
    for (int i = 0; i < ARRAY_LEN(BAD); i++) refuse(BAD[i].pattern, BAD[i].says);
    refuse("(?U:a+)", "(?U is not supported");
    refuse("[\\w--a]", "--");
}

static char *repeat(const char *s, int n) {
    char *text = calloc(strlen(s) * (size_t)n + 1, 1);
    for (int i = 0; i < n; i++) memcpy(text + strlen(s) * (size_t)i, s, strlen(s));
    return text;
}

/* Depth and size are limited. */
static void test_large(void **state) {
    (void)state;
    static const char *const DEEP[] = {"(", "[", "(?i)", "(?:a|", "(?="};
    for (int i = 0; i < ARRAY_LEN(DEEP); i++) {
        char *pattern = repeat(DEEP[i], 2000);
        refuse(pattern, "too deep");
        free(pattern);
    }
    char *classes = repeat("[^\\p{Lu}x]", 1600), *huge = repeat("a", 20000);
    refuse(classes, "too many classes");
    refuse(huge, "bytes");
    free(classes);
    free(huge);
}

/* All matches of a pattern in a text, one after the other. */
static status find_all(const char *pattern, const char *text, size_t len, size_t *n) {
    err e = {0};
    void *code, *match_data = NULL;
    status st = ST_OK;
    if (pretok_regex_compile(&code, pattern, &e) != ST_OK) fail_msg("%s: %s", pattern, e.message);
    *n = 0;
    for (size_t at = 0; at < len && st == ST_OK;) {
        size_t start, end;
        st = pretok_regex_find(code, text, len, at, &start, &end, &match_data, &e);
        if (st != ST_OK || end > len) break;
        at = end > start ? end : start + 1;
        (*n)++;
    }
    if (st != ST_OK) assert_non_null(strstr(e.message, "too many steps"));
    pretok_match_data_free(match_data);
    pretok_regex_free(code);
    return st;
}

/* Patterns that take time exponential or quadratic in the text are stopped; the limit is in steps,
 * so it is the same everywhere, and here the time is looked at loosely. */
static void test_runaways(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *unit;
    } BAD[] = {
        {"(a+)+b", "a"},   {"(?:a|aa)+$", "a"}, {"\\s*\\s*\\s*x", " "}, {"\\s+$", " "},
        {"(?=.*x)a", "a"}, {"(?<!x.*)a", "ba"}, {"(?:(?:a*)*)*b", "a"}, {"\\p{L}+\\d", "é"},
    };
    for (int i = 0; i < ARRAY_LEN(BAD); i += UNDER_ASAN ? 4 : 1) {
        size_t n, len = 1 << 20;
        char *text = repeat(BAD[i].unit, (int)(len / strlen(BAD[i].unit)) + 1);
        text[len - 1] = 'y';
        clock_t start = clock();
        status st = find_all(BAD[i].pattern, text, len, &n);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (st != ST_FORMAT) fail_msg("%s is not stopped", BAD[i].pattern);
        if (seconds > PATIENCE_S(20)) fail_msg("%s takes %.1f s", BAD[i].pattern, seconds);
        if (getenv("VERBOSE")) print_message("%-24s %.2f s\n", BAD[i].pattern, seconds);
        free(text);
    }
}

/* What is slow but sane goes through. */
static void test_patient(void **state) {
    (void)state;
    size_t n;
    char *digits = repeat("0123456789", 400), *words = repeat("many words ", 100000);
    assert_int_equal(find_all("\\d{1,3}(?=(?:\\d{3})*\\b)", digits, 4000, &n), ST_OK);
    assert_int_equal(n, 1334);
    assert_int_equal(find_all("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+", words, 1100000, &n), ST_OK);
    assert_int_equal(n, 1);
    free(digits);
    free(words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_runaways),
        cmocka_unit_test(test_patient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
