/* Token files of other programs: the golden files hold one corpus in every format (see
 * tests/oracle/make_token_files.py), and all must give its tokens and its documents. */
#include "data_test.h"

#include <math.h>

#include "base/file_fault.h"

enum { DOCS = 40, VOCAB = 120, EOS = 0, MAX_TOKENS = 1000 };

#define GOLDEN TEST_DIR "/golden/data/"

typedef struct corpus {
    int32_t ids[MAX_TOKENS];
    uint64_t end[DOCS]; /* tokens up to the end of each document */
    int64_t n;
} corpus;

static void add_id(corpus *c, int32_t id) {
    c->ids[c->n++] = id;
}

/* Document d of 40 has 1 + 7 d mod 23 ids; id i of it is 1 + (31 d + 17 i) mod 119. */
static corpus make_corpus(bool eos_first) {
    corpus c = {.n = 0};
    for (int d = 0; d < DOCS; d++) {
        if (eos_first) add_id(&c, EOS);
        for (int i = 0; i < 1 + d * 7 % 23; i++) add_id(&c, 1 + (d * 31 + i * 17) % (VOCAB - 1));
        if (!eos_first) add_id(&c, EOS);
        c.end[d] = (uint64_t)c.n;
    }
    return c;
}

static status open_tokens(shards **out, const char *path, shards_format format, err *e) {
    shards_spec spec = {.path = path, .format = format, .vocab_size = VOCAB, .eos = EOS};
    return shards_open(out, &spec, e);
}

/* All ranges up to 70 tokens: the ends found must be those of the corpus. */
static void check_ends(const shards *s, const corpus *c) {
    for (int64_t first = 0; first < c->n; first++)
        for (int64_t n = 1; n <= 70 && first + n <= c->n; n += 1 + n / 3) {
            int32_t ends[70], by_ids[70];
            int64_t n_ends, n_by_ids, k = 0;
            assert_ok(shards_ends(s, (uint64_t)first, n, NULL, ends, &n_ends, e));
            assert_ok(shards_ends(s, (uint64_t)first, n, c->ids + first, by_ids, &n_by_ids, e));
            for (int d = 0; d < DOCS; d++) {
                int64_t at = (int64_t)c->end[d] - first;
                if (at < 1 || at > n) continue;
                assert_true(k < n_ends);
                assert_int_equal(ends[k], at);
                assert_int_equal(by_ids[k++], at);
            }
            assert_int_equal(n_ends, k);
            assert_int_equal(n_by_ids, k);
        }
}

static void check_places(scene *sc, const shards *s, const corpus *c) {
    int d = 0;
    for (int64_t t = 0; t < c->n; t++) {
        if ((uint64_t)t >= c->end[d]) d++;
        shard_place p;
        assert_ok(shards_locate(s, (uint64_t)t, sc->mem, &p, e));
        assert_int_equal(p.first_tok, d ? c->end[d - 1] : 0);
        assert_int_equal(p.end_tok, c->end[d]);
        assert_true(p.document == (s->has_index ? (uint64_t)d : UINT64_MAX));
        assert_true(!p.id && isnan(p.score) && *p.source == '\0');
    }
}

static void check_bounds(scene *sc, const shards *s, const corpus *c) {
    uint64_t ends[DOCS];
    assert_int_equal(s->totals.documents, DOCS);
    for (int from = 0; from <= DOCS; from++) {
        assert_ok(shards_bounds(s, (uint64_t)from, DOCS - from, ends, NULL, e));
        for (int d = from; d < DOCS; d++) assert_int_equal(ends[d - from], c->end[d]);
    }
    for (int d = 0; d < DOCS; d++) {
        shard_place p;
        p = document_of(s, (uint64_t)d, sc->mem);
        assert_int_equal(p.end_tok, c->end[d]);
    }
}

static void check_set(scene *sc, const char *path, shards_format format, bool index) {
    corpus c = make_corpus(format == SHARDS_LLMC);
    shards *s = NULL;
    int32_t ids[MAX_TOKENS];
    uint32_t largest;
    for (int told = 0; told < 2; told++) { /* the format found out, and said */
        assert_ok(open_tokens(&s, path, told ? format : SHARDS_AUTO, e));
        assert_int_equal(s->format, format);
        assert_int_equal(s->has_index, index);
        assert_int_equal(s->totals.tokens, c.n);
        assert_int_equal(s->vocab_size, VOCAB);
        assert_ok(shards_copy(s, 0, c.n, ids, &largest, e));
        assert_memory_equal(ids, c.ids, (size_t)c.n * sizeof *ids);
        assert_int_equal(largest, VOCAB - 1);
        if (told == 0) shards_close(s);
    }
    assert_ok(shards_verify(s, e));
    check_ends(s, &c);
    check_places(sc, s, &c);
    if (index) check_bounds(sc, s, &c);
    shards_close(s);
}

