/* Shard folders: what is written is read back, and no damage goes unnoticed or crashes. */
#include "data_test.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "data/build/place.h"
#include "data/shard/shard_format.h"

static char *slurp(const char *path, size_t *n) {
    char *data = NULL;
    assert_ok(file_read_all(path, &data, n, e));
    return data;
}

static void expect_open_error(const char *dir, status code, const char *words) {
    shards *s;
    err e = {0};
    assert_int_equal(open_set(&s, dir, &e), code);
    assert_null(s);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    assert_true(e.hint[0] != '\0' && e.where[0] != '\0');
}

static void round_trip(scene *sc, const char *name, int32_t vocab, int width) {
    const char *dir = counting_set(sc, name, 500, 300, vocab, 400);
    shards *s = NULL;
    assert_ok(open_set(&s, dir, e));
    assert_ok(shards_verify(s, e));
    assert_int_equal(s->width_bytes, width);
    assert_int_equal(s->totals.documents, 500);
    assert_true(s->n_shards > 3);
    assert_int_equal(s->totals.text_bytes, s->totals.tokens * 3);
    int64_t n = (int64_t)s->totals.tokens;
    int32_t *ids = xcalloc((size_t)n, sizeof *ids);
    uint32_t largest;
    assert_ok(shards_copy(s, 0, n, ids, &largest, e));
    assert_int_equal(largest, n < vocab ? n - 1 : vocab - 1);
    for (int64_t i = 0; i < n; i++) assert_int_equal(ids[i], i % vocab);
    uint64_t at = 0;
    for (uint64_t d = 0; d < 500; d++) {
        shard_place r, at_first, at_last;
        r = document_of(s, d, sc->mem);
        assert_int_equal(r.document, d);
        assert_int_equal(r.first_tok, at);
        assert_int_equal(r.text_offset, at * 3);
        at += (uint64_t)doc_length(d, 300);
        assert_int_equal(r.end_tok, at);
        assert_int_equal(r.line, d + 1);
        assert_string_equal(r.source, d % 2 ? "odd.txt" : "even.txt");
        assert_true(isnan(r.score) && !r.id);
        assert_ok(shards_locate(s, r.first_tok, sc->mem, &at_first, e));
        assert_ok(shards_locate(s, r.end_tok - 1, sc->mem, &at_last, e));
        assert_int_equal(at_first.document, d);
        assert_int_equal(at_last.document, d);
        int32_t one;
        assert_ok(shards_copy(s, r.end_tok - 1, 1, &one, NULL, e));
        assert_int_equal(one, (at - 1) % (uint64_t)vocab);
    }
    free(ids);
    shards_close(s);
}

static void test_round_trip_u16(void **state) {
    round_trip(*state, "u16", 65536, 2);
}
static void test_round_trip_u32(void **state) {
    round_trip(*state, "u32", 65537, 4);
}

static void test_eos_and_sources(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "eos");
    shard_writer_options opt = {.tok_hash = 1, .vocab_size = 10, .eos = 9};
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    const int32_t ids[] = {1, 2, 3, 10};
    assert_ok(shard_writer_add(w, &(shard_record){.ids = ids, .n = 2, .source = "a"}, e));
    assert_ok(shard_writer_add(w, &(shard_record){.source = "empty"}, e));
    assert_ok(
        shard_writer_add(w, &(shard_record){.ids = ids + 2, .n = 1, .source = "b", .line = 7}, e));
    err e2 = {0};
    shard_record bad = {.ids = ids + 3, .n = 1, .source = "c"};
    assert_int_equal(shard_writer_add(w, &bad, &e2), ST_USAGE);
    assert_non_null(strstr(e2.message, "10"));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    shards *s;
    assert_ok(open_set(&s, dir, e));
    int32_t out[5];
    uint32_t largest;
    assert_int_equal(s->totals.tokens, 5);
    assert_int_equal(s->eos, 9);
    assert_ok(shards_copy(s, 0, 5, out, &largest, e));
    assert_int_equal(largest, 9);
    assert_memory_equal(out, ((int32_t[]){1, 2, 9, 3, 9}), sizeof out);
    shard_place r;
    r = document_of(s, 1, sc->mem);
    assert_string_equal(r.source, "b");
    assert_int_equal(r.line, 7);
    shards_close(s);
}

