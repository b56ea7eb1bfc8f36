/* CSV and TSV: the cells of quoted, doubled, broken and odd records; where records end, byte by
 * byte; headers. tests/oracle/compare_readers.py compares with Python's csv module. */
#include "data_test.h"

#include "base/strbuf.h"
#include "data/text/csv_record.h"
#include "data/text/reader.h"

static const csv_dialect CSV = {',', true}, TSV = {'\t', false};

/* The cells of all records as "[a|b][c|d]", a '!' before those of a broken one. */
static void show(strbuf *out, const char *s, size_t n, csv_dialect d) {
    int columns[FIELDS_MAX];
    csv_columns all = {FIELDS_MAX, columns};
    for (int i = 0; i < FIELDS_MAX; i++) columns[i] = i;
    for (size_t at = 0, used; at < n; at += used) {
        field_value value[FIELDS_MAX];
        const char *why;
        int count;
        used = csv_record_scan(s + at, n - at, d, &all, FIELDS_MAX, value, &count, &why);
        assert_in_range(used, 1, n - at);
        strbuf_puts(out, why ? "![" : "[");
        for (int i = 0; i < count; i++) {
            if (i) strbuf_putc(out, '|');
            char *cell = xmalloc(value[i].len + 1);
            size_t len = value[i].len;
            if (value[i].escaped)
                len = csv_record_unescape(value[i].s, len, cell);
            else
                memcpy(cell, value[i].s, len);
            strbuf_append(out, cell, len);
            free(cell);
        }
        strbuf_putc(out, ']');
    }
}

static void expect_cells(const char *csv, csv_dialect d, const char *cells) {
    strbuf out = {0};
    char *copy = xmalloc(strlen(csv) + 1); /* without its NUL, for the sanitizer */
    memcpy(copy, csv, strlen(csv));
    show(&out, copy, strlen(csv), d);
    assert_string_equal(strbuf_cstr(&out), cells);
    strbuf_free(&out);
    free(copy);
}

static void test_cells(void **state) {
    (void)state;
    expect_cells("a,b\nc,d", CSV, "[a|b][c|d]");
    expect_cells("a,b\r\nc,d\r\n", CSV, "[a|b][c|d]");
    expect_cells(",\n,,\r\n", CSV, "[|][||]");
    expect_cells("\n\r\na\n", CSV, "[][][a]");
    expect_cells("\"a,\nb\",\"\"\n\"\"\"c\"\"\"", CSV, "[a,\nb|][\"c\"]");
    expect_cells("\"\"\"\"", CSV, "[\"]");
    expect_cells("5\" disk,a\"\"b\n", CSV, "[5\" disk|a\"\"b]");
    expect_cells("\"a\r\nb\"\r\nc", CSV, "[a\r\nb][c]");
    expect_cells("\"a\"x,b\nc\n", CSV, "![a|b][c]");
    expect_cells("\"a\n", CSV, "![a\n]");
    expect_cells("a\rb\r", CSV, "[a\rb]");
    expect_cells(" \"a\",b\n", CSV, "[ \"a\"|b]");
    expect_cells("\"a\",b\t\"c\n\n\"d\"\t\r\n", TSV, "[\"a\",b|\"c][][\"d\"|]");
}

/* Whole records of every prefix: those that the scan of all of it finds to end there. */
static void test_ends(void **state) {
    (void)state;
    static const char *const CASES[] = {"a,b\nc,d\n\"e\n\",f\n", "\"\"\"\n\"\"\",\"\"\n\"\"\nx",
                                        "5\" a\n6\" b\n",        "\"a\"b\"\n\"c\n\"\n",
                                        "x,\"a\r\n\"\r\ny",      "\n\n\"\n\"\n"};
    int columns[4] = {-1, -1, -1, -1};
    csv_columns all = {4, columns};
    for (int k = 0; k < ARRAY_LEN(CASES); k++) {
        const char *s = CASES[k];
        size_t n = strlen(s), ends = 0;
        for (size_t cut = 0; cut <= n; cut++) {
            size_t open_quote, whole = csv_whole_records(s, cut, CSV, false, &open_quote), at = 0;
            assert_true(whole <= cut && (whole == 0 || s[whole - 1] == '\n'));
            while (at < whole) {
                const char *why;
                int count;
                at += csv_record_scan(s + at, n - at, CSV, &all, 0, NULL, &count, &why);
            }
            assert_int_equal(at, whole);
            assert_int_equal(csv_whole_records(s, cut, CSV, true, &open_quote), cut);
            ends += whole == cut && cut > 0;
        }
        assert_true(ends >= 1);
    }
    size_t open_quote;
    assert_int_equal(csv_whole_records("a\nb,\"c\n", 8, CSV, false, &open_quote), 2);
    assert_int_equal(open_quote, 4);
    assert_int_equal(csv_whole_records("\"a\tb\n\"c\n", 9, TSV, false, &open_quote), 8);
}

