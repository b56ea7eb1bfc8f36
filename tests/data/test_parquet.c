/* Parquet against what pyarrow reads in the same files (tests/golden/parquet), choosing columns,
 * going on at a row, and everything that is refused. */
#include "data_test.h"

#include <sys/mman.h>

#include "base/strbuf.h"
#include "data/parquet/parquet.h"

#define GOLDEN TEST_DIR "/golden/parquet/"

static parquet_rows *open_rows(const char *path, parquet **p, const char *const *columns, int n) {
    parquet_rows *r;
    assert_ok(parquet_open(p, path, e));
    assert_ok(parquet_rows_open(&r, *p, columns, n, e));
    return r;
}

/* As the same text, or as equal JSON: a number can be written in more than one way. */
static void expect_line(const char *path, int row, const char *want, size_t len,
                        const strbuf *got) {
    if (got->len == len && memcmp(got->data, want, len) == 0) return;
    json_t *a = json_loadb(want, len, 0, NULL), *b = json_loadb(got->data, got->len, 0, NULL);
    if (!a || !b || !json_equal(a, b))
        fail_msg("%s, row %d: %.*s is read as %s", path, row, (int)len, want, got->data);
    json_decref(a);
    json_decref(b);
}

static void expect_rows(const char *path, const char *want, size_t len) {
    parquet *p;
    parquet_rows *r = open_rows(path, &p, NULL, 0);
    strbuf line = {0};
    bool more;
    int row = 0;
    for (const char *end = want + len; want < end; row++) {
        size_t n = (size_t)((char *)memchr(want, '\n', (size_t)(end - want)) - want);
        strbuf_clear(&line);
        assert_ok(parquet_rows_next(r, &line, &more, e));
        assert_true(more);
        expect_line(path, row + 1, want, n, &line);
        want += n + 1;
    }
    assert_int_equal(parquet_n_rows(p), row);
    assert_ok(parquet_rows_next(r, &line, &more, e));
    assert_false(more);
    strbuf_free(&line);
    parquet_rows_close(r);
    parquet_close(p);
}

static void test_golden(void **state) {
    (void)state;
    arena *a = arena_new("golden");
    char **names;
    int n, files = 0;
    assert_ok(file_list_dir(a, GOLDEN, &names, &n, e));
    for (int i = 0; i < n; i++) {
        char *dot = strrchr(names[i], '.'), *want;
        size_t len;
        if (strcmp(dot, ".jsonl") != 0) continue;
        assert_ok(file_read_all(path_join(a, GOLDEN, names[i]), &want, &len, e));
        *dot = '\0';
        expect_rows(arena_printf(a, "%s%s.parquet", GOLDEN, names[i]), want, len);
        free(want);
        files++;
    }
    assert_int_equal(files, 17);
    arena_free(a);
}

static void test_schema(void **state) {
    static const struct {
        const char *name;
        parquet_type type;
        parquet_meaning meaning;
        int max_def, max_rep, end, first_leaf, end_leaf;
        bool transparent;
    } WANT[] = {{"schema", PARQUET_GROUP, PARQUET_PLAIN, 0, 0, 9, 0, 4, false},
                {"text", PARQUET_BYTES, PARQUET_PLAIN, 1, 0, 2, 0, 1, false},
                {"id", PARQUET_INT64, PARQUET_PLAIN, 1, 0, 3, 1, 2, false},
                {"meta", PARQUET_GROUP, PARQUET_PLAIN, 1, 0, 6, 2, 4, false},
                {"lang", PARQUET_BYTES, PARQUET_PLAIN, 2, 0, 5, 2, 3, false},
                {"score", PARQUET_DOUBLE, PARQUET_PLAIN, 2, 0, 6, 3, 4, false}};
    (void)state;
    parquet *p;
    int n;
    assert_ok(parquet_open(&p, GOLDEN "documents.parquet", e));
    const parquet_node *node = parquet_nodes(p, &n);
    assert_int_equal(n, ARRAY_LEN(WANT));
    for (int i = 0; i < n; i++) {
        assert_string_equal(node[i].name, WANT[i].name);
        assert_int_equal(node[i].type, WANT[i].type);
        assert_int_equal(node[i].meaning, WANT[i].meaning);
        assert_int_equal(node[i].max_def, WANT[i].max_def);
        assert_int_equal(node[i].max_rep, WANT[i].max_rep);
        assert_int_equal(node[i].end, i == 0 ? n : WANT[i].end);
        assert_int_equal(node[i].first_leaf, WANT[i].first_leaf);
        assert_int_equal(node[i].end_leaf, WANT[i].end_leaf);
    }
    assert_int_equal(parquet_n_rows(p), 2500);
    parquet_close(p);
}

