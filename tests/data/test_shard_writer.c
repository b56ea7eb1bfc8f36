/* The shard writer: ids and scores, appending, and going on after a stop at any place, with the
 * same bytes as without it. */
#include "data_test.h"

#include <math.h>

#include "base/file_fault.h"

enum { DOCS = 60, VOCAB = 100, TOKENS_PER_SHARD = 90 };

static const shard_writer_options OPTIONS = {.tok_hash = 0x77,
                                             .vocab_size = VOCAB,
                                             .eos = 0,
                                             .shard_tokens = TOKENS_PER_SHARD,
                                             .ids = true,
                                             .scores = true};

static float score_of(int d) {
    return d % 5 ? (float)d / 4 : NAN;
}

static status add_document(shard_writer *w, int d, err *e) {
    int32_t ids[40];
    char id[32], source[32];
    int64_t n = doc_length((uint64_t)d, 30);
    for (int64_t i = 0; i < n; i++) ids[i] = 1 + (int32_t)((d * 31 + i * 7) % (VOCAB - 1));
    snprintf(id, sizeof id, "id-%d", d * d);
    snprintf(source, sizeof source, "file%d", d / 7);
    shard_record r = {.ids = ids,
                      .n = n,
                      .source = source,
                      .line = (uint32_t)d,
                      .text_offset = (uint64_t)d << 33,
                      .text_bytes = (uint64_t)n,
                      .id = d % 3 ? id : NULL,
                      .score = score_of(d)};
    return shard_writer_add(w, &r, e);
}

static status add_documents(shard_writer *w, int from, int to, err *e) {
    for (int d = from; d < to; d++) TRY(add_document(w, d, e));
    return ST_OK;
}

static const char *whole_set(scene *sc, const char *name) {
    const char *dir = in_scene(sc, name);
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &OPTIONS, e));
    assert_ok(add_documents(w, 0, DOCS, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    return dir;
}

static void assert_equal_folders(scene *sc, const char *a, const char *b) {
    char **names, **others;
    int n, m;
    assert_ok(file_list_dir(sc->mem, a, &names, &n, e));
    assert_ok(file_list_dir(sc->mem, b, &others, &m, e));
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        char *x, *y;
        size_t nx, ny;
        assert_string_equal(names[i], others[i]);
        assert_ok(file_read_all(path_join(sc->mem, a, names[i]), &x, &nx, e));
        assert_ok(file_read_all(path_join(sc->mem, b, names[i]), &y, &ny, e));
        assert_int_equal(nx, ny);
        assert_memory_equal(x, y, nx);
        free(x);
        free(y);
    }
}

static void test_ids_and_scores(void **state) {
    scene *sc = *state;
    shards *s;
    assert_ok(open_set(&s, whole_set(sc, "set"), e));
    assert_ok(shards_verify(s, e));
    assert_true(s->has_ids && s->has_scores && s->n_shards > 3);
    assert_int_equal(s->eos, 0);
    uint64_t bounds[DOCS];
    float score[DOCS];
    assert_ok(shards_bounds(s, 0, DOCS, bounds, score, e));
    for (int d = 0; d < DOCS; d++) {
        shard_place p;
        p = document_of(s, (uint64_t)d, sc->mem);
        assert_string_equal(p.source, arena_printf(sc->mem, "file%d", d / 7));
        if (d % 3)
            assert_string_equal(p.id, arena_printf(sc->mem, "id-%d", d * d));
        else
            assert_null(p.id);
        assert_true(isnan(score_of(d)) ? isnan(p.score) : p.score == score_of(d));
        assert_true(isnan(score_of(d)) ? isnan(score[d]) : score[d] == score_of(d));
        assert_int_equal(p.end_tok, bounds[d]);
        assert_int_equal(p.text_offset, (uint64_t)d << 33);
    }
    shards_close(s);
}

