/* What the tokenizer tests share: files of tests/golden/tok, and calls that must succeed. */
#ifndef TESTS_TOK_TEST_H
#define TESTS_TOK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
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

static inline tok_ids encode_ok(const tok *t, const char *text, size_t len, unsigned flags) {
    err e = {0};
    tok_ids ids = {0};
    if (tok_encode(t, text, len, flags, &ids, &e) != ST_OK) fail_msg("%s", e.message);
    return ids;
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
