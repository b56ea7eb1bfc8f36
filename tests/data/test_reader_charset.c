/* Charsets: real sentences in each, with and without marks, as text and as records; names given by
 * the user; what cannot be told. tests/oracle/compare_readers.py measures how often it errs. */
#include "data_test.h"

#include <iconv.h>

#include "base/strbuf.h"
#include "data/text/charset.h"
#include "data/text/reader.h"

static const char GERMAN[] = "Zw\xc3\xb6lf Boxk\xc3\xa4mpfer jagen Viktor quer \xc3\xbc"
                             "ber den gro\xc3\x9f"
                             "en Deich.\n";
static const char FRENCH[] = "Un \xc3\xa9t\xc3\xa9, la for\xc3\xaat br\xc3\xbb"
                             "la pr\xc3\xa8s de l\xe2\x80\x99\xc3\xa9glise : 12 \xe2\x82\xac.\n";
static const char CHINESE[] =
    "\xe6\x88\x91\xe4\xbb\xac\xe5\x9c\xa8\xe4\xb8\xad\xe5\x9b\xbd\xe7\x9a\x84\xe5\x8e\x86\xe5\x8f"
    "\xb2\xe4\xb8\x8a\xe5\x8f\xaf\xe4\xbb\xa5\xe7\x9c\x8b\xe5\x88\xb0\xe8\xae\xb8\xe5\xa4\x9a\xe8"
    "\xbf\x99\xe6\xa0\xb7\xe7\x9a\x84\xe4\xbe\x8b\xe5\xad\x90\xef\xbc\x8c\xe4\xbb\x96\xe8\xaf\xb4"
    "\xe3\x80\x82\n";
static const char RUSSIAN[] =
    "\xd0\xa1\xd1\x8a\xd0\xb5\xd1\x88\xd1\x8c \xd0\xb6\xd0\xb5 \xd0\xb5\xd1\x89\xd1\x91 "
    "\xd1\x8d\xd1\x82\xd0\xb8\xd1\x85 \xd0\xb1\xd1\x83\xd0\xbb\xd0\xbe\xd0\xba.\n";

/* Words of several languages side by side, few letters, no ASCII at all. */
static const char TRAVELLER[] = "Stra\xc3\x9f"
                                "e, Br\xc3\xbc"
                                "cke, K\xc3\xb6ln! \xc3\x87"
                                "a va tr\xc3\xa8s bien, se\xc3\xb1or \xc3\x85ngstr\xc3\xb6m.\n";
static const char CAFE[] = "caf\xc3\xa9\n";
static const char LINE_OF_CHINESE[] =
    "\xe4\xbb\x8a\xe5\xa4\xa9\xe5\xa4\xa9\xe6\xb0\x94\xe5\xbe\x88\xe5\xa5\xbd\xe3\x80\x82";

static void encode(strbuf *out, const char *mark, const char *text, const char *charset) {
    iconv_t cd = iconv_open(charset, "UTF-8");
    assert_true(cd != (iconv_t)-1);
    strbuf_append(out, mark, charset[3] == '-' && *mark ? 2 : 0);
    char *from = (char *)(uintptr_t)text;
    size_t left = strlen(text), room = left * 4 + 16, spare = room;
    char *to = strbuf_extend(out, room);
    assert_true(iconv(cd, &from, &left, &to, &spare) != (size_t)-1);
    strbuf_truncate(out, out->len - spare);
    iconv_close(cd);
}

static void expect_text(const char *in, const reader_options *opt, const char *text,
                        const char *charset) {
    reader *r;
    document d;
    bool more;
    assert_ok(reader_open(&r, &in, 1, opt, e));
    assert_ok(reader_next(r, &d, &more, e));
    assert_true(more);
    assert_int_equal(d.len, strlen(text));
    assert_memory_equal(d.text, text, d.len);
    assert_ok(reader_next(r, &d, &more, e));
    const reader_report *p = reader_get_report(r);
    assert_int_equal(p->n_charsets, 1);
    assert_string_equal(p->charset[0].name, charset);
    assert_int_equal(p->charset[0].files, 1);
    reader_close(r);
}

typedef struct sample {
    const char *text, *charset, *mark;
} sample;

static const sample SAMPLES[] = {{GERMAN, "ISO-8859-1", ""},
                                 {TRAVELLER, "ISO-8859-1", ""},
                                 {FRENCH, "WINDOWS-1252", ""},
                                 {CHINESE, "GB18030", ""},
                                 {RUSSIAN, "UTF-16LE", ""},
                                 {RUSSIAN, "UTF-16BE", ""},
                                 {RUSSIAN, "UTF-16LE", "\xff\xfe"},
                                 {RUSSIAN, "UTF-16BE", "\xfe\xff"},
                                 {CHINESE, "UTF-16LE", ""},
                                 {GERMAN, "UTF-16BE", ""},
                                 {FRENCH, "UTF-16LE", "\xff\xfe"},
                                 {CHINESE, "UTF-8", ""},
                                 {RUSSIAN, "UTF-8", ""},
                                 {GERMAN, "UTF-8", ""}};
