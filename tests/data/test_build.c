/* `data build` end to end with a byte-level tokenizer trained here: splits, text bytes, errors. */
#include "build_test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "data/build/pipeline.h"
#include "data/build/state.h"

static data_build_result build(const char *input, const char *out, const tok *t,
                               const data_build_options *opt) {
    data_build_result r;
    assert_ok(data_build(&input, 1, out, t, opt, &r, e));
    return r;
}

static void expect_build_error(const char *input, const char *out, const tok *t,
                               const data_build_options *opt, status code, const char *words) {
    data_build_result r;
    err e = {0};
    assert_int_equal(data_build(&input, 1, out, t, opt, &r, &e), code);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
}

/* All text of a set, end-of-text tokens left out. */
static void expect_text(const char *dir, const tok *t, const char *text) {
    shards *s = NULL;
    strbuf out = {0};
    assert_ok(shards_open(&s, &(shards_spec){.path = dir, .eos = -1}, e));
    assert_ok(shards_verify(s, e));
    assert_ok(shards_check_tokenizer(s, tok_hash(t), e));
    int32_t *ids = xcalloc(s->totals.tokens, sizeof *ids);
    assert_ok(shards_copy(s, 0, (int64_t)s->totals.tokens, ids, NULL, e));
    assert_ok(tok_decode(t, ids, (int64_t)s->totals.tokens, true, &out, e));
    assert_string_equal(strbuf_cstr(&out), text);
    assert_int_equal(s->totals.text_bytes, strlen(text));
    free(ids);
    strbuf_free(&out);
    shards_close(s);
}

/* How a text is cut for threads changes neither its label nor what the tokenizer adds. */
static void test_labels_whatever_the_parts(void **state) {
    scene *sc = *state;
    tok *t = make_tok(TOK_BPE, "some words to learn from, some more words");
    strbuf text = {0};
    for (int i = 0; i < 40; i++)
        strbuf_printf(&text, "{\"text\":\"words %d and more words\",\"label\":%d}\n", i * 7919,
                      i % 3);
    const char *in = put_text(sc, "a.jsonl", strbuf_cstr(&text));
    data_build_options opt = {
        .reader = {.label = "label"}, .labels = {.are_wanted = true, .classes = 3}, .threads = 1};
    build(in, in_scene(sc, "want"), t, &opt);
    opt.part_bytes = 20;
    build(in, in_scene(sc, "got"), t, &opt);
    expect_same_tree(in_scene(sc, "want"), in_scene(sc, "got"));
    const char *plain = put_text(sc, "b.txt", "a text\nof two lines\n");
    expect_build_error(plain, in_scene(sc, "none"), t, &opt, ST_USAGE, "it has no label");
    strbuf_free(&text);
    tok_free(t);
}

/* What a build that is gone on with had found by then. */
static void test_state_of_a_build(void **state) {
    const char *path = in_scene(*state, "state.json");
    build_state was = {.made_with = json_object()}, is;
    reader_report_replaced(&was.report, "a.txt", 17, 2, 1);
    reader_report_replaced(&was.report, "b.txt", 3, 1, 1);
    reader_report_sample(&was.report, "c.jsonl", 7, "is not JSON", "{");
    assert_ok(build_state_save(path, &was, e));
    assert_true(build_state_load(path, &is));
    assert_int_equal(is.report.replaced.characters, 3);
    assert_int_equal(is.report.replaced.texts, 2);
    assert_int_equal(is.report.replaced.at, 17);
    assert_string_equal(is.report.replaced.source, "a.txt");
    assert_int_equal(is.report.sample[0].line, 7);
    build_state_free(&is);
    was.report.replaced.texts = 0; /* none is no member */
    assert_ok(build_state_save(path, &was, e));
    assert_true(build_state_load(path, &is));
    assert_int_equal(is.report.replaced.characters, 0);
    build_state_free(&is);
    build_state_free(&was);
}

static void test_one_set(void **state) {
    scene *sc = *state;
    const char *in = put_text(sc, "a.jsonl", "{\"text\":\"to be\"}\n{\"text\":\"or not\"}\n");
    const char *out = in_scene(sc, "out");
    tok *t = make_tok(TOK_BYTE, "x");
    data_build_result r = build(in, out, t, &(data_build_options){0});
    int eos = tok_eos(t) >= 0;
    assert_int_equal(r.train.documents, 2);
    assert_int_equal(r.train.tokens, 11 + 2 * eos);
    assert_int_equal(r.train.text_bytes, 11);
    assert_int_equal(r.valid.tokens, 0);
    expect_text(out, t, "to beor not");
    tok *copy = NULL;
    assert_ok(tok_load(&copy, in_scene(sc, "out/tokenizer.json"), e));
    assert_int_equal(tok_hash(copy), tok_hash(t));
    tok_free(copy);
    tok_free(t);
}