static void test_empty_set_is_an_error(void **state) {
    shard_writer_options opt = {.vocab_size = 10, .eos = -1};
    shard_writer *w;
    err e = {0};
    const char *dir = in_scene(*state, "empty");
    assert_int_equal(shard_writer_open(&w, dir, &opt, &e), ST_OK);
    assert_int_equal(shard_writer_finish(w, &e), ST_USAGE);
    shard_writer_free(w);
    assert_false(file_exists(in_scene(*state, "empty/manifest.json")));
}

static void test_rebuild_removes_old_shards(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "again", 500, 300, 100, 400);
    put_text(sc, "again/notes.txt", "mine");
    assert_true(file_exists(in_scene(sc, "again/shard-00002.bin")));
    counting_set(sc, "again", 3, 5, 100, 0);
    assert_false(file_exists(in_scene(sc, "again/shard-00002.bin")));
    assert_true(file_exists(in_scene(sc, "again/notes.txt")));
    shards *s;
    assert_ok(open_set(&s, dir, e));
    assert_ok(shards_verify(s, e));
    shards_close(s);
}

static void test_missing(void **state) {
    scene *sc = *state;
    expect_open_error(in_scene(sc, "nowhere"), ST_USAGE, "no such folder");
    expect_open_error(put_text(sc, "file.txt", "x"), ST_USAGE, "is text");
    counting_set(sc, "bare", 3, 5, 100, 0);
    remove(in_scene(sc, "bare/manifest.json"));
    expect_open_error(in_scene(sc, "bare"), ST_FORMAT, "no manifest.json");
    assert_ok(file_make_dirs(in_scene(sc, "split"), e));
    counting_set(sc, "split/train", 3, 5, 100, 0);
    expect_open_error(in_scene(sc, "split"), ST_USAGE, "holds a split");
    counting_set(sc, "gone", 3, 5, 100, 0);
    remove(in_scene(sc, "gone/shard-00000.idx"));
    expect_open_error(in_scene(sc, "gone"), ST_FORMAT, "shard-00000.idx is missing");
}

/* Ends within ranges of all kinds, over the borders of shards, against the documents' lengths. */
static void test_ends(void **state) {
    scene *sc = *state;
    enum { MANY = 900 };
    static uint64_t end[MANY];
    shards *s;
    assert_ok(open_set(&s, counting_set(sc, "ends", MANY, 200, 100, 700), e));
    assert_ok(shards_bounds(s, 0, MANY, end, NULL, e));
    uint64_t sum = 0;
    for (int d = 0; d < MANY; d++)
        assert_int_equal(end[d], sum += (uint64_t)doc_length((uint64_t)d, 200));
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t first = mix64(i) % s->totals.tokens;
        int64_t n = (int64_t)(mix64(i + 1) % 1500), n_ends, k = 0;
        if ((uint64_t)n > s->totals.tokens - first) n = (int64_t)(s->totals.tokens - first);
        int32_t ends[1500];
        assert_ok(shards_ends(s, first, n, NULL, ends, &n_ends, e));
        for (int d = 0; d < MANY; d++)
            if (end[d] > first && end[d] <= first + (uint64_t)n)
                assert_int_equal(ends[k++], end[d] - first);
        assert_int_equal(n_ends, k);
    }
    shards_close(s);
}

typedef struct copier {
    const shards *s;
    uint64_t seed;
    bool good;
} copier;

