/* The engine of BPE training, over numbered symbols: byte-level BPE, BPE over characters and
 * WordPiece differ only in how words are spelled.
 *
 * Reading order: bpe_text.c (the words), bpe_pairs.c (pairs, where they are, which is next),
 * bpe_apply.c (one merge), bpe_merge.c (the loop and its memory). */
#ifndef TOK_TRAIN_BPE_H
#define TOK_TRAIN_BPE_H

#include "tok/train/train.h"
#include "tok/train/words.h"

/* ---- bpe_text.c ---- */

/* All distinct words, one after the other, each between two ENDs. At first every place holds one
 * symbol, a number from 0 on. When symbols merge, nothing moves: the new symbol stands in its first
 * place, and its second and its last place hold how many places it takes, as a negative code
 * (sym_length_code). So both neighbours of a symbol are found in one step:
 *     END a b c END   ->  END ab (2) c END   ->   END abc (3) (3) END
 * Places between the second and the last hold old codes, which are negative too and never read.
 *
 * Words with the same count lie together in a segment, which begins at a block of 64 places: so a
 * count is kept for each block and not for each word. */
enum { SYM_END = -1, BLOCK_PLACES = 64 };
typedef struct bpe_segment {
    int64_t start, end, count; /* places; start is a multiple of BLOCK_PLACES */
} bpe_segment;
typedef struct bpe_text {
    int32_t *sym; /* [n], END at both ends of every word */
    int64_t n;
    int64_t *count; /* by block */
    bpe_segment *segment;
    int32_t n_segments, cap_segments;
    int64_t live; /* symbols in it by now */
} bpe_text;

static inline int32_t sym_length_code(int32_t length) {
    return -1 - length;
}
/* Length of the symbol at p. */
static inline int32_t sym_length(const int32_t *sym, int64_t p) {
    int32_t v = sym[p + 1];
    return v < SYM_END ? -1 - v : 1;
}
/* Start of the symbol that ends before p, -1 when a word begins at p. */
static inline int64_t sym_before(const int32_t *sym, int64_t p) {
    int32_t v = sym[p - 1];
    if (v == SYM_END) return -1;
    return v >= 0 ? p - 1 : p + 1 + v;
}
static inline bool sym_is_pair(const int32_t *sym, int64_t p, int32_t a, int32_t b) {
    return sym[p] == a && sym[p + sym_length(sym, p)] == b;
}

/* Spells a word: writes at most `len` symbols, SYM_END where no merge may pass, returns how many.
 */
typedef int32_t bpe_spell_fn(const void *ctx, const char *word, uint32_t len, int32_t *out);
void bpe_text_build(bpe_text *t, const word_ref *words, int64_t n, bpe_spell_fn *spell,
                    const void *ctx);
/* Closes the gaps: every symbol takes one place, and places change. Before it, plan tells for every
 * block where its first symbol will lie (on the heap), and new_place the same for any symbol. */
void bpe_text_compact(bpe_text *t);
uint32_t *bpe_text_plan(const bpe_text *t);
uint32_t bpe_text_new_place(const bpe_text *t, const uint32_t *plan, int64_t p);
void bpe_text_free(bpe_text *t);
/* Parts of about the same size for n threads, cut between words: part i is [cut[i], cut[i + 1]). */
void bpe_text_cut(const bpe_text *t, int n, int64_t *cut);

/* ---- bpe_pairs.c ---- */

typedef struct bpe_pair {
    uint64_t pair;
    int64_t count;
    int32_t rank;     /* of its last merge, -1: not merged yet */
    uint32_t n_lists; /* entries of the heap that have places of it */
} bpe_pair;
typedef struct bpe_pairs {
    bpe_pair *pair;
    uint32_t n, cap;
    uint32_t *slot; /* index + 1, 0: free */
    uint32_t cap_slots;
} bpe_pairs;
enum { PAIR_NONE = -1 };
int64_t bpe_pairs_find(const bpe_pairs *t, uint64_t pair); /* PAIR_NONE when absent */
uint32_t bpe_pairs_add(bpe_pairs *t, uint64_t pair);       /* or the one there is */
void bpe_pairs_free(bpe_pairs *t);
/* Counts all neighbours in the text, on all cores. */
void bpe_pairs_count(bpe_pairs *t, const bpe_text *text, int n_threads);