static void test_nanogpt(void **state) {
    check_set(*state, GOLDEN "nanogpt/u16.bin", SHARDS_NANOGPT, false);
    check_set(*state, GOLDEN "nanogpt/u32.bin", SHARDS_NANOGPT, false); /* found to be wide */
}

static void test_llmc(void **state) {
    check_set(*state, GOLDEN "llmc", SHARDS_LLMC, false);
    check_set(*state, GOLDEN "llmc/part_*.bin", SHARDS_LLMC, false);
    check_set(*state, GOLDEN "llmc_u32.bin", SHARDS_LLMC, false);
}

static void test_megatron(void **state) {
    static const char *const TYPES[] = {"uint8", "int8", "int16", "int32", "int64", "uint16"};
    for (int i = 0; i < ARRAY_LEN(TYPES); i++) {
        scene *sc = *state;
        const char *prefix = arena_printf(sc->mem, GOLDEN "megatron/%s", TYPES[i]);
        check_set(sc, prefix, SHARDS_MEGATRON, true);
        check_set(sc, arena_printf(sc->mem, "%s.bin", prefix), SHARDS_MEGATRON, true);
        check_set(sc, arena_printf(sc->mem, "%s.idx", prefix), SHARDS_MEGATRON, true);
    }
    check_set(*state, GOLDEN "megatron_pieces", SHARDS_MEGATRON, true);
    shards *s;
    assert_ok(open_tokens(&s, GOLDEN "megatron", SHARDS_AUTO, e));
    assert_int_equal(s->n_shards, 6);
    assert_int_equal(s->totals.documents, 6 * DOCS);
    assert_ok(shards_verify(s, e));
    shards_close(s);
}

static void test_nanotron(void **state) {
    check_set(*state, GOLDEN "nanotron", SHARDS_NANOTRON, true);
    check_set(*state, GOLDEN "wide.ds", SHARDS_NANOTRON, true);
    shards *s;
    assert_ok(open_tokens(&s, GOLDEN "wide.ds", SHARDS_AUTO, e));
    assert_string_equal(s->tok_name, "a|b");
    assert_int_equal(s->width_bytes, 4);
    shards_close(s);
}

static void test_olmo_and_numpy(void **state) {
    check_set(*state, GOLDEN "olmo", SHARDS_OLMO, false);
    check_set(*state, GOLDEN "numpy_u16.npy", SHARDS_OLMO, false);
    check_set(*state, GOLDEN "numpy_i32_v2.npy", SHARDS_OLMO, false);
}

/* Copies golden files into the scene, under another name. */
static const char *copy_file(scene *sc, const char *from, const char *to) {
    char *data;
    size_t n;
    assert_ok(file_read_all(arena_printf(sc->mem, GOLDEN "%s", from), &data, &n, e));
    const char *path = put_bytes(sc, to, data, n);
    free(data);
    return path;
}

static void test_without_index_file(void **state) {
    scene *sc = *state;
    copy_file(sc, "nanotron/00000_part.ds", "only.ds");
    shards *s;
    assert_ok(open_tokens(&s, in_scene(sc, "only.ds"), SHARDS_AUTO, e));
    assert_false(s->has_index);
    assert_int_equal(s->totals.documents, 0);
    shard_place p;
    assert_ok(shards_locate(s, 0, sc->mem, &p, e));
    assert_int_equal(p.end_tok, make_corpus(false).end[0]);
    shards_close(s);
}

static void test_fingerprint_is_of_the_content(void **state) {
    scene *sc = *state;
    shards *a, *b;
    assert_ok(open_tokens(&a, GOLDEN "nanogpt/u16.bin", SHARDS_AUTO, e));
    assert_ok(open_tokens(&b, copy_file(sc, "nanogpt/u16.bin", "moved.bin"), SHARDS_AUTO, e));
    assert_true(a->fingerprint == b->fingerprint);
    shards_close(b);
    char *data;
    size_t n;
    assert_ok(file_read_all(GOLDEN "nanogpt/u16.bin", &data, &n, e));
    data[100] ^= 1;
    assert_ok(open_tokens(&b, put_bytes(sc, "moved.bin", data, n), SHARDS_AUTO, e));
    assert_true(a->fingerprint != b->fingerprint);
    free(data);
    shards_close(a);
    shards_close(b);
}

static void expect_error(const char *path, shards_format format, status code, const char *words) {
    shards *s;
    err e = {0};
    assert_int_equal(open_tokens(&s, path, format, &e), code);
    assert_null(s);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    assert_true(e.hint[0] && e.where[0]);
}

