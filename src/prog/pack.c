/* Frame packing: offsets for buffers with known lifetimes (offline dynamic storage allocation).
 *
 * The buffers are placed one after the other, each at the lowest offset that is free during its
 * lifetime (Pisarchyk & Lee 2020). Four orders are tried, and the best result is taken: the largest
 * first (not in large programs, where that is slow); the first to be born; the last to die, and the
 * first to die, for programs with gradients in the frame. An order is tried again with the buffer
 * that reached the top moved to the front: until 2 % above the lower bound, or 48 times. */
#include "prog/graph_int.h"

#include <stdlib.h>
#include <string.h>

enum { GREEDY_LIMIT = 5000, PROMOTIONS = 48, NEAR = 50 };

int64_t pack_rounded(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

typedef struct ordered {
    pack_item *item;
    int index;
} ordered;

static int by_size(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    if (x->item->bytes != y->item->bytes) return x->item->bytes < y->item->bytes ? 1 : -1;
    if (x->item->first != y->item->first) return x->item->first - y->item->first;
    return x->index - y->index;
}

static int by_birth(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    if (x->item->first != y->item->first) return x->item->first - y->item->first;
    if (x->item->last != y->item->last) return y->item->last - x->item->last;
    return x->index - y->index;
}

/* What dies last, and of that the largest, first: long lives find no room among gradients. */
static int by_death(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    if (x->item->last != y->item->last) return y->item->last - x->item->last;
    return by_size(a, b);
}

/* The other way round: early ends where gradients come first. */
static int by_end(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    if (x->item->last != y->item->last) return x->item->last - y->item->last;
    return by_size(a, b);
}

/* An item that has its place. All of them are looked at for each further one, so they lie side by side. */
typedef struct placed_item {
    int64_t offset, end;
    int32_t first, last;
} placed_item;

/* The lowest free offset for an item of `size` bytes; placed[n] are sorted by offset. */
static int64_t lowest_free(const pack_item *it, int64_t size, const placed_item *placed, int n) {
    int64_t offset = 0;
    for (const placed_item *p = placed; p < placed + n; p++) {
        if (it->first > p->last || p->first > it->last) continue;
        if (p->offset >= offset + size) break;
        if (p->end > offset) offset = p->end;
    }
    return offset;
}

/* Inserts items in the given order, in which fixed ones come first, each other at the lowest free
 * offset; `placed` stays sorted by offset. */
static int64_t place_in_order(ordered *order, int n, placed_item *placed) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        pack_item *it = order[i].item;
        int64_t size = pack_rounded(it->bytes);
        if (!it->fixed) it->offset = lowest_free(it, size, placed, i);
        if (it->offset + size > total) total = it->offset + size;
        int at = i;
        for (; at > 0 && placed[at - 1].offset > it->offset; at--) placed[at] = placed[at - 1];
        placed[at] = (placed_item){it->offset, it->offset + size, it->first, it->last};
    }
    return total;
}

typedef struct packing {
    int64_t total, *offsets;
} packing;

static void keep_if_better(packing *best, int64_t total, const pack_item *items, int n) {
    if (total >= best->total) return;
    best->total = total;
    for (int i = 0; i < n; i++) best->offsets[i] = items[i].offset;
}

/* The item that reaches the top goes to the front; none of these is fixed. */
static void promote_topmost(ordered *order, int n, int64_t total) {
    int top = 0;
    while (top < n && order[top].item->offset + pack_rounded(order[top].item->bytes) < total) top++;
    if (top == n) return;
    ordered moved = order[top];
    memmove(order + 1, order, sizeof *order * (size_t)top);
    order[0] = moved;
}

int64_t pack_items(pack_item *items, int n) {
    static int (*const orders[])(const void *, const void *) = {by_size, by_birth, by_death,
                                                                by_end};
    ordered *order = xmalloc(sizeof *order * (size_t)(n ? n : 1));
    placed_item *placed = xmalloc(sizeof *placed * (size_t)(n ? n : 1));
    packing best = {INT64_MAX, xmalloc(sizeof *best.offsets * (size_t)(n ? n : 1))};
    int64_t live = pack_live_peak(items, n), enough = live + live / NEAR;
    int fixed = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (items[i].fixed) order[fixed++] = (ordered){&items[i], i};
    for (int i = 0; i < n; i++)
        if (!items[i].fixed) order[fixed + at++] = (ordered){&items[i], i};
    for (int k = n < GREEDY_LIMIT ? 0 : 1; k < ARRAY_LEN(orders) && best.total > live; k++) {
        qsort(order + fixed, (size_t)at, sizeof *order, orders[k]);
        for (int i = 0; i == 0 || (i < PROMOTIONS && best.total > enough); i++) {
            int64_t total = place_in_order(order, n, placed);
            keep_if_better(&best, total, items, n);
            promote_topmost(order + fixed, at, total);
        }
    }
    for (int i = 0; i < n; i++) items[i].offset = best.offsets[i];
    free(best.offsets);
    free(placed);
    free(order);
    return n ? best.total : 0;
}

int64_t pack_live_peak(const pack_item *items, int n) {
    int32_t end = 0;
    for (int i = 0; i < n; i++)
        if (items[i].last >= end) end = items[i].last + 1;
    int64_t *delta = xcalloc((size_t)end + 1, sizeof *delta);
    for (int i = 0; i < n; i++) {
        delta[items[i].first] += pack_rounded(items[i].bytes);
        delta[items[i].last + 1] -= pack_rounded(items[i].bytes);
    }
    int64_t live = 0, peak = 0;
    for (int32_t t = 0; t < end; t++) {
        live += delta[t];
        if (live > peak) peak = live;
    }
    free(delta);
    return peak;
}