static void *copy_at_random(void *arg) {
    copier *c = arg;
    int32_t ids[64];
    c->good = true;
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t first = mix64(c->seed + i) % (c->s->totals.tokens - 64);
        err e;
        c->good = c->good && shards_copy(c->s, first, 64, ids, NULL, &e) == ST_OK;
        for (uint64_t k = 0; k < 64; k++)
            c->good = c->good && (uint64_t)ids[k] == (first + k) % 100;
    }
    return NULL;
}

/* Threads that read from more files than may stay open, through a cache of three, shared with
 * another set that is closed meanwhile. */
static void test_many_readers(void **state) {
    scene *sc = *state;
    shard_files *files = shard_files_new(3);
    shards *s, *other;
    shards_spec spec = {
        .path = counting_set(sc, "many", 900, 200, 100, 300), .eos = -1, .files = files};
    assert_ok(shards_open(&s, &spec, e));
    assert_ok(shards_open(&other, &spec, e));
    assert_true(s->n_shards > 10);
    pthread_t thread[6];
    copier c[6];
    for (int i = 0; i < 6; i++) {
        c[i] = (copier){.s = s, .seed = (uint64_t)i << 20};
        assert_int_equal(pthread_create(&thread[i], NULL, copy_at_random, &c[i]), 0);
    }
    shards_close(other);
    for (int i = 0; i < 6; i++) {
        pthread_join(thread[i], NULL);
        assert_true(c[i].good);
    }
    shards_close(s);
    shard_files_free(files);
}

static void test_file_cut_while_in_use(void **state) {
    scene *sc = *state;
    shards *s;
    int32_t ids[50];
    assert_ok(open_set(&s, counting_set(sc, "live", 50, 100, 100, 0), e));
    assert_ok(shards_copy(s, s->totals.tokens - 50, 50, ids, NULL, e));
    assert_int_equal(truncate(in_scene(sc, "live/shard-00000.bin"), 100), 0);
    err failure = {0};
    assert_int_equal(shards_copy(s, s->totals.tokens - 50, 50, ids, NULL, &failure), ST_FORMAT);
    assert_non_null(strstr(failure.message, "cut while in use"));
    shards_close(s);
    assert_ok(open_set(&s, counting_set(sc, "live", 50, 100, 100, 0), e));
    file_fault_arm("read:1");
    assert_int_equal(shards_copy(s, 0, 10, ids, NULL, &failure), ST_FORMAT);
    file_fault_arm(NULL);
    assert_non_null(strstr(failure.message, "shard-00000.bin"));
    assert_ok(shards_copy(s, 0, 10, ids, NULL, e));
    shards_close(s);
}

/* Puts a copy of the set's second shard under its name, and, in place, one more byte into its third:
 * what a build, or a program that writes anew, does to a file that is not open. */
static void replace_shards(scene *sc, const char *dir) {
    const char *second = path_join(sc->mem, dir, "shard-00001.bin");
    const char *other = path_join(sc->mem, dir, "copy");
    size_t n;
    char *bytes = slurp(second, &n);
    put_bytes(sc, other, bytes, n);
    assert_int_equal(rename(other, second), 0);
    free(bytes);
    FILE *f = fopen(path_join(sc->mem, dir, "shard-00002.bin"), "ab");
    assert_true(f && fputc('x', f) == 'x' && fclose(f) == 0);
}

/* Files that are not those that the set was opened with are not read, whether they were closed in
 * between (a cache of one) or stayed open. */
