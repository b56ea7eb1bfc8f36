/* What the tokenizer tests share: files of tests/golden/tok, and calls that must succeed. */
#ifndef TESTS_TOK_TEST_H
#define TESTS_TOK_TEST_H
#include "test.h"

#include <jansson.h>

#include "base/file.h"
#include "tok/tok.h"

#define GOLDEN(name) TEST_DIR "/golden/tok/" name

static inline char *read_golden(const char *path, size_t *len) {
    err e = {0};
    char *text;
    if (file_read_all(path, &text, len, &e) != ST_OK) fail_msg("%s", e.message);
    return text;
}

static inline tok *load_golden(const char *path) {
    err e = {0};
    tok *t;
    if (tok_load(&t, path, &e) != ST_OK) fail_msg("%s", e.message);
    return t;
}

static inline tok *parse_ok(const char *json) {
    err e = {0};
    tok *t;
    if (tok_parse(&t, json, strlen(json), "test", &e) != ST_OK) fail_msg("%s", e.message);
    return t;
}

/* A tokenizer.json that is refused, with a message that names the trouble. */
static inline void refuse_json(const char *json, const char *names) {
    err e = {0};
    tok *t = NULL;
    status st = tok_parse(&t, json, strlen(json), "bad.json", &e);
    if (st != ST_FORMAT || t || !strstr(e.message, names) || !e.where[0]) {
        fail_msg("%s\ngave status %d, \"%s\", where \"%s\"; expected %s", json, (int)st, e.message,
                 e.where, names);
    }
}

static inline tok_ids encode_ok(const tok *t, const char *text, size_t len, unsigned flags) {
    err e = {0};
    tok_ids ids = {0};
    if (tok_encode(t, text, len, flags, &ids, &e) != ST_OK) fail_msg("%s", e.message);
    return ids;
}

static inline void check_golden_ids(const json_t *one, const tok_ids *ids, const char *name) {
    const json_t *want = json_object_get(one, "ids");
    for (size_t i = 0; i < json_array_size(want) || (int64_t)i < ids->n; i++) {
        if (i < json_array_size(want) && (int64_t)i < ids->n &&
            json_integer_value(json_array_get(want, i)) == ids->id[i]) {
            continue;
        }
        fail_msg("%s, text \"%s\": ids differ at %d of %d (%d expected)", name,
                 json_string_value(json_object_get(one, "text")), (int)i, (int)ids->n,
                 (int)json_array_size(want));
    }
}

static inline void check_golden_offsets(const json_t *one, const tok_spans *spans,
                                        const char *name) {
    const json_t *want = json_object_get(one, "offsets");
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *pair = json_array_get(want, i);
        if (json_integer_value(json_array_get(pair, 0)) != spans->span[i].start ||
            json_integer_value(json_array_get(pair, 1)) != spans->span[i].end) {
            fail_msg("%s, text \"%s\": offsets differ at %d", name,
                     json_string_value(json_object_get(one, "text")), (int)i);
        }
    }
}

/* A golden case {"text", "ids", "offsets" in characters or absent}. Twice without offsets: the
 * second time, words are remembered. */
static inline void check_golden(const tok *t, const json_t *one, const char *name) {
    const json_t *text = json_object_get(one, "text");
    const char *s = json_string_value(text);
    size_t len = json_string_length(text);
    err e = {0};
    for (int i = 0; i < 2; i++) {
        tok_ids ids = encode_ok(t, s, len, 0);
        check_golden_ids(one, &ids, name);
        tok_ids_free(&ids);
    }
    tok_ids ids = {0};
    tok_spans spans = {0};
    assert_int_equal(tok_encode_spans(t, s, len, 0, &ids, &spans, &e), ST_OK);
    assert_int_equal(ids.n, spans.n);
    check_golden_ids(one, &ids, name);
    tok_spans_to_chars(&spans, s, len);
    check_golden_offsets(one, &spans, name);
    tok_ids_free(&ids);
    tok_spans_free(&spans);
}

/* Decoding gives the bytes back exactly. */
static inline void check_round_trip(const tok *t, const char *text, size_t len) {
    err e = {0};
    strbuf back = {0};
    tok_ids ids = encode_ok(t, text, len, 0);
    assert_int_equal(tok_decode(t, ids.id, ids.n, false, &back, &e), ST_OK);
    assert_int_equal(back.len, len);
    assert_memory_equal(strbuf_cstr(&back), text, len);
    strbuf_free(&back);
    tok_ids_free(&ids);
}

/* Trains on one text. */
static inline tok *train_on(tok_train_options opt, const char *text, size_t len) {
    err e = {0};
    tok_trainer *tr;
    tok *t;
    if (tok_trainer_new(&tr, &opt, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_trainer_add(tr, text, len, &e) != ST_OK) fail_msg("%s", e.message);
    if (tok_trainer_finish(tr, &t, &e) != ST_OK) fail_msg("%s", e.message);
    tok_trainer_free(tr);
    return t;
}

#endif
