/* The best cut of a stretch of text: Viterbi over places, in one pass from left to right.
 *
 * Invariant: every place where a character begins is reached, because a character that is no piece
 * counts as unknown. A place that no piece crosses is on every way: what lies before is settled and
 * its nodes are used again, so memory follows the longest overlap of pieces and not the text. */
#include <math.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "tok/model/unigram.h"

void unigram_lattice_free(unigram_lattice *l) {
    free(l->node);
    free(l->end);
    *l = (unigram_lattice){0};
}

/* Bytes of the character whose first byte this is. */
static inline size_t char_size(const tok *t, char first) {
    return t->byte_level || utf8_continues(first) ? 1 : utf8_size(first);
}

/* ---- stretches of any length ---- */

/* What one pass knows. Nodes stand at place - base. */
typedef struct pass {
    const tok *t;
    unigram_lattice *l;
    size_t base, furthest;
} pass;

static void reach(pass *p, size_t place) {
    unigram_lattice *l = p->l;
    size_t need = place - p->base + 1;
    if (need > l->cap_nodes) {
        l->cap_nodes = 2 * need > 64 ? 2 * need : 64;
        l->node = xrealloc(l->node, sizeof(*l->node) * l->cap_nodes);
    }
    for (size_t i = p->furthest + 1; i <= place; i++) l->node[i - p->base].score = -INFINITY;
    p->furthest = place;
}

static inline bool offer(pass *p, size_t start, size_t end, double score, int32_t id) {
    if (end > p->furthest) reach(p, end);
    unigram_node *to = &p->l->node[end - p->base];
    if (!(score > to->score)) return false;
    *to = (unigram_node){score, (int32_t)start, id};
    return true;
}

/* All ways pass `at`: hands on the pieces before it and begins anew. */
static status settle(tok_enc *enc, pass *p, const tok_piece *word, size_t at,
                     unigram_take_fn *take) {
    unigram_lattice *l = p->l;
    size_t n = 0;
    for (size_t end = at; end > p->base; end = (size_t)l->node[end - p->base].start) {
        VEC_PUSH(l->end, n, l->cap_ends, (int32_t)end);
    }
    while (n > 0) {
        size_t end = (size_t)l->end[--n];
        const unigram_node *node = &l->node[end - p->base];
        TRY(take(enc, word, (size_t)node->start, end, node->id));
    }
    l->node[0].score = l->node[at - p->base].score;
    p->base = at;
    return ST_OK;
}

/* Moves the sums of this place and the later ones so that this one is 0. */
static void reset_sums(pass *p, size_t at) {
    double offset = p->l->node[at - p->base].score;
    for (size_t i = at; i <= p->furthest; i++) {
        double *score = &p->l->node[i - p->base].score;
        if (*score > -INFINITY) *score = (double)(float)(*score - offset);
    }
}

/* Offers the pieces from `at` on that are longer than a walk, which ended at this node. */
static void offer_long(pass *p, const tok_piece *word, size_t at, size_t to, trie_unit node) {
    const unigram_model *m = p->t->model;
    size_t from = at + TRIE_WALK;
    int32_t next = -1;
    double sum = p->l->node[at - p->base].score;
    for (const piece_key *k;
         (k = trie_long(&m->trie, node, word->s + from, to - from, &next)) != NULL;) {
        offer(p, at, from + k->n, unigram_sum(m, sum, m->score[k->value]), k->value);
    }
}

/* Offers all that begins at `at`. */
static status extend(tok_enc *enc, pass *p, const tok_piece *word, size_t at, size_t to) {
    const tok *t = p->t;
    const unigram_model *m = t->model;
    double *before = &p->l->node[at - p->base].score;
    if (m->sentencepiece && fabs(*before) > UNIGRAM_RESET) reset_sums(p, at);
    double sum = *before;
    size_t one = at + char_size(t, word->s[at]);
    bool known = false;
    trie_unit unit = m->trie.unit[0];
    size_t i = at, walk = to - at < TRIE_WALK ? to : at + TRIE_WALK;
    while (i < walk && trie_step(&m->trie, &unit, (uint8_t)word->s[i])) {
        i++;
        if (unit.value < 0) continue;
        known |= i == one;
        offer(p, at, i, unigram_sum(m, sum, m->score[unit.value]), unit.value);
    }
    if (i == at + TRIE_WALK) offer_long(p, word, at, to, unit);
    if (known) return ST_OK;
    bool best = offer(p, at, one, unigram_sum(m, sum, m->unk_score), t->unk);
    return best && t->unk < 0 && !m->sentencepiece ? enc_unknown(enc, word, at) : ST_OK;
}

status unigram_best(tok_enc *enc, unigram_lattice *l, const tok_piece *word, size_t from, size_t to,
                    double *sum, unigram_take_fn *take) {
    pass p = {.t = enc->t, .l = l, .base = from, .furthest = from - 1};
    reach(&p, from);
    l->node[0].score = *sum;
    for (size_t at = from; at < to; at += char_size(p.t, word->s[at])) {
        if (at == p.furthest) TRY(settle(enc, &p, word, at, take));
        TRY(extend(enc, &p, word, at, to));
    }
    TRY(settle(enc, &p, word, to, take));
    *sum = l->node[0].score;
    return ST_OK;
}

/* ---- short words, with the margin ---- */

/* The best two ways to a place. */
typedef struct two_best {
    double first, second;
    int64_t piece; /* the last on the first way: id * 256 + start */
} two_best;

static inline double larger(double a, double b) {
    return a > b ? a : b;
}

/* Without branches: what wins cannot be foretold. */
static inline void offer_two(two_best *to, const two_best *from, double score, int64_t piece) {
    double first = from->first + score, second = from->second + score;
    double loser = first < to->first ? first : to->first;
    to->piece = first > to->first ? piece : to->piece;
    to->first = larger(first, to->first);
    to->second = larger(loser, larger(second, to->second));
}

static inline int64_t piece_of(int32_t id, size_t start) {
    return (int64_t)id * 256 + (int64_t)start;
}

static inline int piece_start(const two_best *b) {
    return (int)(b->piece & 0xFF);
}

static inline int32_t piece_id(const two_best *b) {
    return (int32_t)(b->piece >> 8);
}

bool unigram_best_short(const tok *t, const char *s, size_t n, int32_t *id, int *n_ids,
                        double *margin) {
    const unigram_model *m = t->model;
    two_best best[UNIGRAM_SHORT + 1];
    for (size_t i = 0; i <= n; i++) best[i] = (two_best){-INFINITY, -INFINITY, 0};
    best[0].first = 0;
    for (size_t at = 0, one; at < n; at = one) {
        bool known = false;
        one = at + char_size(t, s[at]);
        trie_unit unit = m->trie.unit[0];
        for (size_t i = at; i < n && trie_step(&m->trie, &unit, (uint8_t)s[i]);) {
            i++;
            known |= i == one && unit.value >= 0;
            offer_two(&best[i], &best[at], m->score[unit.value], piece_of(unit.value, at));
        }
        if (!known && t->unk < 0) return false;
        if (!known) {
            offer_two(&best[one], &best[at], m->unk_score, piece_of(t->unk, at));
        }
    }
    *margin = best[n].first - best[n].second;
    *n_ids = 0;
    for (int at = (int)n; at > 0; at = piece_start(&best[at])) {
        if (piece_id(&best[at]) == t->unk) return false;
        (*n_ids)++;
    }
    for (int at = (int)n, i = *n_ids; at > 0; at = piece_start(&best[at])) {
        id[--i] = piece_id(&best[at]);
    }
    return true;
}