static void expect_changed(scene *sc, const char *name, int open_files, bool index_too) {
    const char *dir = counting_set(sc, name, 500, 300, 100, 400);
    shard_files *files = shard_files_new(open_files);
    shards *s;
    shards_spec spec = {.path = dir, .eos = -1, .files = files};
    assert_ok(shards_open(&s, &spec, e));
    int32_t ids[4];
    for (int i = 0; i < 4; i++) assert_ok(shards_copy(s, s->shard[i].first_tok, 4, ids, NULL, e));
    replace_shards(sc, dir);
    for (int i = open_files > 1 ? 2 : 1; i < 3; i++) {
        err failure = {0};
        assert_int_equal(shards_copy(s, s->shard[i].first_tok, 4, ids, NULL, &failure), ST_FORMAT);
        assert_non_null(strstr(failure.message, s->shard[i].file));
        assert_non_null(strstr(failure.message, "changed while it was in use"));
        assert_true(failure.where[0] && failure.hint[0]);
    }
    assert_ok(shards_copy(s, 0, 4, ids, NULL, e));
    if (index_too) {
        assert_ok(place_set(counting_set(sc, "anew", 500, 300, 100, 400), dir, e));
        shard_place place;
        err failure = {0};
        assert_int_equal(shards_locate(s, 0, sc->mem, &place, &failure), ST_FORMAT);
        assert_non_null(strstr(failure.message, "shard-00000.idx was changed"));
    }
    shards_close(s);
    shard_files_free(files);
}

static void test_changed_while_in_use(void **state) {
    expect_changed(*state, "closed", 1, true);
    expect_changed(*state, "open", 100, false);
}

/* A build that ends between the look at the manifest and the look at the shards: sizes and headers
 * are the same, the tokens are others. */
static void test_rebuilt_while_opened(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "meanwhile", 50, 100, 100, 0);
    shards *s;
    const char *anew = counting_set(sc, "anew", 50, 100, 100, 0);
    assert_ok(own_open(&s, dir, 0, e));
    assert_ok(place_set(anew, dir, e));
    shards_use_files(s, NULL);
    err failure = {0};
    assert_int_equal(own_check_files(s, &failure), ST_FORMAT);
    assert_non_null(strstr(failure.message, "rebuilt while it was opened"));
    assert_true(failure.where[0] && failure.hint[0]);
    shards_close(s);
    assert_ok(open_set(&s, dir, e));
    shards_close(s);
}

static void test_other_tokenizer(void **state) {
    shards *s;
    assert_ok(open_set(&s, counting_set(*state, "tok", 3, 5, 100, 0), e));
    err e = {0};
    assert_int_equal(shards_check_tokenizer(s, 0x1234, &e), ST_OK);
    assert_int_equal(shards_check_tokenizer(s, 0x9, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "0000000000001234"));
    assert_non_null(strstr(e.message, "0000000000000009"));
    assert_non_null(strstr(e.hint, "data build"));
    shards_close(s);
}

/* Asks all questions about all places: answers must lie in bounds or be errors. */
static void look_everywhere(scene *sc, const shards *s) {
    int32_t ends[64];
    int64_t n_ends;
    for (uint64_t t = 0; t < s->totals.tokens; t += 13) {
        shard_place r;
        int64_t n = (int64_t)(s->totals.tokens - t < 64 ? s->totals.tokens - t : 64);
        if (shards_locate(s, t, sc->mem, &r, NULL) == ST_OK)
            assert_true(r.first_tok <= t && t < r.end_tok && r.end_tok <= s->totals.tokens);
        if (shards_ends(s, t, n, NULL, ends, &n_ends, NULL) != ST_OK) continue;
        assert_true(n_ends <= n);
        for (int64_t i = 0; i < n_ends; i++)
            assert_true(ends[i] > (i ? ends[i - 1] : 0) && ends[i] <= n);
    }
}

/* Every byte of the file in turn gets another value. Headers must be refused when opening, bodies
 * by shards_verify; lookups on what opens must stay in bounds (the sanitizers watch). */
static void flip_every_byte(scene *sc, const char *dir, const char *path) {
    size_t n;
    char *good = slurp(path, &n);
    for (size_t i = 0; i < n; i++) {
        char *bad = xmalloc(n);
        memcpy(bad, good, n);
        bad[i] = (char)(bad[i] ^ (1 << (i % 8)));
        put_bytes(sc, path, bad, n);
        free(bad);
        shards *s;
        err e = {0};
        status st = open_set(&s, dir, &e);
        if (i < SHARD_HEADER_BYTES) assert_int_equal(st, ST_FORMAT);
        if (st != ST_OK) continue;
        assert_int_equal(shards_verify(s, &e), ST_FORMAT);
        assert_non_null(strstr(e.message, path));
        look_everywhere(sc, s);
        shards_close(s);
    }
    put_bytes(sc, path, good, n);
    free(good);
}

