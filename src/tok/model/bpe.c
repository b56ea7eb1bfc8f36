/* The BPE class. Words that were met lately are remembered with their ids: natural text finds more
 * than nine of ten there. */
#include "tok/model/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/model/word_key.h"

/* ---- cache ---- */

/* One cache line; longer words and results are not kept. */
enum { CACHE_IDS = 9, CACHE_ENTRIES = 1 << 15 };
typedef struct cached {
    word_key key;
    uint16_t n_key, n_id; /* n_key 0: free */
    int32_t id[CACHE_IDS];
} cached;
_Static_assert(sizeof(cached) == 64, "a cache entry is one cache line");

typedef struct bpe_state {
    cached *cache;
    bpe_work work;
} bpe_state;

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

static void cache_put(cached *c, const word_key *key, size_t len, const int32_t *id, int64_t n) {
    if (n > CACHE_IDS) return;
    c->key = *key;
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
    if (m->n_merges == 0 && !(enc->t->byte_level && enc->spans)) return bpe_push_symbols(enc, word);
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

static status encode_word(tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    if (word->len > WORD_KEY_BYTES || enc->spans || m->dropout > 0) {
        return encode_uncached(enc, word);
    }
    word_key key = word_key_of(word->s, word->len);
    bpe_state *s = enc->model;
    cached *c = &s->cache[word_key_hash(&key) & (CACHE_ENTRIES - 1)];
    if (c->n_key == word->len && word_key_same(&c->key, &key)) {
        int32_t *to = tok_ids_room(enc->out, CACHE_IDS);
        memcpy(to, c->id, sizeof(c->id)); /* whole: cheaper than a count that varies */
        enc->out->n += c->n_id;
        return ST_OK;
    }
    int64_t before = enc->out->n, lost = enc->lost_bytes;
    TRY(encode_uncached(enc, word));
    if (enc->lost_bytes == lost)
        cache_put(c, &key, word->len, enc->out->id + before, enc->out->n - before);
    return ST_OK;
}

static status bpe_encode(tok_enc *enc, const tok_piece *word) {
    const bpe_model *m = enc->t->model;
    if (!m->cut.possible) return encode_word(enc, word);
    for (size_t from = 0, to; from < word->len; from = to) {
        to = bpe_cut_end(&m->cut, word->s, word->len, from);
        tok_piece part = piece_slice(word, from, to);
        TRY(encode_word(enc, &part));
    }
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
