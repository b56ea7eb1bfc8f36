/* Byte-pair encoding of one pre-token: O(n log n) with a heap of candidate merges, and a cache of
 * the words already seen in this call, which natural text hits more than nine times in ten. */
#include "tok/model/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/text/unicode.h"

/* One cache line; longer words and results are not kept. */
enum { CACHE_KEY = 22, CACHE_IDS = 10, CACHE_MAX = 1 << 14 };
typedef struct cached {
    int32_t id[CACHE_IDS];
    uint8_t n_key, n_id; /* n_key 0: free */
    char key[CACHE_KEY];
} cached;
_Static_assert(sizeof(cached) == 64, "a cache entry is one cache line");

/* Symbols of the word form a list over positions, so that a merge is O(1). */
typedef struct symbol {
    int32_t id; /* -1: merged into the symbol before */
    int32_t prev, next;
    int32_t at; /* first byte in the word */
} symbol;

/* order = rank << 32 | position: lowest rank first, then leftmost. Ids tell stale candidates. */
typedef struct candidate {
    uint64_t order;
    int32_t left, right;
} candidate;

typedef struct bpe_state {
    cached *cache;
    uint32_t cache_mask;
    symbol *symbol;
    candidate *heap;
    size_t n_heap, cap;
} bpe_state;

static void *bpe_state_new(const tok *t, size_t text_len) {
    (void)t;
    bpe_state *s = xcalloc(1, sizeof(*s));
    size_t entries = 64;
    while (entries < CACHE_MAX && entries < text_len / 8) entries *= 2;
    s->cache = xcalloc(entries, sizeof(cached));
    s->cache_mask = (uint32_t)entries - 1;
    return s;
}

static void bpe_state_free(void *state) {
    bpe_state *s = state;
    free(s->cache);
    free(s->symbol);
    free(s->heap);
    free(s);
}

/* Each symbol but the last gives one candidate and each merge at most two, of which it used one. */
static void reserve(bpe_state *s, size_t n) {
    if (n <= s->cap) return;
    s->cap = n < 64 ? 64 : n;
    free(s->symbol);
    free(s->heap);
    s->symbol = xmalloc(s->cap * sizeof(symbol));
    s->heap = xmalloc(2 * s->cap * sizeof(candidate));
}

static void heap_push(bpe_state *s, candidate c) {
    size_t i = s->n_heap++;
    while (i > 0 && s->heap[(i - 1) / 2].order > c.order) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
}

static candidate heap_pop(bpe_state *s) {
    candidate top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        if (child + 1 < s->n_heap && s->heap[child + 1].order < s->heap[child].order) child++;
        if (s->heap[child].order >= last.order) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

static void offer(const bpe_model *m, bpe_state *s, int32_t left) {
    int32_t right = left < 0 ? -1 : s->symbol[left].next;
    if (right < 0) return;
    int32_t a = s->symbol[left].id, b = s->symbol[right].id;
    int32_t rank = pair_map_get(&m->merge, pair_key(a, b));
    if (rank < 0) return;
    heap_push(s, (candidate){(uint64_t)(uint32_t)rank << 32 | (uint32_t)left, a, b});
}

static void merge_all(const bpe_model *m, bpe_state *s, int32_t n) {
    s->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++) offer(m, s, i);
    while (s->n_heap > 0) {
        candidate c = heap_pop(s);
        int32_t at = (int32_t)(c.order & UINT32_MAX);
        symbol *left = &s->symbol[at];
        if (left->id != c.left || left->next < 0 || s->symbol[left->next].id != c.right) continue;
        symbol *right = &s->symbol[left->next];
        left->id = m->merged[c.order >> 32];
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0) s->symbol[left->next].prev = at;
        offer(m, s, left->prev);
        offer(m, s, at);
    }
}

/* Writes the first symbols of a word, positions in `at`; -1 with the error set when one is unknown.
 * Without an unk token that is an error rather than a silent loss of text. */
static int32_t first_symbols(tok_enc *enc, const tok_piece *word) {
    const tok *t = enc->t;
    const bpe_model *m = t->model;
    symbol *sym = ((bpe_state *)enc->model)->symbol;
    int32_t n = 0;
    bool was_unknown = false;
    for (size_t i = 0; i < word->len;) {
        uint32_t cp = 0;
        int size = t->byte_level ? 1 : utf8_decode(word->s + i, word->len - i, &cp);
        CHECK(size > 0, "the word is not UTF-8 at byte %zu", i);
        int32_t id = t->byte_level ? t->byte_id[(uint8_t)word->s[i]]
                                   : str_map_get(&m->by_bytes, word->s + i, (size_t)size);
        bool unknown = id < 0, fused = unknown && was_unknown && m->fuse_unk;
        was_unknown = unknown;
        if (unknown && t->unk < 0) return enc_unknown(enc, word, i) == ST_OK ? 0 : -1;
        if (!fused) {
            sym[n] = (symbol){unknown ? t->unk : id, n - 1, n + 1, (int32_t)i};
            n++;
        }
        i += (size_t)size;
    }
    sym[n - 1].next = -1;
    return n;
}

static status encode_uncached(tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    bpe_state *s = enc->model;
    int32_t whole = m->ignore_merges ? str_map_get(&m->by_bytes, word->s, word->len) : -1;
    if (whole >= 0) {
        enc_push(enc, whole, word, 0, word->len);
        return ST_OK;
    }
    reserve(s, word->len);
    int32_t n = first_symbols(enc, word);
    if (n < 0) return ST_FORMAT;
    merge_all(m, s, n);
    for (int32_t i = 0, next; i >= 0; i = next) {
        next = s->symbol[i].next;
        size_t end = next >= 0 ? (size_t)s->symbol[next].at : word->len;
        enc_push(enc, s->symbol[i].id, word, (size_t)s->symbol[i].at, end);
    }
    return ST_OK;
}

static status bpe_encode(tok_enc *enc, const tok_piece *word) {
    if (word->len > CACHE_KEY || enc->spans) return encode_uncached(enc, word);
    bpe_state *s = enc->model;
    cached *c = &s->cache[(uint32_t)hash_bytes(word->s, word->len) & s->cache_mask];
    tok_ids *out = enc->out;
    if (c->n_key == word->len && memcmp(c->key, word->s, word->len) == 0) {
        for (int i = 0; i < c->n_id; i++) tok_ids_push(out, c->id[i]);
        return ST_OK;
    }
    int64_t before = out->n;
    TRY(encode_uncached(enc, word));
    int64_t n = out->n - before;
    if (n > CACHE_IDS) return ST_OK;
    c->n_key = (uint8_t)word->len;
    c->n_id = (uint8_t)n;
    memcpy(c->key, word->s, word->len);
    memcpy(c->id, out->id + before, (size_t)n * sizeof(int32_t));
    return ST_OK;
}

const model_class MODEL_BPE = {
    .type = "BPE",
    .read = bpe_read,
    .free = bpe_free,
    .hash = bpe_hash,
    .state_new = bpe_state_new,
    .state_free = bpe_state_free,
    .encode = bpe_encode,
};