static void test_every_byte_flipped(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "flip", 40, 20, 100, 0);
    flip_every_byte(sc, dir, in_scene(sc, "flip/shard-00000.bin"));
    flip_every_byte(sc, dir, in_scene(sc, "flip/shard-00000.idx"));
}

static void test_every_truncation(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "cut", 20, 10, 100, 0);
    const char *names[] = {"cut/shard-00000.bin", "cut/shard-00000.idx"};
    for (int k = 0; k < 2; k++) {
        const char *path = in_scene(sc, names[k]);
        size_t n;
        char *good = slurp(path, &n);
        for (size_t len = 0; len < n; len++) {
            put_bytes(sc, path, good, len);
            expect_open_error(dir, ST_FORMAT, "truncated");
        }
        put_bytes(sc, path, good, n);
        free(good);
    }
}

/* The manifest with each byte changed, and cut at each length: an error or an equal set. */
static void test_hostile_manifest(void **state) {
    scene *sc = *state;
    const char *dir = counting_set(sc, "man", 20, 10, 100, 40);
    size_t n;
    char *good = slurp(in_scene(sc, "man/manifest.json"), &n);
    for (size_t i = 0; i < 2 * n; i++) {
        char *bad = xmalloc(n);
        memcpy(bad, good, n);
        size_t len = i < n ? n : i - n;
        if (i < n) bad[i] = (char)(bad[i] ^ (1 << (i % 7)));
        put_bytes(sc, "man/manifest.json", bad, len);
        free(bad);
        shards *s;
        err e = {0};
        if (open_set(&s, dir, &e) == ST_OK) {
            if (shards_verify(s, &e) != ST_OK) assert_int_equal(e.code, ST_FORMAT);
            shards_close(s);
        } else {
            assert_int_equal(e.code, ST_FORMAT);
        }
    }
    free(good);
}

static void manifest_says(scene *sc, const char *from, const char *to, const char *words) {
    const char *dir = counting_set(sc, "says", 20, 10, 100, 40);
    const char *path = in_scene(sc, "says/manifest.json");
    size_t n;
    char *text = slurp(path, &n);
    char *at = strstr(text, from);
    assert_non_null(at);
    char *out = arena_printf(sc->mem, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    put_text(sc, "says/manifest.json", out);
    free(text);
    expect_open_error(dir, ST_FORMAT, words);
}

static void test_manifest_keys(void **state) {
    scene *sc = *state;
    manifest_says(sc, "\"version\": 2", "\"version\": 1", "earlier version");
    manifest_says(sc, "\"dtype\": \"u16\"", "\"dtype\": \"f16\"", "dtype");
    manifest_says(sc, "\"dtype\": \"u16\"", "\"dtype\": \"u32\"", "truncated");
    manifest_says(sc, "shard-00000.bin", "../../../etc/passwd", "next shard");
    manifest_says(sc, "\"tokens\": ", "\"tokens\": -", "tokens");
    manifest_says(sc, "\"tokens\": ", "\"tokens\": 90000", "tokens");
    manifest_says(sc, "\"vocab_size\": 100", "\"vocab_size\": 99", "vocabulary");
    manifest_says(sc, "athanor-shards", "other", "format");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip_u16, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_round_trip_u32, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_eos_and_sources, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_empty_set_is_an_error, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_rebuild_removes_old_shards, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_missing, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_ends, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_many_readers, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_file_cut_while_in_use, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_changed_while_in_use, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_rebuilt_while_opened, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_other_tokenizer, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_every_byte_flipped, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_every_truncation, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_hostile_manifest, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_manifest_keys, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
