/* Chunks: the same documents as one after the other, at the stated offsets; going on at a position;
 * bad records and how many of them are too many. */
#include "data_test.h"

#include "base/strbuf.h"
#include "data/text/reader.h"

enum { MANY = 30000 };

static reader *open_one(const char *in, const reader_options *opt) {
    reader *r;
    assert_ok(reader_open(&r, &in, 1, opt, e));
    return r;
}

/* A file of several chunks, lines of many lengths, some blank, and some bad. */
static const char *put_many(scene *sc, const char *name, int bad_every) {
    strbuf b = {0};
    for (int i = 0; i < MANY; i++) {
        if (i % 5 == 0) strbuf_puts(&b, "\n");
        if (bad_every && i % bad_every == bad_every - 1)
            strbuf_printf(&b, "{\"id\":%d,\"text\":", i);
        else
            strbuf_printf(&b, "{\"id\":%d,\"text\":\"%0*d%s\"}", i, 1 + i % 997, i,
                          i % 2 ? "\\u00e9" : "\xc3\xa9");
        strbuf_puts(&b, i % 7 ? "\n" : "\r\n");
    }
    const char *path = put_bytes(sc, name, b.data, b.len);
    strbuf_free(&b);
    return path;
}

static uint64_t hash_document(uint64_t h, const document *d) {
    uint64_t parts[] = {h, hash_bytes(d->text, d->len), d->line, d->offset,
                        d->id ? strtoull(d->id, NULL, 10) : 0};
    return hash_bytes(parts, sizeof parts);
}

static uint64_t hash_by_documents(const char *in, const reader_options *opt) {
    reader *r = open_one(in, opt);
    document d;
    uint64_t h = 0;
    for (bool more = true; more;) {
        assert_ok(reader_next(r, &d, &more, e));
        if (more) h = hash_document(h, &d);
    }
    reader_close(r);
    return h;
}

/* Reads `n` chunks at most; all of them stay open at once, as they would among threads. What follows is
 * read, too, and lost. */
static uint64_t hash_chunks(reader *r, int n, uint64_t h, reader_position *at, int *read) {
    *read = 0;
    chunk *c[64];
    while (*read < n && *read < 64) {
        assert_ok(reader_next_chunk(r, &c[*read], e));
        if (!c[*read]) break;
        ++*read;
    }
    for (chunk *ahead = *read > 0 ? c[0] : NULL; ahead;) {
        assert_ok(reader_next_chunk(r, &ahead, e));
        chunk_free(ahead);
    }
    for (int i = 0; i < *read; i++) {
        document d;
        while (chunk_next(c[i], &d)) h = hash_document(h, &d);
        assert_ok(reader_done(r, c[i], at, e));
        chunk_free(c[i]);
    }
    return h;
}

static void expect_same_at_every_stop(const char *in, const reader_options *opt) {
    uint64_t expect = hash_by_documents(in, opt);
    reader_position at = {0};
    reader_report first = {0}, found;
    for (int stop = 64; stop >= 0; stop = stop == 64 ? 4 : stop - 1) {
        int n;
        reader *r = open_one(in, opt);
        uint64_t h = hash_chunks(r, stop, 0, &at, &n);
        if (stop == 0) at = (reader_position){0};
        if (stop == 64) {
            first = *reader_get_report(r);
            assert_in_range(n, 3, 63);
        } else {
            found = stop > 0 ? *reader_get_report(r) : (reader_report){0};
            reader_close(r);
            r = open_one(in, opt);
            assert_ok(reader_seek(r, &at, &found, e));
            h = hash_chunks(r, 64, h, &at, &n);
        }
        assert_true(h == expect);
        assert_ok(reader_finish(r, e));
        const reader_report *p = reader_get_report(r);
        if (stop == 64) memcpy(first.charset, p->charset, sizeof p->charset);
        assert_memory_equal(p->charset, first.charset, sizeof p->charset);
        assert_int_equal(p->documents, first.documents);
        assert_int_equal(p->records, first.records);
        assert_int_equal(p->bad, first.bad);
        assert_int_equal(at.documents, first.documents);
        reader_close(r);
    }
}

static void test_jsonl(void **state) {
    reader_options opt = {.id = "id", .max_bad = 0.01};
    const char *in = put_many(*state, "a.jsonl", 200);
    expect_same_at_every_stop(in, &opt);
    reader *r = open_one(in, &opt);
    int n;
    reader_position at;
    hash_chunks(r, 64, 0, &at, &n);
    const reader_report *p = reader_get_report(r);
    assert_int_equal(p->records, MANY);
    assert_int_equal(p->bad, MANY / 200);
    assert_int_equal(p->documents, MANY - MANY / 200);
    assert_int_equal(p->n_samples, 8);
    assert_int_equal(p->sample[0].line, 240); /* 199 before it, and 40 blank lines */
    assert_non_null(strstr(p->sample[0].why, "is not JSON: a value is missing"));
    assert_string_equal(p->sample[0].start, "{\"id\":199,\"text\":");
    assert_int_equal(at.line, MANY + MANY / 5);
    reader_close(r);
}

/* The bytes at the offset of a document are its record. */
static void test_offsets(void **state) {
    scene *sc = *state;
    char *bytes;
    size_t len;
    const char *in = put_many(sc, "a.jsonl", 0);
    assert_ok(file_read_all(in, &bytes, &len, e));
    reader *r = open_one(in, &(reader_options){.id = "id"});
    document d;
    bool more;
    for (int i = 0; i < MANY; i++) {
        char expect[32];
        assert_ok(reader_next(r, &d, &more, e));
        int n = snprintf(expect, sizeof expect, "{\"id\":%d,", i);
        assert_true(d.offset + (uint64_t)n < len);
        assert_memory_equal(bytes + d.offset, expect, (size_t)n);
    }
    reader_close(r);
    free(bytes);
}