static void test_tail_cut_as_nanogpt(void **state) {
    scene *sc = *state;
    size_t n = 1115394; /* the size of tinyshakespeare */
    char *text = xmalloc(n + 1);
    for (size_t i = 0; i < n; i++) text[i] = i % 41 == 40 ? '\n' : (char)('a' + mix64(i) % 26);
    text[n] = '\0';
    const char *in = put_text(sc, "a.txt", text);
    tok *t = make_tok(TOK_CHAR, "abcdefghijklmnopqrstuvwxyz\n");
    data_build_options opt = {.valid_fraction = 0.1, .split = DATA_SPLIT_TAIL, .no_eos = true};
    data_build_result r = build(in, in_scene(sc, "out"), t, &opt);
    assert_int_equal(r.train.tokens, 1003854);
    assert_int_equal(r.valid.tokens, 111540);
    opt.no_eos = false;
    assert_true(tok_eos(t) >= 0);
    r = build(in, in_scene(sc, "out"), t, &opt);
    assert_int_equal(r.train.tokens, 1003854 + 1);
    opt.split = DATA_SPLIT_AUTO;
    r = build(in, in_scene(sc, "out"), t, &opt);
    assert_int_equal(text[r.train.text_bytes - 1], '\n');
    assert_in_range(r.train.text_bytes, 1003854 - 41, 1003854 + 41);
    assert_int_equal(r.train.text_bytes + r.valid.text_bytes, n);
    expect_text(in_scene(sc, "out/valid"), t, text + r.train.text_bytes);
    tok_free(t);
    free(text);
}

static void test_split_points(void **state) {
    (void)state;
    assert_int_equal(data_split_point("0123456789", 10, 0.1, DATA_SPLIT_TAIL), 9);
    assert_int_equal(data_split_point("0123456789", 10, 0.1, DATA_SPLIT_LINES), 9);
    assert_int_equal(data_split_point("01\n3456789", 10, 0.1, DATA_SPLIT_LINES), 3);
    assert_int_equal(data_split_point("012345678\n", 10, 0.1, DATA_SPLIT_LINES), 9);
    assert_int_equal(data_split_point("\xc3\xa9\xc3\xa9\xc3\xa9", 6, 0.5, DATA_SPLIT_TAIL), 2);
    assert_int_equal(data_split_point("a", 1, 0.5, DATA_SPLIT_LINES), 0);
}

static void test_split_by_documents(void **state) {
    scene *sc = *state;
    strbuf text = {0};
    for (int i = 0; i < 2000; i++) strbuf_printf(&text, "{\"text\":\"%d\"}\n", i);
    const char *in = put_text(sc, "a.jsonl", strbuf_cstr(&text));
    tok *t = make_tok(TOK_BYTE, "x");
    data_build_options opt = {.valid_fraction = 0.1, .seed = 1};
    data_build_result a = build(in, in_scene(sc, "a"), t, &opt);
    data_build_result b = build(in, in_scene(sc, "b"), t, &opt);
    assert_in_range(a.valid.documents, 150, 250);
    assert_int_equal(a.train.documents + a.valid.documents, 2000);
    assert_memory_equal(&a.valid, &b.valid, sizeof a.valid);
    opt.seed = 2;
    b = build(in, in_scene(sc, "b"), t, &opt);
    assert_int_equal(b.train.documents + b.valid.documents, 2000);
    assert_true(a.valid.text_bytes != b.valid.text_bytes || a.valid.documents != b.valid.documents);
    tok_free(t);
    strbuf_free(&text);
}