static const sample SHORT[] = {
    {CAFE, "ISO-8859-1", ""}, {LINE_OF_CHINESE, "UTF-16LE", ""}, {LINE_OF_CHINESE, "UTF-16BE", ""}};

static void check_text(scene *sc, const sample *s) {
    strbuf b = {0};
    encode(&b, s->mark, s->text, s->charset);
    const char *in = put_bytes(sc, "a.txt", b.data, b.len);
    expect_text(in, NULL, s->text, s->charset);
    expect_text(in, &(reader_options){.charset = s->charset}, s->text, s->charset);
    strbuf_free(&b);
}

static void test_text(void **state) {
    for (int i = 0; i < ARRAY_LEN(SAMPLES); i++) check_text(*state, &SAMPLES[i]);
    for (int i = 0; i < ARRAY_LEN(SHORT); i++) check_text(*state, &SHORT[i]);
}

/* More than the sample of ASCII comes first, then the words; and positions in between hold. */
static void test_records(void **state) {
    strbuf plain = {0}, b = {0};
    for (int i = 0; i < ARRAY_LEN(SAMPLES); i++) {
        bool late = strncmp(SAMPLES[i].charset, "UTF-16", 6) != 0;
        int first = late ? 5000 : 10;
        strbuf_clear(&plain);
        strbuf_clear(&b);
        for (int k = 0; k < first; k++) strbuf_printf(&plain, "{\"text\":\"%0*d\"}\n", 300, k);
        size_t len = strlen(SAMPLES[i].text) - 1;
        for (int k = 0; k < 3000; k++)
            strbuf_printf(&plain, "{\"text\":\"%.*s\"}\n", (int)len, SAMPLES[i].text);
        encode(&b, SAMPLES[i].mark, plain.data, SAMPLES[i].charset);
        const char *in = put_bytes(*state, "a.jsonl", b.data, b.len);
        reader *r;
        document d;
        bool more;
        assert_ok(reader_open(&r, &in, 1, &(reader_options){.max_bad = 0}, e));
        for (int k = 0; k < first + 3000; k++) {
            assert_ok(reader_next(r, &d, &more, e));
            if (k < first) continue;
            assert_int_equal(d.len, len);
            assert_memory_equal(d.text, SAMPLES[i].text, len);
        }
        assert_ok(reader_next(r, &d, &more, e));
        assert_false(more);
        assert_string_equal(reader_get_report(r)->charset[0].name, SAMPLES[i].charset);
        reader_close(r);
    }
    strbuf_free(&plain);
    strbuf_free(&b);
}

/* The first byte that is not ASCII is the last one that was read. */
static void test_first_at_the_end_of_a_sample(void **state) {
    strbuf b = {0};
    for (int first = CHARSET_SAMPLE_BYTES - 2; first < CHARSET_SAMPLE_BYTES + 1; first++) {
        strbuf_clear(&b);
        strbuf_printf(&b, "{\"text\":\"%0*d", first - 9 - 3, 0);
        assert_int_equal(b.len, first - 3); /* "Un " */
        encode(&b, "", FRENCH, "WINDOWS-1252");
        strbuf_truncate(&b, b.len - 1);
        strbuf_puts(&b, "\"}\n");
        assert_int_equal((uint8_t)b.data[first], 0xe9);
        const char *in = put_bytes(*state, "a.jsonl", b.data, b.len);
        reader *r;
        document d;
        bool more;
        assert_ok(reader_open(&r, &in, 1, &(reader_options){.max_bad = 0}, e));
        assert_ok(reader_next(r, &d, &more, e));
        assert_memory_equal(d.text + d.len - 4, "\xe2\x82\xac.", 4);
        assert_ok(reader_next(r, &d, &more, e));
        assert_string_equal(reader_get_report(r)->charset[0].name, "WINDOWS-1252");
        reader_close(r);
    }
    strbuf_free(&b);
}

/* iconv takes the mark of "UTF-16" away: nothing is left, and not the mark's bytes. */
static void test_mark_alone(void **state) {
    const char *in[] = {put_bytes(*state, "a.txt", "\xff\xfe", 2),
                        put_bytes(*state, "b.txt", "\xff\xfeh\0i\0", 6)};
    reader *r;
    document d;
    bool more;
    assert_ok(reader_open(&r, in, 2, &(reader_options){.charset = "utf-16"}, e));
    assert_ok(reader_next(r, &d, &more, e));
    assert_int_equal(d.len, 2);
    assert_memory_equal(d.text, "hi", 2);
    assert_ok(reader_next(r, &d, &more, e));
    assert_false(more);
    reader_close(r);
}

