/* The Unigram class. A text is cut where no piece of the vocabulary crosses, which is before most
 * words and signs; short stretches that were met lately are remembered.
 *
 * The libraries add scores from the start of the text on, so a sum is rounded differently for the
 * same word in different places, and where two ways to cut it score nearly the same, rounding decides
 * between them. A remembered word therefore keeps by how much its best way wins (`margin`). When that
 * is more than rounding can change here, its ids are taken; otherwise it is cut anew. */
#include "tok/model/unigram.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/model/word_key.h"

/* One cache line. */
enum { CACHE_IDS = 8, CACHE_ENTRIES = 1 << 14 };
typedef struct cached {
    word_key key;
    float margin;
    uint16_t n_key, n_id; /* n_key 0: free */
    int32_t id[CACHE_IDS];
} cached;
_Static_assert(sizeof(cached) == 64, "a cache entry is one cache line");
_Static_assert(UNIGRAM_SHORT <= (int)WORD_KEY_BYTES, "short words are keys");

typedef struct unigram_state {
    cached *cache;
    unigram_lattice lattice;
    double sum;                        /* of the scores before the stretch at hand */
    size_t unknown_start, unknown_end; /* characters without an id yet; equal: none */
} unigram_state;

static void *unigram_state_new(const tok *t) {
    (void)t;
    unigram_state *s = xcalloc(1, sizeof(*s));
    s->cache = xcalloc(CACHE_ENTRIES, sizeof(cached));
    return s;
}

static void unigram_state_free(void *state) {
    unigram_state *s = state;
    free(s->cache);
    unigram_lattice_free(&s->lattice);
    free(s);
}

/* ---- unknown characters ---- */

static bool has_bytes(const tok *t, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (t->byte_id[(uint8_t)s[i]] < 0) return false;
    }
    return true;
}

/* In sentencepiece each character is its own unknown piece, which decides what its bytes cover. */
static void push_bytes(tok_enc *enc, const tok_piece *word, size_t start, size_t end) {
    const unigram_model *m = enc->t->model;
    size_t from = start, to = end;
    for (size_t i = start; i < end; i++) {
        if (m->sentencepiece && (i == start || !utf8_continues(word->s[i]))) {
            for (from = i, to = i + 1; to < end && utf8_continues(word->s[to]);) to++;
        }
        enc_push(enc, enc->t->byte_id[(uint8_t)word->s[i]], word, from, to);
    }
}

/* Neighbours become one unknown token, the bytes they are made of, or, in Hugging Face's rules, the
 * piece that they happen to spell. */
static void push_unknown(tok_enc *enc, const tok_piece *word) {
    const tok *t = enc->t;
    const unigram_model *m = t->model;
    unigram_state *s = enc->model;
    size_t start = s->unknown_start, end = s->unknown_end, n = end - start;
    if (n == 0) return;
    s->unknown_start = s->unknown_end = 0;
    int32_t id = m->sentencepiece ? -1 : piece_trie_find(&m->trie, word->s + start, n);
    if (id < 0 && m->byte_fallback && has_bytes(t, word->s + start, n)) {
        push_bytes(enc, word, start, end);
    } else {
        enc_push(enc, id >= 0 ? id : t->unk, word, start, end);
    }
}

static status take_piece(tok_enc *enc, const tok_piece *word, size_t start, size_t end,
                         int32_t id) {
    unigram_state *s = enc->model;
    if (id == enc->t->unk) {
        if (s->unknown_start == s->unknown_end) s->unknown_start = start;
        s->unknown_end = end;
        return ST_OK;
    }
    push_unknown(enc, word);
    enc_push(enc, id, word, start, end);
    return ST_OK;
}

/* ---- stretches ---- */

/* The text between two cuts. */
typedef struct stretch {
    size_t from, to;
    cached *slot; /* of its key; NULL: too long */
    word_key key;
} stretch;

