/* `data build` end to end with a byte-level tokenizer trained here: splits, text bytes, errors. */
#include "data_test.h"

#include <unistd.h>

#include "base/file_fault.h"
#include "data/build.h"

static tok *make_tok(tok_kind kind, const char *text) {
    tok_trainer *tr;
    tok *t = NULL;
    tok_train_options opt = {.kind = kind};
    assert_ok(tok_trainer_new(&tr, &opt, e));
    assert_ok(tok_trainer_add(tr, text, strlen(text), e));
    assert_ok(tok_trainer_finish(tr, &t, e));
    tok_trainer_free(tr);
    return t;
}

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
    assert_ok(shards_open(&s, dir, e));
    assert_ok(shards_verify(s, e));
    assert_ok(shards_check_tokenizer(s, tok_hash(t), e));
    int32_t *ids = xcalloc(s->totals.tokens, sizeof *ids);
    shards_copy(s, 0, (int64_t)s->totals.tokens, ids);
    assert_ok(tok_decode(t, ids, (int64_t)s->totals.tokens, true, &out, e));
    assert_string_equal(strbuf_cstr(&out), text);
    assert_int_equal(s->totals.text_bytes, strlen(text));
    free(ids);
    strbuf_free(&out);
    shards_close(s);
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

/* A build that fails at its n-th write, for every n, never leaves a folder that opens. */
static void test_every_fault(void **state) {
    scene *sc = *state;
    const char *in = put_text(sc, "a.txt", "one\ntwo\nthree\nfour\n"), *out = in_scene(sc, "out");
    const char *kinds[] = {"create", "write", "fsync", "rename", "mkdir"};
    tok *t = make_tok(TOK_BYTE, "x");
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int n = 1;; n++) {
            data_build_result r;
            shards *s;
            err e = {0};
            assert_int_equal(file_remove_tree(out, &e), ST_OK);
            assert_true(file_fault_arm(arena_printf(sc->mem, "%s:%d", kinds[k], n)));
            status st = data_build(&in, 1, out, t, &(data_build_options){0}, &r, &e);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            if (!struck) {
                assert_int_equal(st, ST_OK);
                break;
            }
            if (st != ST_OK && shards_open(&s, out, &e) == ST_OK) {
                assert_int_equal(shards_verify(s, &e), ST_OK);
                shards_close(s);
            }
            assert_true(st != ST_OK);
            assert_true(n < 1000);
        }
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_set, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_tail_cut_as_nanogpt, scene_open, scene_close),
        cmocka_unit_test(test_split_points),
        cmocka_unit_test_setup_teardown(test_split_by_documents, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_set_and_split_exclude_each_other, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_errors, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_every_fault, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
