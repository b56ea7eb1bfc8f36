/* What the trainers share. */
#ifndef TOK_TRAIN_TRAIN_H
#define TOK_TRAIN_TRAIN_H

#include "tok/internal.h"

typedef struct bpe_trainer bpe_trainer;

struct tok_trainer {
    tok_train_options opt; /* special and pattern point into mem */
    arena *mem;
    int64_t n_bytes;  /* text seen */
    bpe_trainer *bpe; /* TOK_BPE */
    uint8_t *seen;    /* TOK_CHAR: one bit per code point */
};

/* tok_bpe_train.c: counts the pre-tokens of a text, then finds the merges. */
bpe_trainer *bpe_trainer_new(bool gpt2);
void bpe_trainer_free(bpe_trainer *b);
void bpe_trainer_add(bpe_trainer *b, const char *text, size_t len);

/* A vocabulary in the making: token strings by id, merges as pairs of ids. */
typedef struct tok_draft {
    arena *mem;
    const char **token;
    int32_t n_token, cap_token;
    int32_t (*merge)[2];
    int32_t n_merges, cap_merges;
} tok_draft;
/* Adds the byte alphabet and merges to a draft that holds the special tokens. */
void bpe_trainer_merge(bpe_trainer *b, const tok_train_options *opt, tok_draft *d);
void tok_draft_add(tok_draft *d, const char *token);

/* tok_build.c: the tokenizer.json of a draft, loaded. */
status tok_build(const tok_trainer *tr, const tok_draft *d, tok **out, err *e) ATH_MUST_USE;

#endif
