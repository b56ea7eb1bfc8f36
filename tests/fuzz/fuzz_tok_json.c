/* libFuzzer target: tokenizer.json from outside bytes. The input is
 *   tokenizer.json | NUL | text
 * What loads encodes the text, decodes the ids, and decodes them as a stream; nothing may crash,
 * read out of bounds or take long. */
#include <stdlib.h>
#include <string.h>

#include "tok/tok.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was decoded at once equals what was decoded piece by piece. */
static void decode_both_ways(const tok *t, const tok_ids *ids) {
    err e;
    strbuf whole = {0}, pieces = {0};
    tok_stream s = {.t = t};
    CHECK(tok_decode(t, ids->id, ids->n, false, &whole, &e) == ST_OK, "%s", e.message);
    for (int64_t i = 0; i < ids->n; i++) {
        CHECK(tok_stream_push(&s, ids->id[i], &pieces, &e) == ST_OK, "%s", e.message);
    }
    tok_stream_flush(&s, &pieces);
    CHECK(whole.len == pieces.len, "stream gave %zu of %zu bytes", pieces.len, whole.len);
    CHECK(memcmp(strbuf_cstr(&whole), strbuf_cstr(&pieces), whole.len) == 0, "stream differs");
    strbuf_free(&whole);
    strbuf_free(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    err e = {0};
    tok *t;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    if (tok_parse(&t, (const char *)data, n, "fuzz", &e) != ST_OK) {
        CHECK(e.code == ST_FORMAT && e.message[0], "an error without words");
        return 0;
    }
    tok_ids ids = {0};
    const char *text = end ? (const char *)end + 1 : "a text";
    size_t len = end ? size - n - 1 : 6;
    if (tok_encode(t, text, len, TOK_ADD_SPECIAL, &ids, &e) == ST_OK) decode_both_ways(t, &ids);
    tok_ids_free(&ids);
    tok_free(t);
    return 0;
}
