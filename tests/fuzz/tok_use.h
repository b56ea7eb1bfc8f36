/* What the fuzzers of tokenizers do with one that loads. */
#ifndef FUZZ_TOK_USE_H
#define FUZZ_TOK_USE_H

#include <stdlib.h>
#include <string.h>

#include "tok/tok.h"

static inline status decode_stream(const tok *t, const tok_ids *ids, strbuf *out, err *e) {
    tok_stream s = {.t = t};
    status st = ST_OK;
    for (int64_t i = 0; st == ST_OK && i < ids->n; i++) {
        st = tok_stream_push(&s, ids->id[i], out, e);
    }
    if (st == ST_OK) st = tok_stream_flush(&s, out, e);
    tok_stream_free(&s);
    return st;
}

/* What was decoded at once equals what was decoded piece by piece; both may give up. */
static inline void decode_both_ways(const tok *t, const tok_ids *ids) {
    err e = {0};
    strbuf whole = {0}, pieces = {0};
    status st = tok_decode(t, ids->id, ids->n, false, &whole, &e);
    CHECK(st == ST_OK || st == ST_FORMAT, "%s", e.message);
    CHECK(decode_stream(t, ids, &pieces, &e) == st, "the stream ends otherwise");
    CHECK(st != ST_OK || whole.len == pieces.len, "stream gave %zu of %zu bytes", pieces.len,
          whole.len);
    CHECK(memcmp(strbuf_cstr(&whole), strbuf_cstr(&pieces), whole.len) == 0, "stream differs");
    strbuf_free(&whole);
    strbuf_free(&pieces);
}

/* Bytes as ids, where there are such ids. */
static inline tok_ids ids_from(const tok *t, const char *text, size_t len) {
    tok_ids ids = {0};
    size_t n;
    for (size_t i = 0; i < len; i++) {
        int32_t id = (uint8_t)text[i] % tok_vocab_size(t);
        if (tok_bytes(t, id, &n)) tok_ids_push(&ids, id);
    }
    return ids;
}

/* Encodes a text, decodes the ids and ids that stand in the text. */
static inline void use_tok(const tok *t, const char *text, size_t len) {
    err e = {0};
    tok_ids ids = {0};
    if (tok_encode(t, text, len, TOK_ADD_SPECIAL, &ids, &e) == ST_OK) decode_both_ways(t, &ids);
    tok_ids_free(&ids);
    ids = ids_from(t, text, len);
    decode_both_ways(t, &ids);
    tok_ids_free(&ids);
}

#endif