static void test_refusals(void **state) {
    scene *sc = *state;
    const char *dir = sc->dir;
    expect_error(in_scene(sc, "none"), SHARDS_AUTO, ST_USAGE, "no such");
    expect_error(in_scene(sc, "none*.bin"), SHARDS_AUTO, ST_USAGE, "matches no");
    expect_error(dir, SHARDS_AUTO, ST_FORMAT, "no token files");
    expect_error(put_text(sc, "a.jsonl", "{}"), SHARDS_AUTO, ST_USAGE, "is text");
    expect_error(put_text(sc, "tokens", "{}"), SHARDS_AUTO, ST_USAGE, "does not tell");
    expect_error(put_text(sc, "odd.bin", "abc"), SHARDS_NANOGPT, ST_FORMAT, "no whole ids");
    expect_error(put_text(sc, "empty.bin", ""), SHARDS_NANOGPT, ST_FORMAT, "no tokens");
    expect_error(put_text(sc, "big.bin", "zzzz"), SHARDS_NANOGPT, ST_FORMAT, "vocabulary has 120");
    expect_error(in_scene(sc, "big.bin"), SHARDS_LLMC, ST_FORMAT, "shorter");
    expect_error(in_scene(sc, "big.bin"), SHARDS_MEGATRON, ST_USAGE, ".idx");
    expect_error(GOLDEN "nanogpt/u16.bin", SHARDS_LLMC, ST_FORMAT, "no token file of llm.c");
    expect_error(GOLDEN "llmc_eval.bin", SHARDS_AUTO, ST_FORMAT, "questions");
    expect_error(GOLDEN "wide.ds.index", SHARDS_OLMO, ST_FORMAT, "vocabulary");
}

static void test_folders_of_two_kinds(void **state) {
    scene *sc = *state;
    assert_ok(file_make_dirs(in_scene(sc, "mixed"), e));
    copy_file(sc, "nanogpt/u16.bin", "mixed/a.bin");
    copy_file(sc, "llmc/part_000000.bin", "mixed/b.bin");
    expect_error(in_scene(sc, "mixed"), SHARDS_AUTO, ST_USAGE, "several formats");
    assert_ok(file_make_dirs(in_scene(sc, "sides"), e));
    copy_file(sc, "nanogpt/u16.bin", "sides/train.bin");
    copy_file(sc, "nanogpt/u16.bin", "sides/val.bin");
    expect_error(in_scene(sc, "sides"), SHARDS_AUTO, ST_USAGE, "train.bin and val.bin");
    shards *s;
    assert_ok(open_tokens(&s, in_scene(sc, "sides/tr*.bin"), SHARDS_AUTO, e));
    assert_int_equal(s->n_shards, 1);
    shards_close(s);
    /* empty files in between are passed over */
    put_text(sc, "sides/train0.bin", "");
    assert_ok(open_tokens(&s, in_scene(sc, "sides/tr*.bin"), SHARDS_AUTO, e));
    assert_int_equal(s->n_shards, 1);
    shards_close(s);
}

static void test_llmc_headers(void **state) {
    scene *sc = *state;
    char *data;
    size_t n;
    assert_ok(file_read_all(GOLDEN "llmc_u32.bin", &data, &n, e));
    expect_error(put_bytes(sc, "cut.bin", data, n - 4), SHARDS_AUTO, ST_FORMAT, "its header says");
    expect_error(put_bytes(sc, "odd.bin", data, n - 1), SHARDS_AUTO, ST_FORMAT, "no whole ids");
    data[4] = 9;
    expect_error(put_bytes(sc, "new.bin", data, n), SHARDS_AUTO, ST_FORMAT, "version 9");
    free(data);
}

/* Asks all questions about a set that opened: answers lie in bounds or are errors. */
static void look_everywhere(scene *sc, const shards *s) {
    int32_t ends[64];
    int64_t n_ends;
    for (uint64_t t = 0; t < s->totals.tokens; t += 29) {
        shard_place p;
        int64_t n = (int64_t)(s->totals.tokens - t < 64 ? s->totals.tokens - t : 64);
        if (shards_locate(s, t, sc->mem, &p, NULL) == ST_OK)
            assert_true(p.first_tok <= t && t < p.end_tok && p.end_tok <= s->totals.tokens);
        if (shards_ends(s, t, n, NULL, ends, &n_ends, NULL) != ST_OK) continue;
        assert_true(n_ends <= n);
        for (int64_t i = 0; i < n_ends; i++)
            assert_true(ends[i] > (i ? ends[i - 1] : 0) && ends[i] <= n);
    }
    err e = {0};
    assert_true(shards_verify(s, &e) == ST_OK || e.message[0]);
    arena_reset(sc->mem);
}

