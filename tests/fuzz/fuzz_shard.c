/* libFuzzer target: shard folders from outside bytes. The input is
 *   u16 length of the manifest | manifest | the same for .bin and .idx | .ids
 * An empty part stands for a good file, so that every layer is reached. What
 * opens is verified, looked up and loaded: nothing may crash or read out of bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "data/order/loader.h"

enum { TOKENS = 40, DOCUMENTS = 8, VOCAB = 50, T = 7 };

typedef struct input {
    const uint8_t *p;
    size_t n;
} input;

static input take(input *in, size_t n) {
    input part = {in->p, n < in->n ? n : in->n};
    in->p += part.n;
    in->n -= part.n;
    return part;
}

static input take_sized(input *in) {
    input head = take(in, 2);
    return head.n < 2 ? (input){in->p, 0} : take(in, (size_t)(head.p[0] | head.p[1] << 8));
}

static void put(const char *dir, const char *name, input data) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fwrite(data.p, 1, data.n, f);
    fclose(f);
}

static void scene_path(char out[64], const char *which) {
    snprintf(out, 64, "/tmp/athanor-fuzz-shard-%ld-%s", (long)getpid(), which);
}

/* A good set, made once; the fuzzed files are laid over a copy of its files. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    char dir[64];
    scene_path(dir, "good");
    shard_writer_options opt = {
        .tok_hash = 1, .vocab_size = VOCAB, .eos = -1, .ids = true, .scores = true};
    shard_writer *w;
    err e;
    if (shard_writer_open(&w, dir, &opt, &e) != ST_OK) abort();
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[TOKENS / DOCUMENTS] = {d, 2 * d, 3, 4, 5};
        shard_record r = {.ids = ids,
                          .n = ARRAY_LEN(ids),
                          .source = "f",
                          .text_bytes = 9,
                          .id = "name",
                          .score = (float)d};
        if (shard_writer_add(w, &r, &e) != ST_OK) abort();
    }
    if (shard_writer_finish(w, &e) != ST_OK) abort();
    shard_writer_free(w);
    scene_path(dir, "work");
    return file_make_dirs(dir, &e) == ST_OK ? 0 : 1;
}

static void put_or_copy(const char *dir, const char *good, const char *name, input data) {
    char path[128], *text;
    size_t n;
    err e;
    snprintf(path, sizeof path, "%s/%s", good, name);
    if (data.n) {
        put(dir, name, data);
        return;
    }
    if (file_read_all(path, &text, &n, &e) != ST_OK) abort();
    put(dir, name, (input){(const uint8_t *)text, n});
    free(text);
}

static void load(const char *dir, bool mask, bool shuffle) {
    loader_source src = {.path = dir, .weight = 1};
    loader_config cfg = {.sources = &src,
                         .n_sources = 1,
                         .seq_len = T,
                         .document_mask = mask,
                         .shuffle = shuffle,
                         .eos = -1};
    loader *l;
    err e;
    int32_t ids[2 * T], targets[2 * T], start[2 * T], pos[2 * T];
    if (loader_open(&l, &cfg, &e) != ST_OK) return;
    int32_t vocab = loader_source_shards(l, 0)->vocab_size;
    arena *a = arena_new("fuzz");
    for (uint64_t i = 0; i < 16; i++) {
        loader_fill(l, i, 2, ids, targets, start, pos, NULL);
        for (int t = 0; t < 2 * T; t++)
            if (ids[t] < 0 || ids[t] >= vocab || pos[t] < 0 || pos[t] >= T) abort();
        loader_span *spans;
        int n;
        if (loader_describe(l, i, a, &spans, &n, &e) == ST_OK && n > T) abort();
    }
    arena_free(a);
    loader_close(l);
}

/* Every question about every document and token: bounds lie in the set, or there is an error. */
static void look(const shards *s) {
    arena *a = arena_new("fuzz");
    shard_place p;
    err e;
    for (uint64_t t = 0; t < s->totals.tokens && t < 256; t++)
        if (shards_locate(s, t, a, &p, &e) == ST_OK && (p.first_tok > t || p.end_tok <= t)) abort();
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char dir[64], good[64];
    scene_path(dir, "work");
    scene_path(good, "good");
    input in = {data, size}, manifest = take_sized(&in), bin = take_sized(&in);
    input idx = take_sized(&in);
    put_or_copy(dir, good, "manifest.json", manifest);
    put_or_copy(dir, good, "shard-00000.bin", bin);
    put_or_copy(dir, good, "shard-00000.idx", idx);
    put_or_copy(dir, good, "shard-00000.ids", in);
    shards *s;
    err e;
    if (shards_open(&s, &(shards_spec){.path = dir, .eos = -1}, &e) == ST_OK) {
        look(s);
        if (shards_verify(s, &e) != ST_OK && e.code != ST_FORMAT) abort();
        shards_close(s);
    }
    load(dir, true, true);
    load(dir, true, false);
    load(dir, false, true);
    return 0;
}
