/* libFuzzer target: indices of sequences from outside bytes. The input is
 *   u8 kind (packing, order) | u8 number of sequences | u8 whether the trailer is the input's
 *   | pieces and sequences [ | trailer ]
 * With its own trailer the index mostly is of other data and is made anew; else a trailer that fits
 * is put behind, so that every look-up meets the input's pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "data/order/packing_format.h"

enum { DOCUMENTS = 12, VOCAB = 50, T = 7 };

static void scene_path(char out[64]) {
    snprintf(out, 64, "/tmp/athanor-fuzz-packing-%ld", (long)getpid());
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    char dir[64];
    scene_path(dir);
    shard_writer_options opt = {.tok_hash = 1, .vocab_size = VOCAB, .eos = -1, .scores = true};
    shard_writer *w;
    err e;
    if (shard_writer_open(&w, dir, &opt, &e) != ST_OK) abort();
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[DOCUMENTS] = {d, 2 * d, 3, 4, 5};
        shard_record r = {.ids = ids, .n = d + 1, .source = "f", .score = (float)(d % 5)};
        if (shard_writer_add(w, &r, &e) != ST_OK) abort();
    }
    if (shard_writer_finish(w, &e) != ST_OK) abort();
    shard_writer_free(w);
    return 0;
}

static packing_trailer fitting_trailer(const shards *s, const loader_config *cfg, size_t body,
                                       uint64_t sequences) {
    uint64_t most = body / PACKING_ENTRY_BYTES;
    if (sequences > most) sequences = most;
    packing_trailer t = {.magic = PACKING_MAGIC,
                         .packing = cfg->packing,
                         .order = cfg->order,
                         .seq_len = T,
                         .fingerprint = s->fingerprint,
                         .n_tok = s->totals.tokens,
                         .totals.sequences = sequences};
    t.n_pieces = (body - sequences * PACKING_ENTRY_BYTES) / PACKING_PIECE_BYTES;
    t.hash = packing_trailer_hash(&t);
    return t;
}

static void put_index(const char *dir, const loader_config *cfg, const uint8_t *data, size_t size,
                      uint64_t sequences, bool trailer) {
    static const char *const packings[] = {"concat", "bestfit", "none"};
    static const char *const orders[] = {"", "-asc", "-desc"};
    char path[128];
    shards *s;
    err e;
    if (shards_open(&s, &(shards_spec){.path = dir, .eos = -1}, &e) != ST_OK) abort();
    snprintf(path, sizeof path, "%s/pack-%s-%d%s.seq", dir, packings[cfg->packing], T,
             orders[cfg->order]);
    packing_trailer t = fitting_trailer(s, cfg, size, sequences);
    if (trailer) size = t.n_pieces * PACKING_PIECE_BYTES + t.totals.sequences * PACKING_ENTRY_BYTES;
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fwrite(data, 1, size, f);
    if (trailer) fwrite(&t, 1, sizeof t, f);
    fclose(f);
    shards_close(s);
}

static void use(loader *l) {
    err e;
    int32_t ids[2 * T], targets[2 * T], start[2 * T], pos[2 * T];
    arena *a = arena_new("fuzz");
    for (uint64_t i = 0; i < 12; i++) {
        loader_fill(l, i, 2, ids, targets, start, pos, NULL);
        for (int t = 0; t < 2 * T; t++)
            if (ids[t] < 0 || ids[t] >= VOCAB || start[t] < 0 || start[t] > t % T) abort();
        if (loader_place_of(l, i).n_inputs > T) abort();
        loader_span *spans;
        int n;
        if (loader_describe(l, i, a, &spans, &n, &e) == ST_OK && n > T) abort();
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    char dir[64];
    scene_path(dir);
    loader_source src = {.path = dir, .weight = 1};
    loader_config cfg = {.sources = &src,
                         .n_sources = 1,
                         .seq_len = T,
                         .document_mask = true,
                         .shuffle = true,
                         .packing = (loader_packing)(data[0] % 3),
                         .order = (loader_order)(data[0] / 3 % 3),
                         .eos = -1};
    if (cfg.packing == PACKING_CONCAT && cfg.order == ORDER_SHUFFLE) return 0; /* no index */
    put_index(dir, &cfg, data + 3, size - 3, data[1], data[2] % 2 == 0);
    loader *l;
    err e;
    if (loader_open(&l, &cfg, &e) != ST_OK) abort(); /* it can always be made anew */
    use(l);
    loader_close(l);
    return 0;
}
