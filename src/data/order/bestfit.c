/* See bestfit.h. There is a list of bins for each free length 1..T, and a tree of bits, with 64
 * children a node, finds the least sufficient free length that has bins. Items of equal size are
 * taken in their order; of equally full bins, the one that got an item last. So the result is a
 * function of the lengths alone. */
#include "data/order/bestfit.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { LEVELS = 5, NONE = -1 }; /* 64^5 free lengths */

typedef struct bitset {
    uint64_t *level[LEVELS]; /* a bit of level i + 1 says that a word of level i is not 0 */
} bitset;

struct bestfit {
    int T;
    bitset free;      /* which free lengths have bins */
    int32_t *head;    /* [T + 1] newest bin with that free length; also counts for sorting */
    int32_t *sorted;  /* [max] items, largest first */
    int32_t *bin_of;  /* [max] */
    int32_t *next;    /* [max] of a bin: the next one with as much free */
    int32_t *ends;    /* [max] of a bin: number of items, at last where it ends */
    int32_t *grouped; /* [max] items bin by bin */
};

/* ---- the set of free lengths ---- */

static void bitset_new(bitset *s, size_t n) {
    for (int i = 0; i < LEVELS; i++) {
        n = n / 64 + 1;
        s->level[i] = xcalloc(n, sizeof **s->level);
    }
}

static void bitset_add(bitset *s, uint32_t x) {
    for (int i = 0; i < LEVELS; i++, x /= 64) s->level[i][x / 64] |= UINT64_C(1) << x % 64;
}

static void bitset_remove(bitset *s, uint32_t x) {
    for (int i = 0; i < LEVELS; i++, x /= 64) {
        s->level[i][x / 64] &= ~(UINT64_C(1) << x % 64);
        if (s->level[i][x / 64]) return;
    }
}

/* The least member >= x, or NONE: up until a word has a bit at or behind x, then down to it. */
static int32_t bitset_least(const bitset *s, uint32_t x) {
    for (int i = 0; i < LEVELS; i++) {
        uint64_t word = s->level[i][x / 64] >> x % 64;
        if (word) {
            x += (uint32_t)__builtin_ctzll(word);
            while (i-- > 0) x = x * 64 + (uint32_t)__builtin_ctzll(s->level[i][x]);
            return (int32_t)x;
        }
        x = x / 64 + 1; /* the next word, as a member of the level above */
    }
    return NONE;
}

/* ---- packing ---- */

bestfit *bestfit_new(int T, int32_t max_items) {
    size_t n = (size_t)max_items;
    bestfit *b = xcalloc(1, sizeof *b);
    b->T = T;
    bitset_new(&b->free, (size_t)T + 64);
    b->head = xmalloc(((size_t)T + 1) * sizeof *b->head);
    b->sorted = xmalloc(n * sizeof *b->sorted);
    b->bin_of = xmalloc(n * sizeof *b->bin_of);
    b->next = xmalloc(n * sizeof *b->next);
    b->ends = xmalloc(n * sizeof *b->ends);
    b->grouped = xmalloc(n * sizeof *b->grouped);
    return b;
}

void bestfit_free(bestfit *b) {
    if (!b) return;
    for (int i = 0; i < LEVELS; i++) free(b->free.level[i]);
    free(b->head);
    free(b->sorted);
    free(b->bin_of);
    free(b->next);
    free(b->ends);
    free(b->grouped);
    free(b);
}

/* Counting sort, largest first, stable. */
static void sort_items(bestfit *b, const uint32_t *len, int32_t n) {
    int32_t *begin = b->head, at = 0;
    memset(begin, 0, ((size_t)b->T + 1) * sizeof *begin);
    for (int32_t i = 0; i < n; i++) begin[len[i]]++;
    for (int32_t l = b->T; l >= 0; l--) {
        int32_t count = begin[l];
        begin[l] = at;
        at += count;
    }
    for (int32_t i = 0; i < n; i++) b->sorted[begin[len[i]]++] = i;
}

static int32_t take_bin(bestfit *b, int32_t room) {
    int32_t bin = b->head[room];
    b->head[room] = b->next[bin];
    if (b->head[room] == NONE) bitset_remove(&b->free, (uint32_t)room);
    return bin;
}

static void put_bin(bestfit *b, int32_t bin, int32_t room) {
    if (room == 0) return; /* full: never asked for again */
    if (b->head[room] == NONE) bitset_add(&b->free, (uint32_t)room);
    b->next[bin] = b->head[room];
    b->head[room] = bin;
}

/* ends[] holds counts: makes them ends, and groups the items; within a bin the largest first. */
static void group(bestfit *b, int32_t n, int32_t bins) {
    int32_t at = 0;
    for (int32_t k = 0; k < bins; k++) {
        int32_t count = b->ends[k];
        b->ends[k] = at;
        at += count;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t item = b->sorted[i];
        b->grouped[b->ends[b->bin_of[item]]++] = item;
    }
}

int32_t bestfit_pack(bestfit *b, const uint32_t *len, int32_t n, const int32_t **items,
                     const int32_t **ends) {
    sort_items(b, len, n);
    for (int32_t room = 0; room <= b->T; room++) b->head[room] = NONE;
    int32_t bins = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t item = b->sorted[i], need = (int32_t)len[item];
        int32_t room = bitset_least(&b->free, (uint32_t)need), bin;
        if (room == NONE) {
            room = b->T;
            bin = bins++;
            b->ends[bin] = 0;
        } else {
            bin = take_bin(b, room);
        }
        b->bin_of[item] = bin;
        b->ends[bin]++;
        put_bin(b, bin, room - need);
    }
    for (int32_t room; (room = bitset_least(&b->free, 0)) != NONE;)
        bitset_remove(&b->free, (uint32_t)room);
    group(b, n, bins);
    *items = b->grouped;
    *ends = b->ends;
    return bins;
}