/* The n-th read fails, for every n: an error that names the file, or the right set. */
static void test_failing_reads(void **state) {
    static const char *const PATHS[] = {"nanogpt/u16.bin", "llmc", "megatron_pieces", "nanotron",
                                        "numpy_u16.npy"};
    (void)state;
    for (int i = 0; i < ARRAY_LEN(PATHS); i++)
        for (int n = 1;; n++) {
            char path[256], spec[32];
            snprintf(path, sizeof path, GOLDEN "%s", PATHS[i]);
            snprintf(spec, sizeof spec, "read:%d", n);
            shards *s;
            err e = {0};
            file_fault_arm(spec);
            status st = open_tokens(&s, path, SHARDS_AUTO, &e);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            assert_true(st == (struck ? ST_FORMAT : ST_OK));
            if (struck) assert_non_null(strstr(e.message, PATHS[i]));
            shards_close(s);
            if (!struck) break;
        }
}

/* Two ids are too few to tell their width. */
static void test_short_files_are_narrow(void **state) {
    shards *s;
    const uint16_t ids[] = {5, 0, 7, 0};
    assert_ok(open_tokens(&s, put_bytes(*state, "short.bin", ids, sizeof ids), SHARDS_AUTO, e));
    assert_int_equal(s->totals.tokens, 4);
    shards_close(s);
}

/* A document without tokens, as Megatron's and datatrove's writers make them of empty texts. */
static void test_empty_documents(void **state) {
    scene *sc = *state;
    const uint16_t ids[] = {1, 2, 0, 3, 0};
    const uint64_t end[] = {0, 3, 3, 3, 5, 5};
    uint64_t bounds[ARRAY_LEN(end)];
    int32_t ends[5];
    int64_t n_ends;
    shards *s;
    shard_place p;
    put_bytes(sc, "a.ds.index", end, sizeof end);
    assert_ok(open_tokens(&s, put_bytes(sc, "a.ds", ids, sizeof ids), SHARDS_AUTO, e));
    assert_ok(shards_verify(s, e));
    assert_ok(shards_bounds(s, 0, ARRAY_LEN(end), bounds, NULL, e));
    assert_memory_equal(bounds, end, sizeof end);
    assert_ok(shards_ends(s, 0, 5, NULL, ends, &n_ends, e));
    assert_int_equal(n_ends, 2);
    assert_true(ends[0] == 3 && ends[1] == 5);
    assert_ok(shards_locate(s, 3, sc->mem, &p, e));
    assert_int_equal(p.document, 4);
    assert_int_equal(p.first_tok, 3);
    shards_close(s);
}

/* Every byte of `name` changed in turn, and the file cut at many lengths. */
static void damage(scene *sc, const char *from, const char *name, const char *path) {
    char *data, file[32], set[128];
    size_t n;
    snprintf(file, sizeof file, "%s", name);
    snprintf(set, sizeof set, "%s/%s", sc->dir, path);
    assert_ok(file_read_all(arena_printf(sc->mem, GOLDEN "%s", from), &data, &n, e));
    for (size_t i = 0; i < n + n / 3; i++) {
        bool flip = i < n;
        if (flip) data[i] ^= (char)(1 << i % 8);
        put_bytes(sc, file, data, flip ? n : (i - n) * 3);
        if (flip) data[i] ^= (char)(1 << i % 8);
        shards *s;
        err e = {0};
        if (open_tokens(&s, set, SHARDS_AUTO, &e) == ST_OK) {
            look_everywhere(sc, s);
            shards_close(s);
        } else {
            assert_true(e.message[0] && e.where[0]);
        }
    }
    put_bytes(sc, file, data, n);
    free(data);
}

static void test_damaged_files(void **state) {
    scene *sc = *state;
    copy_file(sc, "megatron_pieces.bin", "m.bin");
    copy_file(sc, "wide.ds", "n.ds");
    copy_file(sc, "wide.ds.metadata", "n.ds.metadata");
    damage(sc, "megatron_pieces.idx", "m.idx", "m.bin");
    damage(sc, "wide.ds.index", "n.ds.index", "n.ds");
    damage(sc, "wide.ds.metadata", "n.ds.metadata", "n.ds");
    damage(sc, "numpy_i32_v2.npy", "a.npy", "a.npy");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nanogpt, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_llmc, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_megatron, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_nanotron, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_olmo_and_numpy, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_without_index_file, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_fingerprint_is_of_the_content, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_refusals, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_folders_of_two_kinds, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_llmc_headers, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_failing_reads, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_short_files_are_narrow, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_empty_documents, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_damaged_files, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
