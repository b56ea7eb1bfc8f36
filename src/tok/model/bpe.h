/* The merges of a BPE model and how they are read. */
#ifndef TOK_MODEL_BPE_H
#define TOK_MODEL_BPE_H

#include "tok/format/json.h"
#include "tok/internal.h"

typedef struct bpe_model {
    pair_map merge;  /* pair of ids -> rank */
    int32_t *merged; /* rank -> id */
    int32_t n_merges;
    str_map by_bytes; /* tokens by what they stand for: characters, words of ignore_merges */
    bool ignore_merges, fuse_unk;
} bpe_model;

/* bpe_json.c */
status bpe_read(tok_reader *r, const json_t *model) ATH_MUST_USE;
void bpe_hash(const tok *t, XXH3_state_t *x);
void bpe_free(void *model);

#endif