static void test_named(void **state) {
    strbuf b = {0};
    encode(&b, "", RUSSIAN, "KOI8-R");
    const char *in = put_bytes(*state, "a.txt", b.data, b.len);
    expect_text(in, &(reader_options){.charset = "koi8-r"}, RUSSIAN, "koi8-r");
    strbuf_clear(&b);
    encode(&b, "", GERMAN, "ISO-8859-1");
    in = put_bytes(*state, "b.txt", b.data, b.len);
    expect_text(in, &(reader_options){.charset = "latin-1"}, GERMAN, "latin-1");
    strbuf_free(&b);
}

/* A broken character in a long UTF-8 text is mended; in a record it makes the record bad. */
static void test_broken_utf8(void **state) {
    scene *sc = *state;
    char *text = arena_printf(sc->mem, "%s%s\xd0%s\xff", RUSSIAN, RUSSIAN, GERMAN);
    char *mended =
        arena_printf(sc->mem, "%s%s\xef\xbf\xbd%s\xef\xbf\xbd", RUSSIAN, RUSSIAN, GERMAN);
    expect_text(put_text(sc, "a.txt", text), NULL, mended, "UTF-8");
    const char *in = put_text(sc, "a.jsonl",
                              "{\"text\":\"\xd0\x96\xd0\x96\xd0\x96\xd0\x96\xd0\x96\xd0\x96\xd0\x96"
                              "\xd0\x96\xd0\x96\xd0\x96\"}\n{\"text\":\"\xd0\"}\n");
    reader *r;
    document d;
    bool more;
    assert_ok(reader_open(&r, &in, 1, &(reader_options){.max_bad = 0.5}, e));
    assert_ok(reader_next(r, &d, &more, e));
    assert_ok(reader_next(r, &d, &more, e));
    assert_false(more);
    assert_non_null(strstr(reader_get_report(r)->sample[0].why, "bytes that are not UTF-8"));
    reader_close(r);
}

/* Half a surrogate pair in UTF-16 is such a broken character, too. */
static void test_broken_utf16(void **state) {
    strbuf b = {0};
    encode(&b, "\xff\xfe", RUSSIAN, "UTF-16LE");
    encode(&b, "", RUSSIAN, "UTF-16LE");
    size_t at = b.len;
    strbuf_append(&b, "\x00\xd8", 2);
    encode(&b, "", RUSSIAN, "UTF-16LE");
    const char *in = put_bytes(*state, "a.txt", b.data, b.len);
    char *mended =
        arena_printf(((scene *)*state)->mem, "%s%s\xef\xbf\xbd%s", RUSSIAN, RUSSIAN, RUSSIAN);
    expect_text(in, NULL, mended, "UTF-16LE");
    b.data[at] = '!'; /* no longer broken, but another character: U+D821 is still half a pair */
    expect_text(put_bytes(*state, "b.txt", b.data, b.len), NULL, mended, "UTF-16LE");
    strbuf_free(&b);
}

/* Other charsets are unknown, not wrong ones. */
static void test_unknown(void **state) {
    (void)state;
    static const char *const OTHERS[] = {"KOI8-R", "WINDOWS-1251", "ISO-8859-5", "CP866"};
    strbuf b = {0};
    for (int i = 0; i < ARRAY_LEN(OTHERS); i++) {
        strbuf_clear(&b);
        for (int k = 0; k < 20; k++) encode(&b, "", RUSSIAN, OTHERS[i]);
        const char *name = charset_detect(b.data, b.len);
        if (name) fail_msg("%s was taken for %s", OTHERS[i], name);
    }
    uint64_t noise[512];
    for (int i = 0; i < ARRAY_LEN(noise); i++)
        noise[i] = mix64((uint64_t)i) | UINT64_C(0x0101010101010101);
    assert_null(charset_detect((const char *)noise, sizeof noise));
    assert_string_equal(charset_detect("", 0), "UTF-8");
    strbuf_free(&b);
}

/* Languages that have other letters in these bytes, among English. */
static void test_unknown_letters(void **state) {
    (void)state;
    static const sample OTHERS[] = {
        {"He wrote: \xc5\x91 a f\xc3\xa1k k\xc3\xb6z\xc3\xb6tt j\xc3\xb6n, erd\xc5\x91 "
         "mez\xc5\x91, n\xc5\x91 es felh\xc5\x91.\n",
         "ISO-8859-2", ""},
        {"She said: a\xc4\x9f"
         "a\xc3\xa7lar\xc4\xb1n alt\xc4\xb1nda bal\xc4\xb1k ve "
         "ku\xc5\x9f var, \xc3\xa7ok g\xc3\xbczel.\n",
         "ISO-8859-9", ""}};
    for (int i = 0; i < ARRAY_LEN(OTHERS); i++) {
        strbuf b = {0};
        for (int k = 0; k < 20; k++) encode(&b, "", OTHERS[i].text, OTHERS[i].charset);
        const char *name = charset_detect(b.data, b.len);
        if (name) fail_msg("%s was taken for %s", OTHERS[i].charset, name);
        strbuf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_records, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_first_at_the_end_of_a_sample, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_mark_alone, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_named, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_broken_utf8, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_broken_utf16, scene_open, scene_close),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_unknown_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
