/* The BPE class. Words that were met lately are remembered with their ids: natural text finds more
 * than nine of ten there. */
#include "tok/model/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- cache ---- */

/* One cache line; longer words and results are not kept. Keys are padded with zeros, so that they
 * compare and hash as three numbers. */
enum { CACHE_KEY = 24, CACHE_IDS = 9, CACHE_ENTRIES = 1 << 15 };
typedef struct cached {
    uint64_t key[3];
    uint16_t n_key, n_id; /* n_key 0: free */
    int32_t id[CACHE_IDS];
} cached;
_Static_assert(sizeof(cached) == 64, "a cache entry is one cache line");

struct bpe_state {
    cached *cache;
    bpe_work work;
};

static void *bpe_state_new(const tok *t) {
    (void)t;
    bpe_state *s = xcalloc(1, sizeof(*s));
    s->cache = xcalloc(CACHE_ENTRIES, sizeof(cached));
    return s;
}

static void bpe_state_free(void *state) {
    bpe_state *s = state;
    free(s->cache);
    bpe_work_free(&s->work);
    free(s);
}

static inline uint64_t load8(const char *s) {
    uint64_t v;
    memcpy(&v, s, 8);
    return v;
}

/* Fewer than 8 bytes, by loads that overlap. */
static inline uint64_t load_short(const char *s, size_t n) {
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, s, 4);
        memcpy(&high, s + n - 4, 4);
        return low | (uint64_t)high << 8 * (n - 4);
    }
    if (n == 0) return 0;
    const uint8_t *u = (const uint8_t *)s;
    return u[0] | (uint64_t)u[n / 2] << 8 * (n / 2) | (uint64_t)u[n - 1] << 8 * (n - 1);
}

/* The last `n` < 8 bytes of a word of 8 or more. */
static inline uint64_t load_last(const char *s, size_t len, size_t n) {
    return n == 0 ? 0 : load8(s + len - 8) >> 8 * (8 - n);
}

/* The word as three numbers. */
static inline void load_key(const char *s, size_t len, uint64_t key[3]) {
    key[0] = key[1] = key[2] = 0;
    if (len < 8) {
        key[0] = load_short(s, len);
        return;
    }
    key[0] = load8(s);
    if (len < 16) {
        key[1] = load_last(s, len, len - 8);
        return;
    }
    key[1] = load8(s + 8);
    key[2] = len < 24 ? load_last(s, len, len - 16) : load8(s + 16);
}

static inline cached *cache_slot(bpe_state *s, const uint64_t key[3]) {
    uint64_t h = key[0] * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ key[1]) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 32) ^ key[2]) * 0x94d049bb133111ebu;
    return &s->cache[(h >> 40) & (CACHE_ENTRIES - 1)];
}

static void cache_put(cached *c, const uint64_t key[3], size_t len, const int32_t *id, int64_t n) {
    if (n > CACHE_IDS) return;
    memcpy(c->key, key, sizeof(c->key));
    c->n_key = (uint16_t)len;
    c->n_id = (uint16_t)n;
    memcpy(c->id, id, (size_t)n * sizeof(int32_t));
}

/* ---- words ---- */

/* Draws depend on the word and on what came before it in the text, not on threads. */
static bpe_dropout dropout_for(const tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    return (bpe_dropout){rng_key_numbered(hash_bytes(word->s, word->len), (uint64_t)enc->out->n), 0,
                         m->dropout};
}

static status encode_uncached(tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    bpe_work *w = &((bpe_state *)enc->model)->work;
    int32_t n, whole = m->ignore_merges ? str_map_get(&m->by_bytes, word->s, word->len) : -1;
    if (whole >= 0) {
        enc_push(enc, whole, word, 0, word->len);
        return ST_OK;
    }
    TRY(bpe_first_symbols(enc, word, w, &n));
    bpe_dropout drop;
    if (m->dropout > 0) drop = dropout_for(enc, word);
    n = bpe_merge_all(m, w, n, m->dropout > 0 ? &drop : NULL);
    for (int32_t i = 0; i < n; i++) {
        const bpe_symbol *s = &w->symbol[i];
        enc_push(enc, s->id, word, (size_t)s->at, (size_t)s->end);
    }
    return ST_OK;
}

static status bpe_encode(tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    if (word->len > CACHE_KEY || enc->spans || m->dropout > 0) return encode_uncached(enc, word);
    uint64_t key[3];
    load_key(word->s, word->len, key);
    cached *c = cache_slot(enc->model, key);
    if (c->n_key == word->len && c->key[0] == key[0] && c->key[1] == key[1] &&
        c->key[2] == key[2]) {
        int32_t *to = tok_ids_room(enc->out, CACHE_IDS);
        memcpy(to, c->id, sizeof(c->id)); /* whole: cheaper than a count that varies */
        enc->out->n += c->n_id;
        return ST_OK;
    }
    int64_t before = enc->out->n;
    TRY(encode_uncached(enc, word));
    cache_put(c, key, word->len, enc->out->id + before, enc->out->n - before);
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
