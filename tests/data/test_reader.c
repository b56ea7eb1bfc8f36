/* Reading documents: what is given, in which order, and every kind of bad input by name. */
#include "data_test.h"

#include <math.h>
#include <unistd.h>

#include "data/text/charset.h"
#include "data/text/reader.h"

static reader *open_inputs(const char *const *inputs, int n, const reader_options *opt) {
    reader *r = NULL;
    assert_ok(reader_open(&r, inputs, n, opt, e));
    return r;
}

static void expect_document(reader *r, const char *text, const char *file, uint32_t line) {
    document d;
    bool more = false;
    assert_ok(reader_next(r, &d, &more, e));
    assert_true(more);
    assert_int_equal(d.len, strlen(text));
    assert_memory_equal(d.text, text, d.len);
    assert_string_equal(path_base(d.source), file);
    assert_int_equal(d.line, line);
}

static void expect_end(reader *r) {
    document d;
    bool more = true;
    assert_ok(reader_next(r, &d, &more, e));
    assert_false(more);
    reader_close(r);
}

/* The whole input fails with `code`; message and where hold the words; there is a hint. */
static void expect_error(const char *input, const reader_options *opt, status code,
                         const char *words, const char *where) {
    reader *r = NULL;
    err e = {0};
    document d;
    bool more = true;
    status st = reader_open(&r, &input, 1, opt, &e);
    while (st == ST_OK && more) st = reader_next(r, &d, &more, &e);
    reader_close(r);
    assert_int_equal(st, code);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    if (!strstr(e.where, where)) fail_msg("where \"%s\" lacks \"%s\"", e.where, where);
}

static void test_folder_in_order(void **state) {
    scene *sc = *state;
    assert_ok(file_make_dirs(in_scene(sc, "in/b"), e));
    put_text(sc, "in/c.txt", "third");
    put_text(sc, "in/a.md", "first");
    put_text(sc, "in/b/x.jsonl", "{\"text\":\"second\"}\n");
    put_text(sc, "in/.hidden", "not read");
    put_text(sc, "in/empty.txt", "");
    const char *in = in_scene(sc, "in");
    reader *r = open_inputs(&in, 1, NULL);
    assert_int_equal(reader_n_files(r), 4);
    assert_false(reader_is_text_only(r));
    assert_int_equal(reader_bytes_total(r), 28);
    expect_document(r, "first", "a.md", 0);
    expect_document(r, "second", "x.jsonl", 1);
    expect_document(r, "third", "c.txt", 0);
    assert_int_equal(reader_bytes_done(r), 28);
    expect_end(r);
}

static void test_jsonl_lines(void **state) {
    const char *in = put_text(*state, "a.jsonl",
                              "{\"id\":1,\"text\":\"one\\nline\"}\r\n"
                              "\n"
                              "{\"text\":\"\"}\n"
                              "{\"text\":\"\xc3\xa9\\u00e9\"}");
    reader *r = open_inputs(&in, 1, NULL);
    expect_document(r, "one\nline", "a.jsonl", 1);
    expect_document(r, "\xc3\xa9\xc3\xa9", "a.jsonl", 4);
    expect_end(r);
}

static void test_jsonl_longer_than_buffer(void **state) {
    scene *sc = *state;
    size_t n = 3 << 20;
    char *big = xmalloc(n + 1);
    memset(big, 'x', n);
    big[n] = '\0';
    char *line = arena_printf(sc->mem, "{\"text\":\"%s\"}\n{\"text\":\"tail\"}\n", big);
    const char *in = put_text(sc, "big.jsonl", line);
    reader *r = open_inputs(&in, 1, NULL);
    expect_document(r, big, "big.jsonl", 1);
    expect_document(r, "tail", "big.jsonl", 2);
    expect_end(r);
    free(big);
}

static void test_field_and_format(void **state) {
    const char *in = put_text(*state, "a.data", "{\"body\":\"x\"}\n");
    reader *r = open_inputs(&in, 1, &(reader_options){.format = READER_JSONL, .field = "body"});
    expect_document(r, "x", "a.data", 1);
    expect_end(r);
    in = put_text(*state, "b.jsonl", "not json");
    r = open_inputs(&in, 1, &(reader_options){.format = READER_TEXT});
    expect_document(r, "not json", "b.jsonl", 0);
    expect_end(r);
}

