/* Unigram training (Kudo 2018, arXiv:1804.10959): many candidate pieces, then expectation
 * maximisation and pruning in turn until the vocabulary has its size.
 *
 * Text is characters by number, in the layout of bpe.h; a run is what stands between two ENDs.
 * Results do not depend on the number of threads: what threads add up are integers, and everything
 * else is summed over a fixed number of parts of the text, in their order.
 *
 * Reading order: unigram.c (the course of training), unigram_seed.c (candidates), unigram_trie.c,
 * unigram_lattice.c (one run), unigram_steps.c (expectation, maximisation, pruning). */
#ifndef TOK_TRAIN_UNIGRAM_H
#define TOK_TRAIN_UNIGRAM_H

#include "base/rng.h"
#include "tok/train/bpe.h"

enum {
    PIECE_MAX_CHARS = 16,
    TEXT_PARTS = 64 /* of the text that threads share out */
};

/* Pieces are stretches of the text: `at` is one place where the piece stands. The first n_chars
 * pieces are the single characters, by number; they always stay. */
typedef struct uni_piece {
    uint32_t at;
    int32_t len;
    double score; /* log probability */
} uni_piece;
typedef struct uni_model {
    const bpe_text *text;
    uni_piece *piece;
    int32_t n, n_chars;
} uni_model;

/* ---- unigram_seed.c ---- */

/* Candidates: substrings of runs that are seen at least twice and are not always followed by the
 * same character; the `limit` best by frequency times length. Scores are log shares of that. */
void uni_seed(uni_model *m, int32_t limit, const int64_t *char_uses, int64_t ram_bytes,
              const tok_train_options *opt);

/* ---- unigram_trie.c ---- */

typedef struct uni_slot {
    uint64_t key; /* (node, character) + 1, 0 is free */
    int32_t node, piece;
} uni_slot;
typedef struct uni_trie {
    uni_slot *slot;
    uint32_t mask;
    int32_t n_nodes;
} uni_trie;
void uni_trie_build(uni_trie *t, const uni_model *m);
void uni_trie_free(uni_trie *t);
/* The node of a single character. */
static inline int32_t uni_trie_first(int32_t ch) {
    return ch;
}
/* The slot below a node, NULL when no piece goes on so. */
static inline const uni_slot *uni_trie_step(const uni_trie *t, int32_t node, int32_t ch) {
    uint64_t key = ((uint64_t)(uint32_t)node << 32 | (uint32_t)ch) + 1;
    uint32_t i = (uint32_t)mix64(key) & t->mask;
    while (t->slot[i].key && t->slot[i].key != key) i = (i + 1) & t->mask;
    return t->slot[i].key ? &t->slot[i] : NULL;
}

/* ---- unigram_lattice.c ---- */

/* The pieces that may stand in a run, and the sums over its segmentations. One thread's scratch. */
typedef struct uni_edge {
    int32_t piece, len;
} uni_edge;
typedef struct uni_lattice {
    uni_edge *edge;
    int32_t n_edges, cap_edges;
    int32_t *first; /* edges that start at i: [first[i], first[i + 1]) */
    double *alpha, *beta, *log_alpha, *log_beta;
    int32_t *node, *depth, *open; /* by place, while pieces are looked for */
    int32_t *grid;                /* [n, PIECE_MAX_CHARS] pieces by place and length - 1 */
    int32_t n, cap;               /* characters */
} uni_lattice;
void uni_lattice_set(uni_lattice *l, const uni_trie *t, const int32_t *run, int32_t n);
void uni_lattice_free(uni_lattice *l);
/* Adds the expected number of uses of each piece, times `count`, in units of 2^-bits. `weight` is
 * exp(score + boost * len) by piece; any boost gives the same, one near the log probability of a
 * character keeps numbers near 1. Returns the log probability of the run. */
double uni_lattice_expect(uni_lattice *l, const double *weight, double boost, int64_t count,
                          int bits, int64_t *expected);
/* The most probable segmentation: its pieces into out[n] (first to last), returns how many. Piece
 * `without` may not be used (-1: all may). */
int32_t uni_lattice_best(uni_lattice *l, const uni_piece *piece, int32_t without, int32_t *out,
                         double *score);

/* ---- unigram_steps.c ---- */

typedef struct uni_trainer {
    uni_model model;
    uni_trie trie;
    int n_threads, bits;
    double boost;
    int64_t part[TEXT_PARTS + 1];
} uni_trainer;
/* One step of expectation maximisation; drops pieces that are hardly ever used. */
void uni_em_step(uni_trainer *u);
/* Keeps the `keep` pieces whose loss would cost the text most, and all characters. */
void uni_prune(uni_trainer *u, int32_t keep);

#endif
