/* gzip and zstd: told by content, several members, every way to be cut off or damaged. */
#include "data_test.h"

#include <zlib.h>
#include <zstd.h>

#include "base/file_fault.h"
#include "base/strbuf.h"
#include "data/text/reader.h"
#include "data/text/stream.h"

enum { LINES = 3000 };

static void make_lines(strbuf *b, int from, int to) {
    for (int i = from; i < to; i++) strbuf_printf(b, "{\"text\":\"%0*d\"}\n", 1 + i % 700, i);
}

static void pack_gzip(strbuf *out, const strbuf *in) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, in->len);
    z.next_out = (Bytef *)strbuf_extend(out, room);
    z.avail_out = (uInt)room;
    z.next_in = (Bytef *)in->data;
    z.avail_in = (uInt)in->len;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    strbuf_truncate(out, out->len - z.avail_out);
    deflateEnd(&z);
}

static void pack_zstd(strbuf *out, const strbuf *in) {
    size_t room = ZSTD_compressBound(in->len), before = out->len;
    size_t n = ZSTD_compress(strbuf_extend(out, room), room, in->data, in->len, 3);
    assert_false(ZSTD_isError(n));
    strbuf_truncate(out, before + n);
}

typedef void packer(strbuf *out, const strbuf *in);

/* The lines in two members. */
static void make_packed(strbuf *out, packer *pack) {
    strbuf part = {0};
    make_lines(&part, 0, LINES / 3);
    pack(out, &part);
    strbuf_clear(&part);
    make_lines(&part, LINES / 3, LINES);
    pack(out, &part);
    strbuf_free(&part);
}

static status read_through(const char *in, int *documents, err *e) {
    reader *r;
    document d;
    bool more = true;
    *documents = 0;
    status st = reader_open(&r, &in, 1, &(reader_options){.format = READER_JSONL}, e);
    while (st == ST_OK && more) {
        st = reader_next(r, &d, &more, e);
        if (st != ST_OK || !more) break;
        assert_int_equal(atoi(d.text), *documents);
        assert_true(d.len >= 1 + (size_t)*documents % 700);
        ++*documents;
    }
    if (st == ST_OK) assert_int_equal(reader_bytes_done(r), reader_bytes_total(r));
    reader_close(r);
    return st;
}

static void expect_all(const char *in) {
    int n;
    assert_ok(read_through(in, &n, e));
    assert_int_equal(n, LINES);
}

static void test_members(void **state) {
    strbuf b = {0};
    make_packed(&b, pack_gzip);
    expect_all(put_bytes(*state, "a.jsonl.gz", b.data, b.len));
    expect_all(put_bytes(*state, "misnamed.jsonl", b.data, b.len));
    strbuf_append(&b, "\0\0\0\0\0", 5); /* as tapes pad */
    expect_all(put_bytes(*state, "padded.jsonl.gz", b.data, b.len));
    strbuf_clear(&b);
    make_packed(&b, pack_zstd);
    strbuf_append(&b, "\x50\x2a\x4d\x18\x03\0\0\0abc", 11); /* a frame to be skipped */
    expect_all(put_bytes(*state, "a.jsonl.zst", b.data, b.len));
    strbuf_clear(&b);
    make_lines(&b, 0, LINES);
    expect_all(put_bytes(*state, "plain.jsonl.gz", b.data, b.len));
    strbuf_free(&b);
}

static void test_text(void **state) {
    strbuf in = {0}, out = {0};
    for (int i = 0; i < 300000; i++) strbuf_printf(&in, "line %d\n", i);
    pack_zstd(&out, &in);
    const char *path = put_bytes(*state, "a.txt.zst", out.data, out.len);
    reader *r;
    document d;
    bool more;
    assert_ok(reader_open(&r, &path, 1, NULL, e));
    assert_true(reader_is_text_only(r));
    assert_ok(reader_next(r, &d, &more, e));
    assert_int_equal(d.len, in.len);
    assert_memory_equal(d.text, in.data, in.len);
    reader_close(r);
    strbuf_free(&in);
    strbuf_free(&out);
}

static void expect_broken(const char *path, const char *kind) {
    err e = {0};
    int n;
    assert_int_equal(read_through(path, &n, &e), ST_FORMAT);
    if (!strstr(e.message, path)) fail_msg("\"%s\" does not name the file", e.message);
    if (kind && !strstr(e.message, kind)) fail_msg("\"%s\" lacks \"%s\"", e.message, kind);
    assert_true(e.hint[0] && e.where[0]);
}