static void test_label(void **state) {
    const char *in = put_text(*state, "a.jsonl",
                              "{\"text\":\"x\",\"lang\":\"de\"}\n{\"text\":\"y\",\"lang\":3}\n"
                              "{\"text\":\"z\",\"lang\":[1]}\n");
    reader *r = open_inputs(&in, 1, &(reader_options){.label = "lang"});
    document doc;
    bool more;
    assert_int_equal(reader_next(r, &doc, &more, NULL), ST_OK);
    assert_string_equal(doc.label, "de");
    assert_int_equal(reader_next(r, &doc, &more, NULL), ST_OK);
    assert_string_equal(doc.label, "3");
    assert_int_equal(reader_next(r, &doc, &more, NULL), ST_OK);
    assert_true(more);
    assert_null(doc.label);
    expect_end(r);
}

static void test_template(void **state) {
    const char *in =
        put_text(*state, "a.jsonl",
                 "{\"title\":\"T\",\"meta\":{\"body\":\"b\\n\",\"n\":2.50},\"x\":null}\n"
                 "{\"title\":\"U\"}\n");
    reader_options opt = {.template = "{{{title}}}: {meta.body}{meta.n}/{x}.", .max_bad = 1};
    reader *r = open_inputs(&in, 1, &opt);
    expect_document(r, "{T}: b\n2.50/.", "a.jsonl", 1);
    expect_end(r);
    in = put_text(*state, "b.csv", "title,body\nT,\"a \"\"b\"\"\"\n");
    r = open_inputs(&in, 1, &(reader_options){.template = "{title} {body}"});
    expect_document(r, "T a \"b\"", "b.csv", 2);
    expect_end(r);
}

static void test_id_and_score(void **state) {
    static const double SCORES[] = {2.5, -3, 0.25};
    const char *in = put_text(*state, "a.jsonl",
                              "{\"text\":\"x\",\"id\":\"a\\u00e9\",\"m\":{\"s\":2.5}}\n"
                              "{\"text\":\"y\",\"id\":17,\"m\":{\"s\":-3}}\n"
                              "{\"text\":\"z\",\"id\":null,\"m\":{\"s\":\"0.25\"}}\n"
                              "{\"text\":\"w\",\"m\":{\"s\":\"many\"}}\n");
    static const char *const IDS[] = {"a\xc3\xa9", "17", NULL};
    reader *r = open_inputs(&in, 1, &(reader_options){.id = "id", .score = "m.s"});
    document doc;
    bool more;
    for (int i = 0; i < 3; i++) {
        assert_ok(reader_next(r, &doc, &more, e));
        assert_true(doc.score == SCORES[i]);
        if (IDS[i])
            assert_string_equal(doc.id, IDS[i]);
        else
            assert_null(doc.id);
    }
    assert_ok(reader_next(r, &doc, &more, e));
    assert_true(isnan(doc.score));
    assert_null(doc.id);
    expect_end(r);
}

static void test_globs(void **state) {
    scene *sc = *state;
    put_text(sc, "b.txt", "B");
    put_text(sc, "a.txt", "A");
    put_text(sc, "c.md", "C");
    put_text(sc, "[x].txt", "X");
    assert_ok(file_make_dirs(in_scene(sc, "d.txt"), e));
    put_text(sc, "d.txt/e", "E");
    const char *in[] = {in_scene(sc, "?.txt"), in_scene(sc, "[x].txt")};
    reader *r = open_inputs(in, 2, NULL);
    assert_int_equal(reader_n_files(r), 4);
    assert_string_equal(path_base(reader_file(r, 2)), "e");
    expect_document(r, "A", "a.txt", 0);
    expect_document(r, "B", "b.txt", 0);
    expect_document(r, "E", "e", 0);
    expect_document(r, "X", "[x].txt", 0);
    expect_end(r);
    expect_error(in_scene(sc, "*.xml"), NULL, ST_USAGE, "*.xml matches no file", "*.xml");
}

static void test_not_text_by_name(void **state) {
    scene *sc = *state;
    put_text(sc, "a.txt", "A");
    put_text(sc, "b.arrow", "ARROW1");
    expect_error(sc->dir, NULL, ST_FORMAT, "b.arrow is not text but, by its name, a Arrow file",
                 "b.arrow");
    reader *r = open_inputs((const char *[]){sc->dir}, 1, &(reader_options){.format = READER_TEXT});
    expect_document(r, "A", "a.txt", 0);
    expect_document(r, "ARROW1", "b.arrow", 0);
    expect_end(r);
}

