/* Shared by the fuzzers of other programs' token files: files from outside bytes, and all questions
 * about what opens. */
#ifndef TESTS_TOKEN_FUZZ_H
#define TESTS_TOKEN_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "data/shard/shards.h"

typedef struct token_file {
    const uint8_t *p;
    size_t n;
} token_file;

/* The first part of what is left: a u16 length, then its bytes. */
static inline token_file token_file_take(const uint8_t **p, size_t *left) {
    if (*left < 2) return (token_file){*p, 0};
    size_t n = (size_t)((*p)[0] | (*p)[1] << 8);
    *p += 2;
    *left -= 2;
    token_file part = {*p, n < *left ? n : *left};
    *p += part.n;
    *left -= part.n;
    return part;
}

static inline void token_file_path(char out[96], const char *name) {
    snprintf(out, 96, "/tmp/athanor-fuzz-tokens-%ld%s", (long)getpid(), name);
}

static inline void token_file_put(const char *name, token_file part) {
    char path[96];
    token_file_path(path, name);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fwrite(part.p, 1, part.n, f);
    fclose(f);
}

static inline void token_set_look(const shards *s) {
    arena *a = arena_new("fuzz");
    shard_place p;
    int32_t ends[64];
    int64_t n_ends;
    err e;
    for (uint64_t t = 0; t < s->totals.tokens && t < 500; t++) {
        int64_t n = s->totals.tokens - t < 64 ? (int64_t)(s->totals.tokens - t) : 64;
        if (shards_locate(s, t, a, &p, &e) == ST_OK &&
            (p.first_tok > t || p.end_tok <= t || p.end_tok > s->totals.tokens))
            abort();
        if (shards_ends(s, t, n, NULL, ends, &n_ends, &e) != ST_OK) continue;
        for (int64_t i = 0; i < n_ends; i++)
            if (ends[i] <= (i ? ends[i - 1] : 0) || ends[i] > n) abort();
    }
    if (shards_verify(s, &e) != ST_OK && e.code != ST_FORMAT) abort();
    arena_free(a);
}

/* Opens what lies at the path of `name`, and asks. */
static inline void token_set_try(const char *name, shards_format format, int width) {
    char path[96];
    token_file_path(path, name);
    shards_spec spec = {
        .path = path, .format = format, .width_bytes = width, .vocab_size = 0, .eos = 0};
    shards *s;
    err e;
    if (shards_open(&s, &spec, &e) != ST_OK) return;
    token_set_look(s);
    shards_close(s);
}

#endif