static const char *put_table(scene *sc, const char *name, const char *mark) {
    strbuf b = {0};
    strbuf_printf(&b, "%sid,text\r\n", mark);
    for (int i = 0; i < MANY; i++)
        strbuf_printf(&b, "%d,\"%0*d\n\"\"quoted, too\"\"\"\r\n", i, 1 + i % 997, i);
    const char *path = put_bytes(sc, name, b.data, b.len);
    strbuf_free(&b);
    return path;
}

static void test_csv(void **state) {
    reader_options opt = {.id = "id"};
    expect_same_at_every_stop(put_table(*state, "a.csv", ""), &opt);
    expect_same_at_every_stop(put_table(*state, "b.csv", "\xef\xbb\xbf"), &opt);
}

static void test_across_files(void **state) {
    scene *sc = *state;
    const char *in[] = {put_text(sc, "a.txt", "A"), put_text(sc, "b.jsonl", "{\"text\":\"B\"}\n"),
                        put_text(sc, "c.txt", ""), put_text(sc, "d.txt", "D")};
    for (int stop = 0; stop < 4; stop++) {
        reader *r;
        reader_position at = {0};
        int n;
        assert_ok(reader_open(&r, in, 4, NULL, e));
        hash_chunks(r, stop, 0, &at, &n);
        assert_int_equal(at.documents, stop < 3 ? stop : 2);
        reader_report found = *reader_get_report(r);
        reader_close(r);
        assert_ok(reader_open(&r, in, 4, NULL, e));
        assert_ok(reader_seek(r, &at, &found, e));
        hash_chunks(r, 64, 0, &at, &n);
        assert_int_equal(at.documents, 3);
        assert_int_equal(at.file, 4);
        assert_ok(reader_finish(r, e));
        assert_int_equal(reader_get_report(r)->charset[0].files, 3);
        reader_close(r);
    }
}

static void test_shorter_file(void **state) {
    static const char *const NAMES[] = {"a.jsonl", "a.csv"};
    scene *sc = *state;
    for (int i = 0; i < 2; i++) {
        const char *in = put_text(sc, NAMES[i], i ? "text\nx\n" : "{\"text\":\"\xc3\xa9\"}\n");
        reader *r = open_one(in, NULL);
        err e = {0};
        reader_position at = {.offset = 5000000, .line = 7};
        assert_int_equal(reader_seek(r, &at, NULL, &e), ST_FORMAT);
        assert_non_null(strstr(e.message, "has become shorter"));
        reader_close(r);
    }
}

/* ---- bad records ---- */

static void expect_failure(const char *in, double max_bad, const char *words, const char *where,
                           const char *hint) {
    reader *r = open_one(in, &(reader_options){.max_bad = max_bad});
    err e = {0};
    document d;
    bool more = true;
    status st = ST_OK;
    while (st == ST_OK && more) st = reader_next(r, &d, &more, &e);
    reader_close(r);
    assert_int_equal(st, ST_FORMAT);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    if (!strstr(e.where, where)) fail_msg("where \"%s\" lacks \"%s\"", e.where, where);
    if (!strstr(e.hint, hint)) fail_msg("hint \"%s\" lacks \"%s\"", e.hint, hint);
}

static void test_too_many_bad(void **state) {
    scene *sc = *state;
    const char *in = put_many(sc, "a.jsonl", 50);
    expect_failure(in, -1, "a.jsonl:60 is not JSON", "a.jsonl:60", "max_bad=");
    expect_failure(in, 0.019, "max_bad=0.019 allows 1.9 %", "a.jsonl:60", "max_bad=");
    expect_failure(in, 0, "a.jsonl:60 is not JSON", "a.jsonl:60", "one object a line");
    assert_true(hash_by_documents(in, &(reader_options){.max_bad = 0.021}) != 0);
    in = put_text(sc, "b.jsonl", "{\"text\":\"x\"}\n{\"txt\":\"y\"}\n");
    expect_failure(in, 0.4, "b.jsonl:2 has no field text; 1 of 2 records are bad (50 %)",
                   "b.jsonl:2", "(the record has \"txt\"); or pass over more");
}

/* Among many good records a file in which none is good still stops the reading. */
static void test_file_all_bad(void **state) {
    scene *sc = *state;
    put_many(sc, "a.jsonl", 0);
    put_text(sc, "b.jsonl", "\n{\"body\":\"x\"}\n{\"body\":\"y\"}\n");
    put_text(sc, "c.jsonl", "{\"text\":\"x\"}\n");
    expect_failure(sc->dir, -1, "b.jsonl:2 has no field text, and so all 2 records", "b.jsonl:2",
                   "field=NAME");
}

static void test_parquet(void **state) {
    (void)state;
    expect_same_at_every_stop(TEST_DIR "/golden/parquet/documents.parquet",
                              &(reader_options){.id = "id", .max_bad = 1});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_jsonl, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_offsets, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_csv, scene_open, scene_close),
        cmocka_unit_test(test_parquet),
        cmocka_unit_test_setup_teardown(test_across_files, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_shorter_file, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_too_many_bad, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_file_all_bad, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