static void expect_document(reader *r, const char *text, uint32_t line) {
    document d;
    bool more;
    assert_ok(reader_next(r, &d, &more, e));
    assert_true(more);
    assert_int_equal(d.len, strlen(text));
    assert_memory_equal(d.text, text, d.len);
    assert_int_equal(d.line, line);
}

static void test_reading(void **state) {
    const char *in = put_text(*state, "a.csv",
                              "\xef\xbb\xbf\"text\",lang,n\r\n"
                              "\"x\ny\",de,1\r\n\r\n"
                              "z,fr\r\n" /* a column too few: bad */
                              "w,\"it \"\"s\"\"\",2");
    reader *r;
    reader_options opt = {.label = "lang", .score = "n", .max_bad = 0.5};
    assert_ok(reader_open(&r, &in, 1, &opt, e));
    expect_document(r, "x\ny", 2);
    document d;
    bool more;
    assert_ok(reader_next(r, &d, &more, e));
    assert_true(more && d.score == 2);
    assert_string_equal(d.label, "it \"s\"");
    assert_int_equal(d.line, 6);
    assert_ok(reader_next(r, &d, &more, e));
    assert_false(more);
    const reader_report *p = reader_get_report(r);
    assert_int_equal(p->records, 3);
    assert_int_equal(p->bad, 1);
    assert_int_equal(p->sample[0].line, 5);
    assert_string_equal(p->sample[0].why, "has 2 columns, the header names 3");
    reader_close(r);
}

static void test_tsv(void **state) {
    const char *in = put_text(*state, "a.tsv", "id\ttext\n1\t\"quoted\" \\t stays\n2\ttwo\n");
    reader *r;
    assert_ok(reader_open(&r, &in, 1, NULL, e));
    expect_document(r, "\"quoted\" \\t stays", 2);
    expect_document(r, "two", 3);
    reader_close(r);
}

static void expect_error(const char *in, const char *words, const char *hint) {
    reader *r;
    err e = {0};
    document d;
    bool more = true;
    assert_int_equal(reader_open(&r, &in, 1, NULL, &e), ST_OK);
    status st = ST_OK;
    while (st == ST_OK && more) st = reader_next(r, &d, &more, &e);
    reader_close(r);
    assert_int_equal(st, ST_FORMAT);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    if (!strstr(e.hint, hint)) fail_msg("hint \"%s\" lacks \"%s\"", e.hint, hint);
}

static void test_errors(void **state) {
    scene *sc = *state;
    expect_error(put_text(sc, "a.csv", "title,\"the body\"\nx,y\n"), "a.csv has no column text",
                 "(it has title, the body)");
    expect_error(put_text(sc, "b.csv", "text\n\"x\n"), "b.csv:2 has a quote that is not closed",
                 "leave the file out");
    expect_error(put_text(sc, "c.csv", "\"text\"x\ny\n"), "names the columns, has text after", "");
    size_t n = 65 << 20;
    char *big = xmalloc(n);
    memset(big, 'x', n);
    memcpy(big, "text\na\n\"", 8);
    expect_error(put_bytes(sc, "d.csv", big, n), "d.csv:3 opens a quote that is not closed within",
                 "format=tsv");
    free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_ends),
        cmocka_unit_test_setup_teardown(test_reading, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_tsv, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_errors, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
