/* Reading documents: what is given, in which order, and every kind of bad input by name. */
#include "data_test.h"

#include <unistd.h>

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
                              "{\"text\":\"x\",\"lang\":\"de\"}\n{\"text\":\"y\",\"lang\":3}\n");
    reader *r = open_inputs(&in, 1, &(reader_options){.label = "lang"});
    document doc;
    bool more;
    assert_int_equal(reader_next(r, &doc, &more, NULL), ST_OK);
    assert_string_equal(doc.label, "de");
    assert_int_equal(reader_next(r, &doc, &more, NULL), ST_OK);
    assert_true(more);
    assert_null(doc.label);
    expect_end(r);
}

static void test_bytes_pass_through(void **state) {
    const char *text = "latin \xe9 text, otherwise plain ASCII\n";
    const char *in = put_text(*state, "latin.txt", text);
    reader *r = open_inputs(&in, 1, NULL);
    expect_document(r, text, "latin.txt", 0);
    expect_end(r);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder_in_order, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_jsonl_lines, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_jsonl_longer_than_buffer, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_field_and_format, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_label, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_bytes_pass_through, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_standard_input, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_empty_corpus, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_binary_refused, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_bad_jsonl, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