/* Cut anywhere but between members, a file is broken and is said to be. */
static void expect_cuts_seen(scene *sc, packer *pack, const char *name, const char *kind) {
    strbuf b = {0}, first = {0}, lines = {0};
    make_lines(&lines, 0, LINES / 3);
    pack(&first, &lines);
    make_packed(&b, pack);
    for (size_t n = 4; n < b.len; n += 1 + n / 40) {
        if (n == first.len) continue;
        expect_broken(put_bytes(sc, name, b.data, n), kind);
    }
    expect_broken(put_bytes(sc, name, b.data, b.len - 1), "it ends too early");
    strbuf_free(&b);
    strbuf_free(&first);
    strbuf_free(&lines);
}

static void test_cut_off(void **state) {
    expect_cuts_seen(*state, pack_gzip, "a.jsonl.gz", "broken gzip file");
    expect_cuts_seen(*state, pack_zstd, "a.jsonl.zst", "broken zstd file");
}

/* gzip has checksums, so no change of its data goes unseen. */
static void test_damaged(void **state) {
    strbuf b = {0};
    make_packed(&b, pack_gzip);
    for (size_t at = 10; at < b.len; at += 1 + b.len / 50) {
        b.data[at] ^= 0x10;
        expect_broken(put_bytes(*state, "a.jsonl.gz", b.data, b.len), NULL);
        b.data[at] ^= 0x10;
    }
    strbuf_free(&b);
}

static void test_failing_reads(void **state) {
    strbuf b = {0};
    make_packed(&b, pack_gzip);
    const char *path = put_bytes(*state, "a.jsonl.gz", b.data, b.len);
    for (int n = 1;; n++) {
        char spec[32];
        err e = {0};
        int documents;
        snprintf(spec, sizeof spec, "read:%d", n);
        assert_true(file_fault_arm(spec));
        status st = read_through(path, &documents, &e);
        bool struck = file_fault_struck();
        file_fault_arm(NULL);
        assert_int_equal(st == ST_OK, !struck);
        if (st == ST_OK) break;
        assert_non_null(strstr(e.message, "cannot read"));
        assert_non_null(strstr(e.message, path));
    }
    strbuf_free(&b);
}

static status read_stream(const char *path, uint64_t *bytes, err *e) {
    enum { N = 1 << 20 };
    char *p = xmalloc(N);
    stream *s = NULL;
    size_t got = 1;
    *bytes = 0;
    status st = stream_open(&s, path, e);
    while (st == ST_OK && got > 0) {
        st = stream_read(s, p, N, &got, e);
        *bytes += st == ST_OK ? got : 0;
    }
    stream_close(s);
    free(p);
    return st;
}

static void expect_refused(const char *path, const char *words) {
    err e = {0};
    uint64_t bytes;
    assert_int_equal(read_stream(path, &bytes, &e), ST_FORMAT);
    assert_true(bytes < 70 << 20);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    assert_true(e.hint[0] && e.where[0]);
}

/* Kilobytes that unpack to anything, or ask for any memory. Long runs in a file of other text are
 * no bomb, nor is a file of them that is not packed. */
static void test_bombs(void **state) {
    scene *sc = *state;
    enum { RUN_BYTES = 70 << 20, NOISE_BYTES = 256 << 10 };
    strbuf run = {0}, zstd = {0}, gzip = {0}, text = {0}, noise = {0};
    memset(strbuf_extend(&run, RUN_BYTES), 'a', RUN_BYTES);
    pack_zstd(&zstd, &run);
    expect_refused(put_bytes(sc, "a.txt.zst", zstd.data, zstd.len),
                   "more than 1000 times its size");
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)run.data;
    z.avail_in = RUN_BYTES;
    z.avail_out = 1 << 20;
    z.next_out = (Bytef *)strbuf_extend(&gzip, 1 << 20);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    strbuf_truncate(&gzip, gzip.len - z.avail_out);
    deflateEnd(&z);
    expect_refused(put_bytes(sc, "a.txt.gz", gzip.data, gzip.len), "more than 1000 times its size");
    expect_refused(put_bytes(sc, "w.txt.zst", "\x28\xb5\x2f\xfd\0\xa8\0\0\0", 9),
                   "more than 128 MiB of memory");
    uint64_t bytes;
    for (uint64_t i = 0; i < NOISE_BYTES / 8; i++) strbuf_append(&text, &(uint64_t){mix64(i)}, 8);
    pack_zstd(&noise, &text);
    strbuf_append(&noise, zstd.data, zstd.len);
    assert_ok(read_stream(put_bytes(sc, "b.txt.zst", noise.data, noise.len), &bytes, e));
    assert_int_equal(bytes, RUN_BYTES + NOISE_BYTES);
    assert_ok(read_stream(put_bytes(sc, "a.txt", run.data, run.len), &bytes, e));
    assert_int_equal(bytes, RUN_BYTES);
    strbuf_free(&run);
    strbuf_free(&zstd);
    strbuf_free(&gzip);
    strbuf_free(&text);
    strbuf_free(&noise);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_members, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_text, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_cut_off, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_damaged, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_failing_reads, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_bombs, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