/* What is read of the first row with some columns. */
static void expect_first(const char *file, const char *const *columns, int n, const char *want) {
    parquet *p;
    parquet_rows *r = open_rows(file, &p, columns, n);
    json_t *row, *expect = json_loads(want, 0, NULL);
    assert_ok(parquet_rows_next_json(r, &row, e));
    if (!json_equal(row, expect)) fail_msg("%s is read as %s", want, json_dumps(row, 0));
    json_decref(row);
    json_decref(expect);
    parquet_rows_close(r);
    parquet_close(p);
}

static void test_columns(void **state) {
    (void)state;
    const char *file = GOLDEN "nested.parquet";
    expect_first(file, (const char *[]){"int32", "choices.text"}, 2,
                 "{\"choices\":{\"text\":[]},\"int32\":null}");
    expect_first(GOLDEN "documents.parquet", (const char *[]){"meta.score", "id"}, 2,
                 "{\"id\":0,\"meta\":{\"score\":0.0}}");
    parquet *p;
    parquet_rows *r;
    err why = {0};
    assert_ok(parquet_open(&p, file, e));
    assert_int_equal(parquet_rows_open(&r, p, (const char *[]){"choices.no"}, 1, &why), ST_FORMAT);
    assert_non_null(strstr(why.message, "has no column choices.no"));
    assert_non_null(strstr(why.hint, "list, lists, messages"));
    parquet_close(p);
}

static void test_skip(void **state) {
    static const char *const ID[] = {"id"};
    const int64_t bytes = file_size(GOLDEN "documents.parquet");
    (void)state;
    for (int skip = 0; skip <= 2500; skip += 100) {
        parquet *p;
        parquet_rows *r = open_rows(GOLDEN "documents.parquet", &p, ID, 1);
        json_t *row;
        err why = {0};
        assert_ok(parquet_rows_skip(r, skip, e));
        assert_int_equal(parquet_rows_bytes_done(r), skip * bytes / 2500);
        assert_ok(parquet_rows_next_json(r, &row, e));
        if (skip < 2500)
            assert_int_equal(json_integer_value(json_object_get(row, "id")), skip);
        else
            assert_null(row);
        assert_int_equal(parquet_rows_skip(r, 2501 - skip, &why), ST_FORMAT);
        json_decref(row);
        parquet_rows_close(r);
        parquet_close(p);
    }
}

/* ---- what is refused ---- */

static status read_all(const char *path, err *e) {
    parquet *p;
    parquet_rows *r = NULL;
    strbuf line = {0};
    bool more = true;
    TRY(parquet_open(&p, path, e));
    status st = parquet_rows_open(&r, p, NULL, 0, e);
    while (st == ST_OK && more) {
        strbuf_clear(&line);
        st = parquet_rows_next(r, &line, &more, e);
    }
    strbuf_free(&line);
    parquet_rows_close(r);
    parquet_close(p);
    return st;
}

static void expect_refused(const char *path, const char *words) {
    err e = {0};
    assert_int_equal(read_all(path, &e), ST_FORMAT);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    assert_non_null(strstr(e.message, path));
    assert_string_equal(e.where, path);
    assert_true(e.hint[0]);
}

static void test_refused(void **state) {
    scene *sc = *state;
    expect_refused(GOLDEN "lz4.parquet", "is packed with lz4");
    expect_refused(GOLDEN "brotli.parquet", "column text of");
    expect_refused(GOLDEN "bomb-page.parquet", "unpacks to more than 1000 times its size");
    expect_refused(GOLDEN "bomb-dictionary.parquet", "unpacks to more than 1000 times its size");
    expect_refused(GOLDEN "columns-disagree.parquet", "row 1: its columns do not fit together");
    expect_refused(put_text(sc, "short", "PAR1"), "is too short");
    expect_refused(put_text(sc, "text", "Some text, and some more text"),
                   "does not begin with PAR1");
    expect_refused(put_text(sc, "cut", "PAR1 and what follows"), "does not end with PAR1");
    expect_refused(put_bytes(sc, "secret", "PAR1\0\0\0\0PARE", 12), "is an encrypted Parquet file");
    expect_refused(put_bytes(sc, "empty", "PAR1\0\0\0\0PAR1", 12),
                   "in its footer it ends too early");
    expect_refused(put_bytes(sc, "large", "PAR1\1\0\0\0PAR1", 12), "larger than the file");
    expect_refused(put_bytes(sc, "bare", "PAR1\0\1\0\0\0PAR1", 13), "it has no schema");
}