static void test_bad_options(void **state) {
    const char *in = put_text(*state, "a.jsonl", "{}\n");
    expect_error(in, &(reader_options){.field = "a..b"}, ST_USAGE, "field=a..b", "field");
    expect_error(in, &(reader_options){.template = "{a"}, ST_USAGE, "not closed", "template");
    expect_error(in, &(reader_options){.template = "a}"}, ST_USAGE, "closes nothing", "template");
    expect_error(in, &(reader_options){.template = "a"}, ST_USAGE, "names no field", "template");
    expect_error(in, &(reader_options){.template = "{}"}, ST_USAGE, "no name", "template");
    expect_error(in, &(reader_options){.charset = "klingon"}, ST_USAGE, "charset=klingon",
                 "charset");
}

static uint64_t fingerprint(const char *in, const reader_options *opt) {
    reader *r = open_inputs(&in, 1, opt);
    uint64_t f = reader_fingerprint(r);
    reader_close(r);
    return f;
}

static void test_fingerprint(void **state) {
    scene *sc = *state;
    const char *in = put_text(sc, "a.jsonl", "{}\n");
    uint64_t f = fingerprint(in, NULL);
    assert_true(f != 0 && f == fingerprint(in, &(reader_options){.max_bad = 1}));
    assert_true(f != fingerprint(in, &(reader_options){.field = "body"}));
    assert_true(f != fingerprint(in, &(reader_options){.charset = "latin1"}));
    put_text(sc, "a.jsonl", "{} \n");
    assert_true(f != fingerprint(in, NULL));
    assert_true(fingerprint("-", NULL) == 0);
}

static void test_standard_input(void **state) {
    const char *path = put_text(*state, "piped", "{\"text\":\"piped\"}\n{\"text\":\"two\"}\n");
    int saved = dup(STDIN_FILENO);
    const char *in = "-";
    assert_non_null(freopen(path, "r", stdin));
    reader *r = open_inputs(&in, 1, &(reader_options){.format = READER_JSONL});
    assert_int_equal(reader_bytes_total(r), 0);
    expect_document(r, "piped", "-", 1);
    expect_document(r, "two", "-", 2);
    expect_end(r);
    dup2(saved, STDIN_FILENO);
    close(saved);
}

static void test_empty_corpus(void **state) {
    scene *sc = *state;
    expect_error(put_text(sc, "none.txt", ""), NULL, ST_USAGE, "holds no text", "none.txt");
    expect_error(put_text(sc, "n.jsonl", "\n\n"), NULL, ST_USAGE, "holds no text", "n.jsonl");
    assert_ok(file_make_dirs(in_scene(sc, "dir"), e));
    expect_error(in_scene(sc, "dir"), NULL, ST_USAGE, "holds no files", "dir");
    expect_error(in_scene(sc, "absent"), NULL, ST_FORMAT, "No such file", "absent");
}