/* A set that becomes a split, and back, leaves nothing stale behind. */
static void test_set_and_split_exclude_each_other(void **state) {
    scene *sc = *state;
    const char *in = put_text(sc, "a.txt", "one\ntwo\nthree\nfour\n");
    const char *out = in_scene(sc, "out");
    tok *t = make_tok(TOK_BYTE, "x");
    build(in, out, t, &(data_build_options){0});
    build(in, out, t, &(data_build_options){.valid_fraction = 0.5});
    assert_false(file_exists(in_scene(sc, "out/manifest.json")));
    assert_true(file_exists(in_scene(sc, "out/valid/manifest.json")));
    build(in, out, t, &(data_build_options){0});
    assert_false(file_exists(in_scene(sc, "out/valid/manifest.json")));
    assert_false(file_exists(in_scene(sc, "out/train/shard-00000.bin")));
    expect_text(out, t, "one\ntwo\nthree\nfour\n");
    tok_free(t);
}

static void test_errors(void **state) {
    scene *sc = *state;
    tok *t = make_tok(TOK_CHAR, "abc");
    const char *out = in_scene(sc, "out"), *good = put_text(sc, "good.txt", "abcabc");
    data_build_options none = {0}, half = {.valid_fraction = 0.5, .split = DATA_SPLIT_DOCUMENTS};
    expect_build_error(good, out, t, &(data_build_options){.valid_fraction = 1}, ST_USAGE, "valid");
    expect_build_error(good, out, t, &half, ST_USAGE, "leaves no text");
    assert_false(file_exists(in_scene(sc, "out/train/manifest.json")));
    build(good, out, t, &none);
    expect_build_error(put_text(sc, "none.txt", ""), out, t, &none, ST_USAGE, "holds no text");
    expect_build_error(put_bytes(sc, "b.txt", "a\0b", 3), out, t, &none, ST_FORMAT, "b.txt");
    expect_build_error(put_text(sc, "d.jsonl", "{\"text\":\"a\"}\n{\"text\":\"ad\"}\n"),
                       in_scene(sc, "other"), t, &none, ST_FORMAT, "d.jsonl:2");
    expect_text(out, t, "abcabc"); /* refused input left the old set alone */
    tok_free(t);
}

/* ---- many threads ---- */

/* Folders with JSONL, small files and a text that is long in parts of a few hundred bytes. */
static const char *mixed_corpus(scene *sc) {
    const char *dir = in_scene(sc, "in");
    assert_ok(file_make_dirs(dir, e));
    strbuf text = {0};
    for (int i = 0; i < 60; i++)
        strbuf_printf(&text,
                      "{\"text\":\"document %d says %.*s\",\"name\":\"n%d\",\"value\":%d.5}\n", i,
                      i % 50, "the fire and the furnace and the iron and the gold", i, i);
    put_text(sc, "in/b.jsonl", strbuf_cstr(&text));
    for (int i = 0; i < 5; i++) {
        char name[32], body[64];
        snprintf(name, sizeof name, "in/small%d.txt", i);
        snprintf(body, sizeof body, "small file %d\nwith two lines\n", i);
        put_text(sc, name, body);
    }
    strbuf_truncate(&text, 0);
    for (int i = 0; i < 300; i++)
        strbuf_printf(&text, "Line %d of the long one,\twhich don't end.\n", i * 7919);
    put_text(sc, "in/a.txt", strbuf_cstr(&text));
    strbuf_free(&text);
    return dir;
}

static void test_threads_and_parts(void **state) {
    static const data_split SPLITS[] = {DATA_SPLIT_DOCUMENTS, DATA_SPLIT_LINES, DATA_SPLIT_TAIL};
    static const size_t PARTS[] = {1, 300, 5000, 0};
    scene *sc = *state;
    const char *in = mixed_corpus(sc);
    tok *t = NULL;
    assert_ok(tok_load(&t, TEST_DIR "/golden/tok/bpe_gpt2.json", e));
    for (int s = 0; s < ARRAY_LEN(SPLITS); s++) {
        data_build_options opt = {
            .valid_fraction = 0.3, .split = SPLITS[s], .threads = 1, .shard_tokens = 2000};
        const char *first = arena_printf(sc->mem, "%s/first%d", sc->dir, s);
        data_build_result want = build(in, first, t, &opt);
        for (int i = 0; i < 3 * ARRAY_LEN(PARTS); i++) {
            opt.threads = 1 << i % 3;
            opt.part_bytes = PARTS[i / 3];
            const char *out = arena_printf(sc->mem, "%s/again%d-%d", sc->dir, s, i);
            data_build_result got = build(in, out, t, &opt);
            assert_memory_equal(&got.train, &want.train, sizeof want.train);
            assert_memory_equal(&got.valid, &want.valid, sizeof want.valid);
            expect_same_tree(first, out);
        }
    }
    tok_free(t);
}