static void test_text_not_utf8(void **state) {
    (void)state;
    parquet *p;
    parquet_rows *r = open_rows(GOLDEN "latin1.parquet", &p, NULL, 0);
    json_t *row;
    err why = {0};
    assert_ok(parquet_rows_next_json(r, &row, e));
    json_decref(row);
    assert_int_equal(parquet_rows_next_json(r, &row, &why), ST_FORMAT);
    assert_null(row);
    assert_non_null(strstr(why.message, "row 2 of "));
    parquet_rows_close(r);
    parquet_close(p);
}

/* A byte of zero is text, as in JSONL. */
static void test_text_with_zero(void **state) {
    scene *sc = *state;
    char *data;
    size_t len;
    parquet *p;
    assert_ok(file_read_all(GOLDEN "latin1.parquet", &data, &len, e));
    char *odd = memchr(data, 0xE9, len);
    assert_non_null(odd);
    *odd = 0;
    parquet_rows *r = open_rows(put_bytes(sc, "zero", data, len), &p, NULL, 0);
    json_t *row;
    assert_ok(parquet_rows_next_json(r, &row, e));
    json_decref(row);
    assert_ok(parquet_rows_next_json(r, &row, e));
    const json_t *text = json_object_iter_value(json_object_iter(row));
    assert_non_null(memchr(json_string_value(text), 0, json_string_length(text)));
    json_decref(row);
    parquet_rows_close(r);
    parquet_close(p);
    free(data);
}

static void test_checksum(void **state) {
    char *data;
    size_t len;
    assert_ok(file_read_all(GOLDEN "plain.parquet", &data, &len, e));
    data[38] ^= 1; /* in the first page, behind its header */
    expect_refused(put_bytes(*state, "flipped", data, len),
                   "column bool, row group 1: a page does not have the checksum");
    free(data);
}

static void test_encoding_not_read(void **state) {
    static const char HEADER[] = {0x2c, 0x15, 4, 0x15, 0}; /* two values, PLAIN */
    char *data, *at;
    size_t len;
    assert_ok(file_read_all(GOLDEN "latin1.parquet", &data, &len, e));
    at = memmem(data, len, HEADER, sizeof HEADER);
    assert_non_null(at);
    at[4] = 2 * 10; /* ALP */
    expect_refused(put_bytes(*state, "alp", data, len), "has an encoding that is not read");
    free(data);
}

/* A file without a disk: thousands of them are written. */
static int put_in_memory(const char *data, size_t len, char path[32]) {
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* Whatever happens to the bytes, the file is read or refused; cut short, it is refused. */
static void damage(const char *file) {
    char *data, path[32];
    size_t len;
    assert_ok(file_read_all(file, &data, &len, e));
    int fd = put_in_memory(data, len, path);
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit += 3) {
            err why = {0};
            char other = (char)(data[i] ^ 1 << bit);
            assert_int_equal(pwrite(fd, &other, 1, (off_t)i), 1);
            status st = read_all(path, &why);
            if (st != ST_OK && (st != ST_FORMAT || !why.message[0]))
                fail_msg("byte %zu: status %d", i, st);
        }
        assert_int_equal(pwrite(fd, data + i, 1, (off_t)i), 1);
    }
    for (size_t i = len; i-- > 0;) {
        err why = {0};
        assert_int_equal(ftruncate(fd, (off_t)i), 0);
        assert_int_equal(read_all(path, &why), ST_FORMAT);
    }
    close(fd);
    free(data);
}

static void test_damaged(void **state) {
    (void)state;
    damage(GOLDEN "split.parquet");
    damage(GOLDEN "delta-v1.parquet");
    damage(GOLDEN "nested-old.parquet");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_skip),
        cmocka_unit_test_setup_teardown(test_refused, scene_open, scene_close),
        cmocka_unit_test(test_text_not_utf8),
        cmocka_unit_test_setup_teardown(test_text_with_zero, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_checksum, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_encoding_not_read, scene_open, scene_close),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
