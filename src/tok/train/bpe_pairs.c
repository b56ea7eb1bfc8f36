/* Pairs with their counts and places, and the heap that says which is next; see bpe.h. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tok/train/bpe.h"

/* ---- the table ---- */

static uint32_t *slot_of(const bpe_pairs *t, uint64_t pair) {
    uint32_t i = (uint32_t)mix64(pair) & (t->cap_slots - 1);
    while (t->slot[i] && t->pair[t->slot[i] - 1].pair != pair) i = (i + 1) & (t->cap_slots - 1);
    return &t->slot[i];
}

int64_t bpe_pairs_find(const bpe_pairs *t, uint64_t pair) {
    if (t->n == 0) return PAIR_NONE;
    return (int64_t)*slot_of(t, pair) - 1;
}

static void grow(bpe_pairs *t) {
    free(t->slot);
    t->cap_slots = t->cap_slots ? 2 * t->cap_slots : 1024;
    t->slot = xcalloc(t->cap_slots, sizeof(*t->slot));
    for (uint32_t i = 0; i < t->n; i++) *slot_of(t, t->pair[i].pair) = i + 1;
}

uint32_t bpe_pairs_add(bpe_pairs *t, uint64_t pair) {
    if (t->n >= t->cap_slots / 2) grow(t);
    uint32_t *slot = slot_of(t, pair);
    if (*slot) return *slot - 1;
    CHECK(t->n < UINT32_MAX / 4, "more than 2^30 pairs of symbols");
    VEC_PUSH(t->pair, t->n, t->cap, ((bpe_pair){.pair = pair, .rank = -1}));
    *slot = t->n;
    return t->n - 1;
}

void bpe_pairs_free(bpe_pairs *t) {
    free(t->pair);
    free(t->slot);
    *t = (bpe_pairs){0};
}

/* Calls for each symbol in [start, end) that has one after it. */
#define FOR_PAIRS(sym, start, end, p, q)                                                           \
    for (int64_t p = (start), q; p < (end); p++)                                                   \
        if ((sym)[p] >= 0 && (q = p + sym_length((sym), p), (sym)[q] >= 0))

static void count_range(bpe_pairs *t, const bpe_text *text, int64_t start, int64_t end) {
    FOR_PAIRS(text->sym, start, end, p, q) {
        uint32_t i = bpe_pairs_add(t, pair_key(text->sym[p], text->sym[q]));
        t->pair[i].count += text->count[p / BLOCK_PLACES];
    }
}

void bpe_pairs_count(bpe_pairs *t, const bpe_text *text, int n_threads) {
    bpe_pairs *part = xcalloc((size_t)n_threads, sizeof(*part));
    int64_t *cut = xmalloc(sizeof(*cut) * (size_t)(n_threads + 1));
    bpe_text_cut(text, n_threads, cut);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads)
    for (int i = 0; i < n_threads; i++) count_range(&part[i], text, cut[i], cut[i + 1]);
    *t = part[0];
    for (int i = 1; i < n_threads; i++) {
        for (uint32_t k = 0; k < part[i].n; k++) {
            uint32_t at = bpe_pairs_add(t, part[i].pair[k].pair);
            t->pair[at].count += part[i].pair[k].count;
        }
        bpe_pairs_free(&part[i]);
    }
    free(part);
    free(cut);
}

/* ---- the heap ---- */

static inline bool goes_before(const bpe_entry *a, const bpe_entry *b) {
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

void bpe_heap_push(bpe_heap *h, bpe_entry e) {
    VEC_PUSH(h->entry, h->n, h->cap, e);
    uint32_t i = h->n - 1;
    for (; i > 0 && goes_before(&e, &h->entry[(i - 1) / 2]); i = (i - 1) / 2) {
        h->entry[i] = h->entry[(i - 1) / 2];
    }
    h->entry[i] = e;
}

bpe_entry bpe_heap_pop(bpe_heap *h) {
    bpe_entry top = h->entry[0], last = h->entry[--h->n];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && goes_before(&h->entry[child + 1], &h->entry[child])) child++;
        if (!goes_before(&h->entry[child], &last)) break;
        h->entry[i] = h->entry[child];
    }
    if (h->n > 0) h->entry[i] = last;
    return top;
}

/* ---- places ---- */

uint32_t *bpe_lists_add(bpe_lists *l, uint32_t pair, uint32_t n) {
    CHECK(l->n_pool + n <= l->cap_pool, "the pool of places is full");
    CHECK(l->n < LIST_NONE, "more than 2^32 lists of places");
    VEC_PUSH(l->list, l->n, l->cap, ((bpe_list){.pair = pair, .n = n, .at = l->n_pool}));
    l->n_pool += n;
    return l->pool + l->n_pool - n;
}

