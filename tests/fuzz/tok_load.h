/* Loading a tokenizer from bytes in memory, for the fuzzers of formats. */
#ifndef FUZZ_TOK_LOAD_H
#define FUZZ_TOK_LOAD_H

#include "tok/format/format.h"
#include "tok_use.h"

/* A text with something for everybody, and bytes that are not UTF-8. */
#define FUZZ_TEXT                                                                                  \
    "a text <s>  The\xE2\x96\x81 12 caf\xC3\xA9 e\xCC\x81\n\xE4\xB8\xAD\xFF\xF0\x9F\x91\x8D"

typedef status fuzz_load_fn(tok_input *in, tok **out);

/* Loads, and uses what loads; errors must have words. */
static inline void fuzz_load(const uint8_t *data, size_t size, const char *pattern,
                             fuzz_load_fn *load) {
    err e = {0};
    tok *t = NULL;
    char *bytes = xmalloc(size + 1);
    memcpy(bytes, data, size);
    bytes[size] = '\0';
    tok_input in = {.path = "fuzz",
                    .base = "fuzz",
                    .dir = "/nonexistent/",
                    .bytes = bytes,
                    .len = size,
                    .opt = {.pattern = pattern},
                    .mem = arena_new("fuzz"),
                    .e = &e};
    status st = load(&in, &t);
    CHECK(st == ST_OK || (st == ST_FORMAT && e.message[0]), "an error without words");
    if (st == ST_OK) use_tok(t, FUZZ_TEXT, sizeof(FUZZ_TEXT) - 1);
    tok_free(t);
    arena_free(in.mem);
    free(bytes);
}

#endif