static void test_binary_refused(void **state) {
    scene *sc = *state;
    expect_error(put_bytes(sc, "a.bin", "abc\0def", 7), NULL, ST_FORMAT, "NUL byte at byte 3",
                 "a.bin:3");
    char noise[1000];
    for (int i = 0; i < ARRAY_LEN(noise); i++)
        noise[i] = (char)(i % 10 < 6 ? 'a' : (int)0x81 + i % 7);
    expect_error(put_bytes(sc, "b.bin", noise, sizeof noise), NULL, ST_FORMAT,
                 "not UTF-8, the first at byte 6", "b.bin:6");
    /* Overlong forms, surrogates and too large code points are not UTF-8. */
    const char *bad[] = {"\xc0\xaf\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                         "\xf0\x80\x80\x80"};
    err why;
    for (int i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(text_check("x", bad[i], strlen(bad[i]), &why), ST_FORMAT);
    const char *good = "\xe2\x82\xac\xf0\x9f\x94\xa5\xed\x9f\xbf\xf4\x8f\xbf\xbf\t\r\n\x1b[0m";
    assert_int_equal(text_check("x", good, strlen(good), &why), ST_OK);
    assert_int_equal(text_check("x", good, 4, &why), ST_OK); /* cut inside a character */
}

static void test_bad_jsonl(void **state) {
    scene *sc = *state;
    expect_error(put_text(sc, "a.jsonl", "{\"text\":\"x\"}\n{\"text\":\n"), NULL, ST_FORMAT,
                 "a.jsonl:2 is not JSON", "a.jsonl:2");
    expect_error(put_text(sc, "b.jsonl", "\n{\"body\":\"x\"}\n"), NULL, ST_FORMAT,
                 "b.jsonl:2 has no field text", "b.jsonl:2");
    expect_error(put_text(sc, "c.jsonl", "{\"text\":[1]}\n"), NULL, ST_FORMAT,
                 "does not hold text in field text", "c.jsonl:1");
    expect_error(put_text(sc, "d.jsonl", "\"text\"\n"), NULL, ST_FORMAT, "not a JSON object",
                 "d.jsonl:1");
    expect_error(put_bytes(sc, "e.jsonl", "{\"text\":\"\0\"}", 12), NULL, ST_FORMAT, "not JSON",
                 "e.jsonl:1");
}

#define PARQUET TEST_DIR "/golden/parquet/"

static void test_parquet_rows(void **state) {
    (void)state;
    const char *in = PARQUET "documents.parquet";
    reader_options opt = {
        .template = "{meta.lang} {id}: {meta.score}{text}", .id = "id", .score = "meta.score"};
    reader *r = open_inputs(&in, 1, &opt);
    document d;
    bool more;
    for (uint32_t i = 0; i < 2500; i++) {
        char begin[64];
        assert_ok(reader_next(r, &d, &more, e));
        assert_int_equal(d.line, i + 1);
        assert_int_equal(atoi(d.id), i);
        assert_true(d.score == i / 8.0);
        int n = snprintf(begin, sizeof begin, " %u: %.*f", i, i % 8 ? i % 4 ? i % 2 ? 3 : 2 : 1 : 1,
                         d.score);
        assert_memory_equal(d.text + 2, begin, (size_t)n);
    }
    assert_int_equal(reader_bytes_done(r), reader_bytes_total(r));
    expect_end(r);
}

static void test_parquet_bad(void **state) {
    scene *sc = *state;
    const char *in = PARQUET "latin1.parquet", *by_pipe = "-";
    reader *r = open_inputs(&in, 1, &(reader_options){.max_bad = 1});
    expect_document(r, "good", "latin1.parquet", 1);
    expect_end(r);
    expect_error(in, NULL, ST_FORMAT,
                 "latin1.parquet:2 cannot be read: there are bytes that are not UTF-8",
                 "latin1.parquet:2");
    expect_error(in, &(reader_options){.field = "body"}, ST_FORMAT,
                 "latin1.parquet has no column body", in);
    expect_error(in, &(reader_options){.label = "kind"}, ST_FORMAT,
                 "latin1.parquet has no column kind", in);
    r = open_inputs(&in, 1,
                    &(reader_options){.label = "kind", .label_may_lack = true, .max_bad = 1});
    expect_document(r, "good", "latin1.parquet", 1);
    expect_end(r);
    expect_error(PARQUET "nested.parquet", &(reader_options){.field = "list"}, ST_FORMAT,
                 "nested.parquet:1 does not hold text in field list", "nested.parquet:1");
    expect_error(PARQUET "documents.parquet", &(reader_options){.max_document_bytes = 4096},
                 ST_FORMAT, "is longer than 0 MiB", "documents.parquet:1");
    expect_error(put_text(sc, "a.parquet.gz", "no Parquet file"), NULL, ST_FORMAT,
                 "is no Parquet file", "a.parquet.gz");
    expect_error(by_pipe, &(reader_options){.format = READER_PARQUET}, ST_USAGE,
                 "from standard input", "-");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder_in_order, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_jsonl_lines, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_jsonl_longer_than_buffer, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_field_and_format, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_label, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_template, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_id_and_score, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_globs, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_not_text_by_name, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_bad_options, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_fingerprint, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_standard_input, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_empty_corpus, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_binary_refused, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_bad_jsonl, scene_open, scene_close),
        cmocka_unit_test(test_parquet_rows),
        cmocka_unit_test_setup_teardown(test_parquet_bad, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