/* Whichever thread fails first: the error is that of the first bad text. */
static void test_first_error_counts(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "in");
    assert_ok(file_make_dirs(dir, e));
    for (int i = 0; i < 40; i++) {
        const char *name = arena_printf(sc->mem, "in/%02d.txt", i);
        put_text(sc, name, i < 17 ? "abcabc" : "abcZ");
    }
    tok *t = make_tok(TOK_CHAR, "abc");
    for (int i = 0; i < 20; i++) {
        data_build_options opt = {.threads = 1 + i % 4, .part_bytes = 1};
        expect_build_error(dir, in_scene(sc, "out"), t, &opt, ST_FORMAT, "17.txt");
        assert_false(file_exists(in_scene(sc, "out")));
    }
    tok_free(t);
}

/* ---- what the shards know ---- */

static void test_traces(void **state) {
    scene *sc = *state;
    const char *in = mixed_corpus(sc), *out = in_scene(sc, "out");
    tok *t = make_tok(TOK_BYTE, "x");
    data_build_options opt = {.reader = {.id = "name", .score = "value"}, .part_bytes = 300};
    data_build_result r = build(in, out, t, &opt);
    assert_int_equal(r.report.documents, 66);
    assert_int_equal(r.report.bad, 0);
    shards *s = NULL;
    assert_ok(shards_open(&s, &(shards_spec){.path = out, .eos = -1}, e));
    assert_true(s->has_scores);
    shard_place p;
    p = document_of(s, 0, sc->mem);
    assert_non_null(strstr(p.source, "in/a.txt"));
    assert_null(p.id);
    p = document_of(s, 8, sc->mem);
    assert_non_null(strstr(p.source, "in/b.jsonl"));
    assert_int_equal(p.line, 8);
    assert_string_equal(p.id, "n7");
    assert_true(p.score == 7.5f);
    assert_true(p.text_offset > 7 * 30);
    shards_close(s);
    tok_free(t);
}

static void test_append(void **state) {
    scene *sc = *state;
    const char *one = put_text(sc, "one.txt", "first\nset\n"),
               *two = put_text(sc, "two.txt", "more");
    const char *out = in_scene(sc, "out");
    tok *t = make_tok(TOK_BYTE, "x"), *other = make_tok(TOK_CHAR, "firsetmo\n");
    data_build_options none = {0}, append = {.append = true};
    expect_build_error(one, out, t, &append, ST_USAGE, "no shard set to append to");
    build(one, out, t, &none);
    expect_build_error(two, out, other, &append, ST_USAGE, "tokenizer");
    expect_text(out, t, "first\nset\n");
    data_build_result r = build(two, out, t, &append);
    assert_int_equal(r.train.documents, 2);
    expect_text(out, t, "first\nset\nmore");
    assert_false(file_exists(in_scene(sc, "out/.build")));
    data_build_options half = {.append = true, .valid_fraction = 0.5};
    expect_build_error(two, out, t, &half, ST_USAGE, "no shard set to append to");
    tok_free(t);
    tok_free(other);
}