/* Places where a pair was seen, in increasing order; some may be gone by now. */
typedef struct bpe_list {
    uint32_t pair, n;
    uint64_t at; /* in the pool */
} bpe_list;
enum { LIST_NONE = UINT32_MAX }; /* no list: the text is searched */

/* An entry of the heap: a pair with its count when it was put in, never below today's unless a
 * later entry of the pair has it. */
typedef struct bpe_entry {
    int64_t count;
    uint64_t pair;
    uint32_t list;
} bpe_entry;
typedef struct bpe_heap {
    bpe_entry *entry;
    uint32_t n, cap;
} bpe_heap;
void bpe_heap_push(bpe_heap *h, bpe_entry e);
bpe_entry bpe_heap_pop(bpe_heap *h);

/* Lists in one pool, in the order in which they were made. */
typedef struct bpe_lists {
    bpe_list *list;
    uint32_t n, cap;
    uint32_t *pool;
    uint64_t n_pool, cap_pool; /* cap_pool 0: there are no lists, the text is searched */
} bpe_lists;
/* Takes room for n places of a pair; the caller fills it. */
uint32_t *bpe_lists_add(bpe_lists *l, uint32_t pair, uint32_t n);
/* Drops the places that are gone, and the lists that the heap no longer has. With `compact` the
 * text is compacted, too, and the places follow. */
void bpe_lists_collect(bpe_lists *l, bpe_heap *heap, const bpe_pairs *pairs, bpe_text *text,
                       bool compact);
void bpe_lists_resize(bpe_lists *l, uint64_t cap_pool);
/* Lists of all pairs in the text, and a heap that has them. */
void bpe_lists_build(bpe_lists *l, bpe_heap *heap, bpe_pairs *pairs, const bpe_text *text,
                     uint64_t cap_pool, int n_threads);
void bpe_lists_free(bpe_lists *l);

/* ---- bpe_apply.c ---- */

/* What one thread gained while it replaced (a, b) by c: counts of the new pairs (x, c) and (c, y)
 * by neighbour, and where they are. */
typedef struct bpe_event {
    int32_t neighbour;
    uint32_t place;
} bpe_event;
typedef struct bpe_side {
    int64_t *count; /* by neighbour; all zero between merges */
    uint32_t *n;    /* events by neighbour */
    uint64_t *fill; /* by neighbour, for the caller */
    int32_t *seen;  /* neighbours */
    int32_t n_seen;
    bpe_event *event;
    uint32_t n_events, cap_events;
} bpe_side;
typedef struct bpe_gains {
    bpe_side left, right;
    int64_t own;  /* count of (c, c) where the left c is new, not part of `right` */
    int64_t undo; /* count of (c, a) whose a became part of a c */
    int64_t n;    /* pairs replaced */
    bool keep_events;
} bpe_gains;
void bpe_gains_init(bpe_gains *g, int32_t max_symbols);
void bpe_gains_free(bpe_gains *g);
/* Replaces (a, b) by c at the places of a list that still hold it, or everywhere in [start, end).
 */
void bpe_apply_list(bpe_gains *g, const bpe_text *t, const uint32_t *place, uint64_t n, int32_t a,
                    int32_t b, int32_t c);
void bpe_apply_range(bpe_gains *g, const bpe_text *t, int64_t start, int64_t end, int32_t a,
                     int32_t b, int32_t c);
/* Adds what `from` gained, and empties it. */
void bpe_gains_merge(bpe_gains *into, bpe_gains *from);
void bpe_gains_clear(bpe_gains *g);

/* ---- bpe_merge.c ---- */

typedef struct bpe_job {
    tok_draft *draft;   /* holds the alphabet; gets the merged tokens */
    const char *prefix; /* that a token has unless it begins a word ("##"); NULL: none */
    int32_t n_tokens;   /* to have in the end */
    int32_t longest;    /* in characters, prefix aside: pairs that would be longer stay apart */
    int64_t min_frequency;
    int64_t ram_bytes; /* for all that training holds, the text included */
    const tok_train_options *opt;
} bpe_job;
/* The merges of Hugging Face's BpeTrainer: highest count first, then the smaller pair of ids
 * (`longest` is its max_token_length). The result does not depend on the number of threads. Uses up the text. */
void bpe_merge(bpe_text *t, const bpe_job *job);

#endif