static inline size_t next_cut(const unigram_model *m, const char *s, size_t n, size_t from) {
    size_t i = from + 1;
    for (uint8_t last = (uint8_t)s[from]; i < n; i++) {
        uint8_t byte = (uint8_t)s[i];
        if (!joined_has(&m->joined, last, byte)) break;
        last = byte;
    }
    return i;
}

/* The stretch from `from` on. Its slot is on its way from memory when it is needed. */
static inline stretch find_stretch(const unigram_model *m, unigram_state *s, const tok_piece *word,
                                   size_t from) {
    stretch part = {.from = from, .to = next_cut(m, word->s, word->len, from)};
    if (part.to - from > UNIGRAM_SHORT) return part;
    part.key = word_key_of(word->s + from, part.to - from);
    part.slot = &s->cache[word_key_hash(&part.key) & (CACHE_ENTRIES - 1)];
    __builtin_prefetch(part.slot);
    return part;
}

/* Whether rounding cannot change the best way when it begins at the sum at hand. A way of n pieces
 * has n roundings, each of at most half a unit in the last place of the largest sum. */
static bool holds_here(const unigram_model *m, const cached *c, double sum) {
    if (sum == 0 && !m->sentencepiece) return true;
    double n = c->n_key, largest = fabs(sum) + n * m->max_abs_score;
    if (m->sentencepiece && largest > UNIGRAM_RESET) return false;
    double unit = m->sentencepiece ? FLT_EPSILON : DBL_EPSILON;
    return (double)c->margin > 2 * (n + 2) * unit * largest;
}

/* Whether the slot holds the stretch, perhaps only now; false: it has something unknown or too many
 * ids. */
static bool remember(const tok *t, const stretch *part, const char *word) {
    cached *c = part->slot;
    size_t n = part->to - part->from;
    if (c->n_key == n && word_key_same(&c->key, &part->key)) return true;
    int32_t id[UNIGRAM_SHORT];
    int n_ids;
    double margin;
    if (!unigram_best_short(t, word + part->from, n, id, &n_ids, &margin)) return false;
    if (n_ids > CACHE_IDS) return false;
    c->key = part->key;
    c->margin = (float)margin;
    c->n_key = (uint16_t)n;
    c->n_id = (uint16_t)n_ids;
    memcpy(c->id, id, (size_t)n_ids * sizeof(int32_t));
    return true;
}

static status encode_stretch(tok_enc *enc, const tok_piece *word, const stretch *part) {
    const unigram_model *m = enc->t->model;
    unigram_state *s = enc->model;
    const cached *c = part->slot;
    bool known = c && !enc->spans && remember(enc->t, part, word->s);
    if (!known || !holds_here(m, c, s->sum)) {
        return unigram_best(enc, &s->lattice, word, part->from, part->to, &s->sum, take_piece);
    }
    push_unknown(enc, word);
    int32_t *id = tok_ids_room(enc->out, CACHE_IDS);
    memcpy(id, c->id, sizeof(c->id)); /* whole: cheaper than a count that varies */
    enc->out->n += c->n_id;
    for (int i = 0; part->to < word->len && i < c->n_id; i++) {
        s->sum = unigram_sum(m, s->sum, m->score[c->id[i]]);
    }
    return ST_OK;
}

static status unigram_encode(tok_enc *enc, const tok_piece *word) {
    const unigram_model *m = enc->t->model;
    unigram_state *s = enc->model;
    s->sum = 0;
    s->unknown_start = s->unknown_end = 0;
    stretch part = find_stretch(m, s, word, 0), next;
    for (; part.to < word->len; part = next) {
        next = find_stretch(m, s, word, part.to);
        TRY(encode_stretch(enc, word, &part));
    }
    TRY(encode_stretch(enc, word, &part));
    push_unknown(enc, word);
    return ST_OK;
}

const model_class MODEL_UNIGRAM = {
    .type = "Unigram",
    .read = unigram_read,
    .free = unigram_free,
    .hash = unigram_hash,
    .state_new = unigram_state_new,
    .state_free = unigram_state_free,
    .encode = unigram_encode,
};
