/* The scanner of JSON records against jansson: on generated records, and on the same with bytes
 * changed, it accepts the same ones and finds the same strings; then what the two do differently.
 */
#include "data_test.h"

#include <jansson.h>

#include "base/strbuf.h"
#include "data/text/json_record.h"

static const record_fields FIELDS = {.n = 3,
                                     .field = {{"text", 1, {"text"}, {4}},
                                               {"meta.body", 2, {"meta", "body"}, {4, 4}},
                                               {"meta", 1, {"meta"}, {4}}}};

typedef struct maker {
    strbuf *out;
    uint64_t seed;
} maker;

static unsigned roll(maker *m, unsigned n) {
    m->seed = mix64(m->seed + 1);
    return (unsigned)(m->seed >> 16) % n;
}

static void put_blank(maker *m) {
    if (roll(m, 4) == 0) strbuf_putc(m->out, " \t\r\n"[roll(m, 4)]);
}

static void put_string(maker *m) {
    static const char *const PARTS[] = {
        "a",
        "plain text of some length, longer than a word of the machine",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u00e9",
        "\\u4E2d",
        "\\ud83d\\ude00",
        "\xc3\xa9",
        "\xd0\x96 \xd0\x96",
        "\xe4\xb8\xad\xe6\x96\x87",
        "\xf0\x9f\x98\x80",
        "\x7f",
        "\xee\x80\x80",
        "\\u0001"};
    strbuf_putc(m->out, '"');
    for (unsigned n = roll(m, 12); n > 0; n--) strbuf_puts(m->out, PARTS[roll(m, 16)]);
    strbuf_putc(m->out, '"');
}

static void put_value(maker *m, int depth);

static void put_object(maker *m, int depth) {
    static const char *const KEYS[] = {"text", "meta", "body", "t\\u0065xt", "other", "tex"};
    strbuf_putc(m->out, '{');
    for (unsigned i = 0, n = roll(m, 6); i < n; i++) {
        if (i) strbuf_putc(m->out, ',');
        put_blank(m);
        strbuf_printf(m->out, "\"%s\"", KEYS[roll(m, 6)]);
        put_blank(m);
        strbuf_putc(m->out, ':');
        put_value(m, depth + 1);
    }
    put_blank(m);
    strbuf_putc(m->out, '}');
}

static void put_list(maker *m, int depth) {
    strbuf_putc(m->out, '[');
    for (unsigned i = 0, n = roll(m, 4); i < n; i++) {
        if (i) strbuf_putc(m->out, ',');
        put_value(m, depth + 1);
    }
    strbuf_putc(m->out, ']');
}

static void put_value(maker *m, int depth) {
    static const char *const SCALARS[] = {"0",    "-0",     "12",   "-3.25", "1e5",
                                          "2E-3", "1.5e+2", "true", "false", "null"};
    put_blank(m);
    unsigned kind = depth == 0 ? 0 : roll(m, depth > 4 ? 2 : 5);
    if (kind == 0 && depth <= 4)
        put_object(m, depth);
    else if (kind == 4)
        put_list(m, depth);
    else if (kind == 1)
        strbuf_puts(m->out, SCALARS[roll(m, 10)]);
    else
        put_string(m);
    put_blank(m);
}

/* jansson refuses numbers that its types cannot hold and NULs in keys; records are no judge then.
 */
static bool is_comparable(const json_error_t *je) {
    enum json_error_code code = json_error_code(je);
    return code != json_error_numeric_overflow && code != json_error_null_byte_in_key;
}

static void expect_field(const json_t *theirs, const field_value *ours) {
    if (!theirs) {
        assert_int_equal(ours->kind, VALUE_NONE);
    } else if (json_is_string(theirs)) {
        assert_int_equal(ours->kind, VALUE_TEXT);
        char *text = xmalloc(ours->len + 1);
        size_t n = ours->escaped ? json_record_unescape(ours->s, ours->len, text) : ours->len;
        if (!ours->escaped) memcpy(text, ours->s, n);
        assert_int_equal(n, json_string_length(theirs));
        assert_memory_equal(text, json_string_value(theirs), n);
        free(text);
    } else {
        value_kind kind = json_is_null(theirs)                              ? VALUE_NULL
                          : json_is_object(theirs) || json_is_array(theirs) ? VALUE_OTHER
                                                                            : VALUE_SCALAR;
        assert_int_equal(ours->kind, kind);
    }
}