static void test_lock(void **state) {
    scene *sc = *state;
    const char *in = put_text(sc, "a.txt", "text"), *out = in_scene(sc, "out");
    tok *t = make_tok(TOK_BYTE, "x");
    assert_ok(file_make_dirs(out, e));
    int fd = open(out, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_build_error(in, out, t, &(data_build_options){0}, ST_FAILED, "another build");
    close(fd);
    build(in, out, t, &(data_build_options){0});
    tok_free(t);
}

/* Text of more bytes than are read at once, with and without places to cut. */
static const char *put_long_text(scene *sc, const char *name, size_t bytes, const char *unit) {
    strbuf b = {0};
    while (b.len < bytes) strbuf_puts(&b, unit);
    const char *path = put_bytes(sc, name, b.data, b.len);
    strbuf_free(&b);
    return path;
}

enum { LONG_BYTES = 18 << 20 }; /* beyond WHOLE_TEXT_BYTES of cut.c */

/* A long text is read in windows; as standard input it is read at once. Both give the same tokens. */
static void test_long_text(void **state) {
    scene *sc = *state;
    const char *in = put_long_text(sc, "long.txt", LONG_BYTES, "\xc3\xa9 word after word,\n");
    tok *t = make_tok(TOK_BPE, "word after word,\n");
    data_build_options opt = {.valid_fraction = 0.25, .threads = 2, .part_bytes = 4 << 20};
    data_build_result r = build(in, in_scene(sc, "windows"), t, &opt), q;
    int fd = open(in, O_RDONLY), old = dup(0);
    assert_true(fd >= 0 && old >= 0 && dup2(fd, 0) == 0);
    q = build("-", in_scene(sc, "whole"), t, &opt);
    assert_int_equal(dup2(old, 0), 0);
    close(old);
    close(fd);
    assert_int_equal(r.train.text_bytes + r.valid.text_bytes, file_size(in));
    assert_int_equal(r.train.text_bytes, q.train.text_bytes);
    const char *names[] = {"train/shard-00000.bin", "valid/shard-00000.bin"};
    for (int i = 0; i < 2; i++) {
        uint64_t a, b;
        assert_ok(hash_file(path_join(sc->mem, in_scene(sc, "windows"), names[i]), &a, e));
        assert_ok(hash_file(path_join(sc->mem, in_scene(sc, "whole"), names[i]), &b, e));
        assert_int_equal(a, b);
    }
    int at_end = open(in, O_WRONLY | O_APPEND);
    assert_true(at_end >= 0 && write(at_end, "\xc3(", 2) == 2 && close(at_end) == 0);
    r = build(in, in_scene(sc, "repaired"), t, &opt); /* U+FFFD has three bytes */
    assert_int_equal(r.train.text_bytes + r.valid.text_bytes, file_size(in) + 2);
    tok_free(t);
}

/* The sink of a pipeline, which cuts its input as soon as something is written. */
static status cut_input(void *ctx, const job *j, const build_place *place, err *e) {
    (void)j, (void)place, (void)e;
    return truncate(ctx, 1000) == 0 ? ST_OK : ST_FAILED;
}

static void look_on(void *ctx, const reader *r, uint64_t ahead) {
    (void)ctx, (void)r, (void)ahead;
}

/* A text that shrinks while a build reads it is an error, not the end of the program. */
static void test_shrinking_text(void **state) {
    const char *in = put_long_text(*state, "live.txt", LONG_BYTES, "word after word,\n");
    tok *t = make_tok(TOK_BPE, "word after word,\n");
    reader *r;
    assert_ok(reader_open(&r, &in, 1, NULL, e));
    pipeline_options opt = {.rules = {.tok = t, .split = DATA_SPLIT_LINES},
                            .threads = 1,
                            .part_bytes = 1 << 20,
                            .write = cut_input,
                            .look = look_on,
                            .ctx = (void *)(uintptr_t)in};
    err failure = {0};
    assert_int_equal(pipeline_run(r, &opt, &failure), ST_FORMAT);
    assert_non_null(strstr(failure.message, "live.txt became shorter while it was read"));
    assert_true(failure.where[0] && failure.hint[0]);
    reader_close(r);
    tok_free(t);
}

/* A document that has to be in memory in one piece has a limit: as text without a place to cut, as
 * standard input, and as a record. A text that can be cut has none. */
static void test_document_limit(void **state) {
    scene *sc = *state;
    tok *t = make_tok(TOK_BPE, "word after word,\n");
    data_build_options opt = {.part_bytes = 4096, .reader.max_document_bytes = 1 << 20};
    const char *out = in_scene(sc, "out");
    expect_build_error(put_long_text(sc, "line.txt", 3 << 20, "x"), out, t, &opt, ST_FORMAT,
                       "line.txt: from byte 0 on there are more than 1 MiB");
    build(put_long_text(sc, "lines.txt", 3 << 20, "word word\n"), out, t, &opt);
    strbuf b = {0};
    strbuf_puts(&b, "{\"text\":\"short\"}\n{\"text\":\"");
    while (b.len < 6 << 20) strbuf_puts(&b, "x y ");
    strbuf_puts(&b, "\"}\n");
    const char *in = put_bytes(sc, "a.jsonl", b.data, b.len);
    strbuf_free(&b);
    expect_build_error(in, out, t, &opt, ST_FORMAT, "a.jsonl:2 is longer than 1 MiB");
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_set, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_labels_whatever_the_parts, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_state_of_a_build, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_tail_cut_as_nanogpt, scene_open, scene_close),
        cmocka_unit_test(test_split_points),
        cmocka_unit_test_setup_teardown(test_split_by_documents, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_set_and_split_exclude_each_other, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_errors, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_threads_and_parts, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_first_error_counts, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_traces, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_append, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_lock, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_long_text, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_shrinking_text, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_document_limit, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
