/* Unigram: the cut of a text into pieces whose scores have the greatest sum (Kudo 2018,
 * arXiv:1804.10959).
 *
 *   unigram_json.c     scores and options from tokenizer.json, and sentencepiece's rules
 *   unigram_lattice.c  the best cut of a stretch of text
 *   unigram.c          the class: stretches, the cache of words, unknown text, byte pieces
 *
 * Two libraries define what is exact, and they differ in little things:
 *   Hugging Face   sums in double; every piece of the vocabulary is found in text, also <unk> and
 *                  <0x0A>; bytes stand for a whole run of unknown characters
 *   sentencepiece  (0.2.3) sums in float, from the start of the text, taken back to 0 beyond
 *                  +-100,000; only normal and user-defined pieces are found in text; a user-defined
 *                  piece of n bytes has the score 0.1 (n - 1) */
#ifndef TOK_MODEL_UNIGRAM_H
#define TOK_MODEL_UNIGRAM_H

#include "tok/format/json.h"
#include "tok/internal.h"
#include "tok/model/joined.h"
#include "tok/model/piece_trie.h"

/* Makes a loaded tok, whose model is Unigram, give the ids of the sentencepiece library. `type`:
 * the spm_type of each id. Changes the hash. ST_USAGE: another model. ST_FORMAT: too large. */
status unigram_use_sentencepiece(tok *t, const uint8_t *type, err *e) ATH_MUST_USE;

typedef struct unigram_model {
    piece_trie trie;
    double *score; /* by id; score[-1], of the nodes where no piece ends, is -INFINITY */
    double unk_score, max_abs_score;
    bool sentencepiece; /* false: Hugging Face's rules */
    bool byte_fallback;
    joined_bytes joined; /* in pieces */
} unigram_model;

/* The end of a piece on the best way so far to a place in the text. */
typedef struct unigram_node {
    double score;  /* -INFINITY: not reached */
    int32_t start; /* of the piece */
    int32_t id;    /* tok.unk: an unknown character */
} unigram_node;

/* Buffers of the lattice. Initialise with {0}. */
typedef struct unigram_lattice {
    unigram_node *node; /* by place, counted from the last one that all ways pass */
    int32_t *end;       /* of the pieces on the best way, last first */
    size_t cap_nodes, cap_ends;
} unigram_lattice;
void unigram_lattice_free(unigram_lattice *l);

/* Takes one piece of the best way: word[start, end). */
typedef status unigram_take_fn(tok_enc *enc, const tok_piece *word, size_t start, size_t end,
                               int32_t id);
/* Calls `take` for the pieces of word[from, to), which no piece of the vocabulary crosses the ends
 * of. *sum is the score of the text before, and then of the text up to `to`. */
status unigram_best(tok_enc *enc, unigram_lattice *l, const tok_piece *word, size_t from, size_t to,
                    double *sum, unigram_take_fn *take) ATH_MUST_USE;

enum { UNIGRAM_SHORT = 24 }; /* bytes */
/* The best way through at most UNIGRAM_SHORT bytes by itself: ids, how many, and how much better it
 * is than any other way. False: something in it is unknown. */
bool unigram_best_short(const tok *t, const char *s, size_t n, int32_t *id, int *n_ids,
                        double *margin);

/* Sums beyond this are taken back to 0 in sentencepiece. */
#define UNIGRAM_RESET 100000.0

static inline double unigram_sum(const unigram_model *m, double sum, double score) {
    return m->sentencepiece ? (double)(float)(sum + score) : sum + score;
}

/* unigram_json.c */
status unigram_read(tok_reader *r, const json_t *model) ATH_MUST_USE;
void unigram_hash(const tok *t, XXH3_state_t *x);
void unigram_free(void *model);

#endif
