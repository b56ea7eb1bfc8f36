/* Byte-pair encoding: the merges of a model, and how a word becomes ids by them.
 *
 *   bpe_json.c     options and merges from tokenizer.json
 *   bpe_symbols.c  a word's first symbols: bytes or characters
 *   bpe_merge.c    merges symbols, lowest rank first
 *   bpe_cut.c      where a text without words can be cut all the same
 *   bpe.c          the class: whole words, the cache of words, the chain of the above */
#ifndef TOK_MODEL_BPE_H
#define TOK_MODEL_BPE_H

#include "base/rng.h"
#include "tok/format/json.h"
#include "tok/internal.h"
#include "tok/model/joined.h"

enum { TOK_MAX_AFFIX = 64 }; /* bytes of a prefix or suffix */

/* One merge in an open hash table: two ids become one. Lower ranks go first, among equal ranks the
 * leftmost place in the word. */
typedef struct bpe_merge {
    uint64_t pair; /* pair_key + 1; 0: a free slot */
    int32_t rank, id;
} bpe_merge;

/* Where no merge can reach across, because no token has those characters side by side. Models that
 * were made for text without pre-tokens (Llama 2) cut there: short words are quick and are
 * remembered. */
typedef struct bpe_cut {
    bool possible;
    bool before_mark; /* before "\u2581" after anything else */
    bool elsewhere;   /* between bytes that are not joined */
    joined_bytes joined;
} bpe_cut;

typedef struct bpe_model {
    bpe_merge *slot;
    uint32_t mask;    /* slots - 1 */
    int32_t n_merges; /* in the file: ranks are below */
    str_map by_bytes; /* tokens by what they stand for: characters, words of ignore_merges */
    bool ignore_merges, fuse_unk, byte_fallback;
    const char *prefix, *suffix; /* of characters inside a word, of its last; NULL: none */
    bpe_cut cut;
    float dropout; /* share of merges left out (Provilkov et al. 2020) */
} bpe_model;

/* A part of the word on its way to become a token. */
typedef struct bpe_symbol {
    int32_t id;
    int32_t at, end; /* bytes of the word */
} bpe_symbol;

static inline const bpe_merge *bpe_find(const bpe_model *m, int32_t a, int32_t b) {
    uint64_t pair = pair_key(a, b) + 1;
    for (uint32_t i = (uint32_t)(mix64(pair)) & m->mask;; i = (i + 1) & m->mask) {
        if (m->slot[i].pair == pair) return &m->slot[i];
        if (m->slot[i].pair == 0) return NULL;
    }
}

/* Buffers that grow with the longest word. Initialise with {0}. */
typedef struct bpe_work {
    bpe_symbol *symbol;
    struct bpe_node *node;
    struct bpe_candidate *heap;
    size_t cap_symbols, cap_nodes, n_heap;
} bpe_work;
void bpe_work_free(bpe_work *w);

/* The first symbols of a word into w->symbol, and how many through *n. ST_FORMAT: a character
 * without a token and no unknown token: better than a silent loss of text. */
status bpe_first_symbols(tok_enc *enc, const tok_piece *word, bpe_work *w, int32_t *n) ATH_MUST_USE;
/* The same for a model without merges: the symbols' ids go to the output. Not for byte-level models
 * when places are asked for: where a byte is left out, they depend on the whole word. */
status bpe_push_symbols(tok_enc *enc, const tok_piece *word) ATH_MUST_USE;

/* Random numbers of dropout; NULL: none. */
typedef struct bpe_dropout {
    rng_key key;
    uint64_t drawn;
    float share;
} bpe_dropout;
/* Merges w->symbol[0..n) in place and returns how many are left. */
int32_t bpe_merge_all(const bpe_model *m, bpe_work *w, int32_t n, bpe_dropout *drop);

/* bpe_cut.c: once everything else of the model is read. */
void bpe_cut_find(const tok *t, bpe_model *m);
/* Whether each character (byte) becomes its ids whatever stands beside it. */
bool bpe_is_apart(const tok *t);
/* The end of the part that begins at `from`. */
size_t bpe_cut_end(const bpe_cut *c, const char *s, size_t n, size_t from);

/* bpe_json.c */
/* An empty table for n merges, and the next one: a pair that comes twice has the later rank. */
void bpe_reserve_merges(bpe_model *m, size_t n);
void bpe_put_merge(bpe_model *m, int32_t left, int32_t right, int32_t id);
/* The two sides of a merge, "a b" or ["a", "b"]; false: it is neither. */
bool bpe_merge_sides(const json_t *j, const char **a, size_t *n_a, const char **b, size_t *n_b);
status bpe_read(tok_reader *r, const json_t *model) ATH_MUST_USE;
void bpe_hash(const tok *t, XXH3_state_t *x);
void bpe_free(void *model);

#endif