/* The list's places that still hold the pair, moved to `to`; their new places with a plan. */
static uint32_t move_valid(uint32_t *to, const uint32_t *from, uint32_t n, uint64_t pair,
                           const bpe_text *text, const uint32_t *plan) {
    int32_t a = (int32_t)(pair >> 32), b = (int32_t)(uint32_t)pair;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!sym_is_pair(text->sym, from[i], a, b)) continue;
        to[kept++] = plan ? bpe_text_new_place(text, plan, from[i]) : from[i];
    }
    return kept;
}

/* Lists keep their order, so the places of one never move over those of a later one. */
void bpe_lists_collect(bpe_lists *l, bpe_heap *heap, const bpe_pairs *pairs, bpe_text *text,
                       bool compact) {
    uint32_t *moved = xcalloc((size_t)l->n + 1, sizeof(*moved)); /* old index -> new */
    uint32_t *plan = compact ? bpe_text_plan(text) : NULL;
    for (uint32_t i = 0; i < heap->n; i++) moved[heap->entry[i].list] = 1;
    uint32_t n = 0;
    uint64_t n_pool = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if (!moved[i]) continue;
        bpe_list k = l->list[i];
        uint64_t pair = pairs->pair[k.pair].pair;
        k.n = move_valid(l->pool + n_pool, l->pool + k.at, k.n, pair, text, plan);
        k.at = n_pool;
        n_pool += k.n;
        moved[i] = n;
        l->list[n++] = k;
    }
    l->n = n;
    l->n_pool = n_pool;
    for (uint32_t i = 0; i < heap->n; i++) heap->entry[i].list = moved[heap->entry[i].list];
    if (compact) bpe_text_compact(text);
    free(plan);
    free(moved);
}

void bpe_lists_resize(bpe_lists *l, uint64_t cap_pool) {
    l->cap_pool = cap_pool;
    l->pool = xrealloc(l->pool, sizeof(*l->pool) * (size_t)(cap_pool + 1));
}

/* One list per pair that the text has, in order of pairs; n[k] places of pair k. */
static void lay_out_lists(bpe_lists *l, bpe_heap *heap, bpe_pairs *pairs, const uint32_t *n,
                          uint64_t *at) {
    for (uint32_t k = 0; k < pairs->n; k++) {
        bpe_pair *p = &pairs->pair[k];
        at[k] = l->n_pool;
        p->n_lists = n[k] > 0;
        if (n[k] == 0) continue;
        bpe_lists_add(l, k, n[k]);
        bpe_heap_push(heap, (bpe_entry){.count = p->count, .pair = p->pair, .list = l->n - 1});
    }
}

/* Threads first count the places of each pair in their part of the text, then fill in. */
void bpe_lists_build(bpe_lists *l, bpe_heap *heap, bpe_pairs *pairs, const bpe_text *text,
                     uint64_t cap_pool, int n_threads) {
    int64_t *cut = xmalloc(sizeof(*cut) * (size_t)(n_threads + 1));
    uint32_t *n = xcalloc((size_t)pairs->n * (size_t)n_threads + 1, sizeof(*n));
    uint64_t *at = xmalloc(sizeof(*at) * ((size_t)pairs->n + 1));
    const int32_t *sym = text->sym;
    l->n = 0;
    l->n_pool = 0;
    l->cap_pool = cap_pool;
    l->pool = xmalloc(sizeof(*l->pool) * (cap_pool + 1));
    heap->n = 0;
    bpe_text_cut(text, n_threads, cut);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads)
    for (int i = 0; i < n_threads; i++) {
        uint32_t *mine = n + (size_t)i * pairs->n;
        FOR_PAIRS(sym, cut[i], cut[i + 1], p, q) {
            int64_t k = bpe_pairs_find(pairs, pair_key(sym[p], sym[q]));
            if (k >= 0) mine[k]++;
        }
    }
    /* n of a thread becomes its offset in the list, that of the last + 1 the length. */
    uint32_t *total = xcalloc((size_t)pairs->n + 1, sizeof(*total));
    for (int i = 0; i < n_threads; i++) {
        for (uint32_t k = 0; k < pairs->n; k++) {
            uint32_t *mine = &n[(size_t)i * pairs->n + k], before = total[k];
            total[k] += *mine;
            *mine = before;
        }
    }
    lay_out_lists(l, heap, pairs, total, at);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads)
    for (int i = 0; i < n_threads; i++) {
        uint32_t *mine = n + (size_t)i * pairs->n;
        FOR_PAIRS(sym, cut[i], cut[i + 1], p, q) {
            int64_t k = bpe_pairs_find(pairs, pair_key(sym[p], sym[q]));
            if (k >= 0) l->pool[at[k] + mine[k]++] = (uint32_t)p;
        }
    }
    free(total);
    free(cut);
    free(n);
    free(at);
}

void bpe_lists_free(bpe_lists *l) {
    free(l->list);
    free(l->pool);
    *l = (bpe_lists){0};
}