static void test_long_ids_are_cut(void **state) {
    scene *sc = *state;
    shard_writer_options opt = {.vocab_size = 10, .eos = -1, .ids = true};
    shard_writer *w;
    assert_ok(shard_writer_open(&w, in_scene(sc, "long"), &opt, e));
    char id[2 * SHARD_MAX_ID_BYTES];
    memset(id, 'x', sizeof id);
    memcpy(id + SHARD_MAX_ID_BYTES - 1, "\xc3\xa4", 2); /* across the limit */
    id[sizeof id - 1] = '\0';
    shard_record r = {.ids = &(int32_t){1}, .n = 1, .source = "", .id = id};
    assert_ok(shard_writer_add(w, &r, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    shards *s;
    shard_place p;
    assert_ok(open_set(&s, in_scene(sc, "long"), e));
    p = document_of(s, 0, sc->mem);
    assert_int_equal(strlen(p.id), SHARD_MAX_ID_BYTES - 1);
    shards_close(s);
}

/* The text of the state after `done` documents; `lost` more are written after it, and the writer
 * then ends as if killed. */
static char *stopped_state(const char *dir, int done, int lost) {
    shard_writer *w;
    json_t *state = json_object();
    assert_ok(shard_writer_open(&w, dir, &OPTIONS, e));
    assert_ok(add_documents(w, 0, done, e));
    assert_ok(shard_writer_sync(w, state, e));
    assert_ok(add_documents(w, done, done + lost, e));
    shard_writer_free(w);
    char *text = json_dumps(state, 0);
    json_decref(state);
    return text;
}

static status resume(shard_writer **w, const char *dir, const char *text, err *e) {
    json_t *state = json_loads(text, 0, NULL);
    assert_non_null(state);
    status st = shard_writer_resume(w, dir, &OPTIONS, state, e);
    json_decref(state);
    return st;
}

static void test_resume_gives_the_same_bytes(void **state) {
    scene *sc = *state;
    const char *whole = whole_set(sc, "whole"), *dir = in_scene(sc, "stopped");
    for (int done = 0; done <= DOCS; done += 3) {
        int lost = done + 17 < DOCS ? 17 : DOCS - done;
        char *text = stopped_state(dir, done, lost);
        shard_writer *w;
        assert_ok(resume(&w, dir, text, e));
        assert_ok(add_documents(w, done, DOCS, e));
        assert_ok(shard_writer_finish(w, e));
        shard_writer_free(w);
        free(text);
        assert_equal_folders(sc, whole, dir);
    }
}

/* Stop, go on, stop again without a document in between, go on. */
static void test_resume_of_a_resumed(void **state) {
    scene *sc = *state;
    const char *whole = whole_set(sc, "whole"), *dir = in_scene(sc, "stopped");
    char *text = stopped_state(dir, 20, 9);
    for (int i = 0; i < 3; i++) {
        shard_writer *w;
        json_t *again = json_object();
        assert_ok(resume(&w, dir, text, e));
        assert_ok(add_documents(w, 20 + 5 * i, 25 + 5 * i, e));
        assert_ok(shard_writer_sync(w, again, e));
        shard_writer_free(w);
        free(text);
        text = json_dumps(again, 0);
        json_decref(again);
    }
    shard_writer *w;
    assert_ok(resume(&w, dir, text, e));
    assert_ok(add_documents(w, 35, DOCS, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    free(text);
    assert_equal_folders(sc, whole, dir);
}

/* A document in pieces is the same document; a stop between two pieces changes nothing. */
static void test_resume_within_a_document(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "pieces");
    int32_t ids[400];
    for (int i = 0; i < ARRAY_LEN(ids); i++) ids[i] = 1 + i % (VOCAB - 1);
    shard_record all = {.ids = ids, .n = 400, .source = "f", .id = "long", .text_bytes = 7};
    shard_record part = {.ids = ids, .n = 150, .source = "f", .more = true};
    shard_writer *w;
    assert_ok(shard_writer_open(&w, in_scene(sc, "whole"), &OPTIONS, e));
    assert_ok(add_documents(w, 0, 5, e));
    assert_ok(shard_writer_add(w, &all, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);

    json_t *at = json_object();
    assert_ok(shard_writer_open(&w, dir, &OPTIONS, e));
    assert_ok(add_documents(w, 0, 5, e));
    assert_ok(shard_writer_add(w, &part, e));
    assert_ok(shard_writer_sync(w, at, e));
    assert_ok(shard_writer_add(w, &part, e));
    shard_writer_free(w);
    assert_ok(shard_writer_resume(&w, dir, &OPTIONS, at, e));
    json_decref(at);
    all.ids += 150;
    all.n -= 150;
    assert_ok(shard_writer_add(w, &all, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    assert_equal_folders(sc, in_scene(sc, "whole"), dir);
}

/* Going back behind a writer that has finished: its manifest must not stand meanwhile. */
static void test_resume_after_the_end(void **state) {
    scene *sc = *state;
    const char *whole = whole_set(sc, "whole"), *dir = in_scene(sc, "ended");
    json_t *at = json_object();
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &OPTIONS, e));
    assert_ok(add_documents(w, 0, 30, e));
    assert_ok(shard_writer_sync(w, at, e));
    assert_ok(add_documents(w, 30, 50, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    assert_ok(shard_writer_resume(&w, dir, &OPTIONS, at, e));
    json_decref(at);
    assert_false(file_exists(in_scene(sc, "ended/manifest.json")));
    assert_ok(add_documents(w, 30, DOCS, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    assert_equal_folders(sc, whole, dir);
}

static void expect_no_resume(const char *dir, const char *text, const char *words) {
    shard_writer *w;
    err e = {0};
    assert_int_equal(resume(&w, dir, text, &e), ST_FORMAT);
    assert_null(w);
    if (!strstr(e.message, words)) fail_msg("\"%s\" lacks \"%s\"", e.message, words);
    assert_non_null(strstr(e.hint, "anew"));
}

static void test_resume_refuses_other_files(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "stopped");
    char *text = stopped_state(dir, 20, 9), *data;
    char open_bin[32];
    size_t n;
    json_t *parsed = json_loads(text, 0, NULL);
    size_t last = json_array_size(json_object_get(parsed, "shards"));
    json_decref(parsed);
    snprintf(open_bin, sizeof open_bin, "stopped/shard-%05zu.bin", last);
    assert_ok(file_read_all(in_scene(sc, open_bin), &data, &n, e));
    put_bytes(sc, open_bin, data, 70);
    expect_no_resume(dir, text, "shorter");
    data[66] ^= 1;
    put_bytes(sc, open_bin, data, n);
    expect_no_resume(dir, text, "not what was written");
    remove(in_scene(sc, open_bin));
    shard_writer *w;
    assert_int_equal(resume(&w, dir, text, NULL), ST_FORMAT);
    data[66] ^= 1;
    put_bytes(sc, open_bin, data, n);
    assert_ok(resume(&w, dir, text, e)); /* nothing was harmed by the attempts */
    shard_writer_free(w);
    free(data);
    free(text);
}

/* Every byte of the state changed in turn: an error, or a writer that works. */
static void test_resume_from_hostile_states(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "stopped");
    char *text = stopped_state(dir, 8, 0);
    for (size_t i = 0; text[i]; i++) {
        char good = text[i];
        text[i] = good == '9' ? '1' : (char)(good + 1);
        json_t *bad = json_loads(text, 0, NULL);
        shard_writer *w = NULL;
        if (bad && shard_writer_resume(&w, dir, &OPTIONS, bad, NULL) == ST_OK) shard_writer_free(w);
        json_decref(bad);
        text[i] = good;
    }
    shard_writer_options other = OPTIONS;
    other.tok_hash++;
    json_t *parsed = json_loads(text, 0, NULL);
    shard_writer *w;
    err e = {0};
    assert_int_equal(shard_writer_resume(&w, dir, &other, parsed, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "other options"));
    json_decref(parsed);
    free(text);
}

static void test_append(void **state) {
    scene *sc = *state;
    const char *dir = in_scene(sc, "grown");
    shards *s;
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &OPTIONS, e));
    assert_ok(add_documents(w, 0, 20, e));
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    assert_ok(open_set(&s, dir, e));
    uint64_t tokens = s->totals.tokens, fingerprint = s->fingerprint;
    shards_close(s);

    shard_writer_options opt = OPTIONS;
    opt.append = true;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    assert_ok(add_documents(w, 20, DOCS, e));
    assert_ok(open_set(&s, dir, e)); /* the old set stands until the new one is complete */
    assert_int_equal(s->totals.tokens, tokens);
    assert_ok(shards_verify(s, e));
    shards_close(s);
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    assert_ok(open_set(&s, dir, e));
    assert_ok(shards_verify(s, e));
    assert_int_equal(s->totals.documents, DOCS);
    assert_true(s->fingerprint != fingerprint);
    shards_close(s);

    shards_spec spec = {.path = dir, .max_tok = tokens, .eos = -1};
    assert_ok(shards_open(&s, &spec, e)); /* a run that began with the smaller set */
    assert_int_equal(s->totals.tokens, tokens);
    assert_int_equal(s->totals.documents, 20);
    assert_int_equal(s->fingerprint, fingerprint);
    assert_ok(shards_verify(s, e));
    shards_close(s);
    spec.max_tok = 3;
    err failure = {0};
    assert_int_equal(shards_open(&s, &spec, &failure), ST_USAGE);

    char *data;
    size_t n;
    assert_ok(file_read_all(in_scene(sc, "grown/shard-00000.idx"), &data, &n, e));
    put_bytes(sc, "grown/shard-00000.idx", data, n - 1);
    assert_int_equal(shard_writer_open(&w, dir, &opt, &failure), ST_FORMAT);
    put_bytes(sc, "grown/shard-00000.idx", data, n);
    free(data);

    opt.scores = false;
    assert_int_equal(shard_writer_open(&w, dir, &opt, &failure), ST_USAGE);
    assert_non_null(strstr(failure.message, "scores"));
    opt = OPTIONS;
    opt.append = true;
    opt.tok_hash++;
    assert_int_equal(shard_writer_open(&w, dir, &opt, &failure), ST_USAGE);
    assert_non_null(strstr(failure.message, "tokenizer"));
}

/* Writes, with a sync in the middle; a failure leaves a state that can be gone on with. */
static status build_with_sync(const char *dir, json_t *state, err *e) {
    shard_writer *w;
    TRY(shard_writer_open(&w, dir, &OPTIONS, e));
    status st = add_documents(w, 0, 12, e);
    if (st == ST_OK) st = shard_writer_sync(w, state, e);
    if (st == ST_OK) st = add_documents(w, 12, 24, e);
    if (st == ST_OK) st = shard_writer_finish(w, e);
    shard_writer_free(w);
    return st;
}

static void test_every_fault(void **state) {
    scene *sc = *state;
    static const char *const KINDS[] = {"create", "write", "fsync", "rename", "read"};
    const char *good = in_scene(sc, "good"), *dir = in_scene(sc, "faulty");
    json_t *ignored = json_object();
    assert_ok(build_with_sync(good, ignored, e));
    json_decref(ignored);
    for (int k = 0; k < ARRAY_LEN(KINDS); k++)
        for (int n = 1;; n++) {
            json_t *at = json_object();
            err failure = {0};
            file_fault_arm(arena_printf(sc->mem, "%s:%d", KINDS[k], n));
            status st = build_with_sync(dir, at, &failure);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            if (struck && st != ST_OK) assert_true(failure.message[0] != '\0');
            if (!struck) assert_int_equal(st, ST_OK);
            if (st == ST_OK) {
                assert_equal_folders(sc, good, dir);
            } else if (json_object_size(at) > 0) {
                shard_writer *w;
                assert_ok(shard_writer_resume(&w, dir, &OPTIONS, at, e));
                assert_ok(add_documents(w, 12, 24, e));
                assert_ok(shard_writer_finish(w, e));
                shard_writer_free(w);
                assert_equal_folders(sc, good, dir);
            }
            json_decref(at);
            assert_ok(file_remove_tree(dir, e));
            if (!struck) break;
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ids_and_scores, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_long_ids_are_cut, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_resume_gives_the_same_bytes, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_resume_of_a_resumed, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_resume_within_a_document, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_resume_after_the_end, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_resume_refuses_other_files, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_resume_from_hostile_states, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_append, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_every_fault, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