/* Whether it is JSON. */
static bool compare(const char *s, size_t n) {
    json_error_t je;
    json_t *theirs = json_loadb(s, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    field_value value[FIELDS_MAX];
    bool is_object;
    json_problem problem;
    char *copy = xmalloc(n ? n : 1); /* so that reading too far is seen by the sanitizer */
    memcpy(copy, s, n);
    bool ours = json_record_scan(copy, n, &FIELDS, value, &is_object, &problem);
    if (!theirs && !is_comparable(&je)) {
        free(copy);
        return false;
    }
    if (ours != (theirs != NULL))
        fail_msg("%.*s: jansson says %s, we say %s", (int)n, s, theirs ? "good" : je.text,
                 ours ? "good" : problem.why);
    if (!ours) assert_true(problem.why && problem.at <= n);
    if (ours) {
        const json_t *meta = json_object_get(theirs, "meta");
        assert_int_equal(is_object, json_is_object(theirs));
        expect_field(json_object_get(theirs, "text"), &value[0]);
        expect_field(json_object_get(meta, "body"), &value[1]);
        expect_field(meta, &value[2]);
    }
    json_decref(theirs);
    free(copy);
    return ours;
}

static void mutate(maker *m, strbuf *b) {
    static const char BYTES[] = "{}[]\",:\\u0e-. \x01\x1f\x80\xbf\xc3\xed\xf4\xff";
    for (unsigned n = 1 + roll(m, 3); n > 0 && b->len > 0; n--) {
        size_t at = roll(m, (unsigned)b->len);
        char c = BYTES[roll(m, sizeof BYTES - 1)];
        switch (roll(m, 4)) {
            case 0: b->data[at] = c; break;
            case 1: strbuf_truncate(b, at); break;
            case 2: b->data[at] = b->data[roll(m, (unsigned)b->len)]; break;
            default:
                memmove(b->data + at, b->data + at + 1, b->len - at - 1);
                strbuf_truncate(b, b->len - 1);
        }
    }
}

static void test_against_jansson(void **state) {
    (void)state;
    strbuf b = {0};
    maker m = {.out = &b, .seed = 5};
    int good = 0, rounds = 20000;
    for (int i = 0; i < rounds; i++) {
        strbuf_clear(&b);
        put_value(&m, 0);
        assert_true(compare(b.data, b.len));
        mutate(&m, &b);
        good += compare(strbuf_cstr(&b), b.len);
    }
    assert_in_range(good, rounds / 20, rounds / 2); /* mutations test both ways */
    strbuf_free(&b);
}

static void test_fixed_cases(void **state) {
    (void)state;
    static const char *const CASES[] = {"",
                                        " ",
                                        "{}",
                                        "[]",
                                        "\"\"",
                                        "0",
                                        "00",
                                        "-",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "+1",
                                        "tru",
                                        "nul",
                                        "{,}",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "[1,]",
                                        "[1 2]",
                                        "{\"a\":1]",
                                        "[}",
                                        "]",
                                        "{\"a\":1}}",
                                        "\"\\ud800\"",
                                        "\"\\udc00\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\\ud83d\\ude00\"",
                                        "\"\\u12\"",
                                        "\"\\x\"",
                                        "\"\\\"",
                                        "\"\xed\xa0\x80\"",
                                        "\"\xc0\x80\"",
                                        "\"\xf4\x90\x80\x80\"",
                                        "\"\t\"",
                                        "\xef\xbb\xbf{}",
                                        "NaN",
                                        "Infinity",
                                        "{\"text\":\"a\",\"text\":\"b\"}",
                                        "{\"meta\":{\"body\":\"a\"},\"meta\":{}}",
                                        "{\"meta\":{\"body\":\"a\"},\"meta\":1}",
                                        "{\"meta\":[{\"body\":\"a\"}]}",
                                        "{\"meta\":{\"meta\":{\"body\":\"a\"}}}",
                                        "{\"m\\u0065ta\":{\"body\":\"\\u0000\"}}",
                                        "{\"text\":{\"meta\":{\"body\":\"a\"}}}"};
    for (int i = 0; i < ARRAY_LEN(CASES); i++) compare(CASES[i], strlen(CASES[i]));
}

/* Every special byte at every distance from the start and the end of a long string. */
static void test_positions(void **state) {
    (void)state;
    static const char *const INSIDE[] = {"\"", "\\n", "\x1f", "\xc3\xa9", "\xc3", "\xff", "\x7f"};
    char text[128];
    for (int n = 0; n < 40; n++)
        for (int at = 0; at <= n; at++)
            for (int k = 0; k < ARRAY_LEN(INSIDE); k++) {
                int len = snprintf(text, sizeof text, "{\"text\":\"%.*s%s%.*s\"}", at,
                                   "........................................", INSIDE[k], n - at,
                                   "........................................");
                compare(text, (size_t)len);
            }
}

static void test_own_limits(void **state) {
    (void)state;
    field_value value[FIELDS_MAX];
    bool is_object;
    json_problem problem;
    char deep[2 * JSON_MAX_DEPTH + 2];
    for (int depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        bool ok = json_record_scan(deep, 2 * (size_t)depth, &FIELDS, value, &is_object, &problem);
        assert_int_equal(ok, depth == JSON_MAX_DEPTH);
    }
    assert_string_equal(problem.why, "brackets are nested too deep");
    /* Numbers stay as they are written, however large. */
    const char *big = "{\"text\":123456789012345678901234567890e999}";
    assert_true(json_record_scan(big, strlen(big), &FIELDS, value, &is_object, &problem));
    assert_int_equal(value[0].kind, VALUE_SCALAR);
    assert_int_equal(value[0].len, 34);
    /* jansson loses a NUL after a number. */
    assert_false(json_record_scan("[1\0]", 4, &FIELDS, value, &is_object, &problem));
    assert_false(json_record_scan("\"\0\"", 3, &FIELDS, value, &is_object, &problem));
    const char *cut = "{\"text\":\"abc";
    assert_false(json_record_scan(cut, strlen(cut), &FIELDS, value, &is_object, &problem));
    assert_string_equal(problem.why, "a string is not closed");
    assert_int_equal(problem.at, 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_cases),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_against_jansson),
        cmocka_unit_test(test_own_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
