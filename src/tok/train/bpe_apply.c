/* One merge: (a, b) becomes c at many places, and the counts of the pairs around change.
 *
 * At each place, with x before and y after:  (x, a) and (b, y) are lost, (x, c) and (c, y) gained.
 * Where x is itself a c made just before, what is lost is the (c, a) that it brought; the order of
 * places within a word is that of the text. All pairs that change have a neighbour as one side, so
 * a thread sums in arrays by neighbour and touches the table of pairs not at all. */
#include <stdlib.h>
#include <string.h>

#include "tok/train/bpe.h"

static void side_init(bpe_side *s, int32_t max_symbols) {
    size_t n = (size_t)max_symbols + 1;
    s->count = xcalloc(n, sizeof(*s->count));
    s->n = xcalloc(n, sizeof(*s->n));
    s->fill = xmalloc(n * sizeof(*s->fill));
    s->seen = xmalloc(n * sizeof(*s->seen));
}

static void side_free(bpe_side *s) {
    free(s->count);
    free(s->n);
    free(s->fill);
    free(s->seen);
    free(s->event);
}

void bpe_gains_init(bpe_gains *g, int32_t max_symbols) {
    *g = (bpe_gains){0};
    side_init(&g->left, max_symbols);
    side_init(&g->right, max_symbols);
}

void bpe_gains_free(bpe_gains *g) {
    side_free(&g->left);
    side_free(&g->right);
}

/* n doubles as the mark of "seen": it counts events even where they are not kept. */
static inline void gain(bpe_side *s, int32_t neighbour, int64_t count, uint32_t place, bool keep) {
    if (s->n[neighbour]++ == 0) s->seen[s->n_seen++] = neighbour;
    s->count[neighbour] += count;
    if (keep) VEC_PUSH(s->event, s->n_events, s->cap_events, ((bpe_event){neighbour, place}));
}

static inline void merge_at(bpe_gains *g, const bpe_text *t, int64_t p, int64_t q, int32_t c) {
    int32_t *sym = t->sym;
    int32_t length = (int32_t)(q - p) + sym_length(sym, q);
    int64_t count = t->count[p / BLOCK_PLACES], before = sym_before(sym, p);
    int32_t next = sym[p + length];
    if (before >= 0 && sym[before] == c) {
        g->undo += count;
        g->own += count;
        gain(&g->right, c, 0, (uint32_t)before, g->keep_events);
    } else if (before >= 0) {
        gain(&g->left, sym[before], count, (uint32_t)before, g->keep_events);
    }
    if (next >= 0) gain(&g->right, next, count, (uint32_t)p, g->keep_events);
    sym[p] = c;
    sym[q] = sym_length_code(length);
    sym[p + 1] = sym_length_code(length);
    sym[p + length - 1] = sym_length_code(length);
    g->n++;
}

void bpe_apply_list(bpe_gains *g, const bpe_text *t, const uint32_t *place, uint64_t n, int32_t a,
                    int32_t b, int32_t c) {
    enum { AHEAD = 12 };
    for (uint64_t i = 0; i < n; i++) {
        if (i + AHEAD < n) __builtin_prefetch(&t->sym[place[i + AHEAD]], 1);
        int64_t p = place[i];
        if (t->sym[p] != a) continue;
        int64_t q = p + sym_length(t->sym, p);
        if (t->sym[q] == b) merge_at(g, t, p, q, c);
    }
}

void bpe_apply_range(bpe_gains *g, const bpe_text *t, int64_t start, int64_t end, int32_t a,
                     int32_t b, int32_t c) {
    const int32_t *sym = t->sym;
    for (int64_t at = start; at < end; at += BLOCK_PLACES) {
        int64_t stop = at + BLOCK_PLACES < end ? at + BLOCK_PLACES : end;
        int32_t found = 0;
        for (int64_t p = at; p < stop; p++) found |= sym[p] == a;
        if (!found) continue;
        for (int64_t p = at; p < stop; p++) {
            if (sym[p] != a) continue;
            int64_t q = p + sym_length(sym, p);
            if (sym[q] == b) merge_at(g, t, p, q, c);
        }
    }
}

static void side_clear(bpe_side *s) {
    for (int32_t i = 0; i < s->n_seen; i++) {
        s->n[s->seen[i]] = 0;
        s->count[s->seen[i]] = 0;
    }
    s->n_seen = 0;
    s->n_events = 0;
}

static void side_merge(bpe_side *into, const bpe_side *from) {
    for (int32_t i = 0; i < from->n_seen; i++) {
        int32_t x = from->seen[i];
        if (into->n[x] == 0) into->seen[into->n_seen++] = x;
        into->n[x] += from->n[x];
        into->count[x] += from->count[x];
    }
    for (uint32_t i = 0; i < from->n_events; i++) {
        VEC_PUSH(into->event, into->n_events, into->cap_events, from->event[i]);
    }
}

void bpe_gains_clear(bpe_gains *g) {
    side_clear(&g->left);
    side_clear(&g->right);
    g->own = g->undo = g->n = 0;
}

void bpe_gains_merge(bpe_gains *into, bpe_gains *from) {
    side_merge(&into->left, &from->left);
    side_merge(&into->right, &from->right);
    into->own += from->own;
    into->undo += from->undo;
    into->n += from->n;
    bpe_gains_clear(from);
}
