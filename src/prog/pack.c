/* Frame packing: offsets for buffers with known lifetimes (offline dynamic storage allocation).
 *
 * Two heuristics, the better result wins: greedy by size (largest first, each at the lowest offset
 * that is free during its lifetime; Pisarchyk & Lee 2020) and, for large programs where that is
 * slow, a sweep over time with best fit. Transformer programs are nearly a stack, on which both
 * come within a few percent of the lower bound. */
#include "prog/graph_int.h"

#include <stdlib.h>
#include <string.h>

enum { GREEDY_LIMIT = 5000 };

static int64_t rounded(int64_t bytes) {
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

static bool lives_with(const pack_item *a, const pack_item *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Inserts items in the given order, each at the lowest free offset; `placed` stays sorted by
 * offset. */
static int64_t place_in_order(ordered *order, int n) {
    pack_item **placed = xmalloc(sizeof *placed * (size_t)(n ? n : 1));
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        pack_item *it = order[i].item;
        int64_t size = rounded(it->bytes), offset = 0;
        for (int j = 0; j < i; j++) {
            if (!lives_with(it, placed[j])) continue;
            if (placed[j]->offset >= offset + size) break;
            int64_t end = placed[j]->offset + rounded(placed[j]->bytes);
            if (end > offset) offset = end;
        }
        it->offset = offset;
        if (offset + size > total) total = offset + size;
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > offset; at--) placed[at] = placed[at - 1];
        placed[at] = it;
    }
    free(placed);
    return total;
}

int64_t pack_items(pack_item *items, int n) {
    ordered *order = xmalloc(sizeof *order * (size_t)(n ? n : 1));
    for (int i = 0; i < n; i++) order[i] = (ordered){&items[i], i};
    int64_t best = INT64_MAX, total;
    int64_t *offsets = xmalloc(sizeof *offsets * (size_t)(n ? n : 1));
    if (n < GREEDY_LIMIT) {
        qsort(order, (size_t)n, sizeof *order, by_size);
        best = place_in_order(order, n);
        for (int i = 0; i < n; i++) offsets[i] = items[i].offset;
    }
    if (best > pack_live_peak(items, n)) {
        qsort(order, (size_t)n, sizeof *order, by_birth);
        total = place_in_order(order, n);
        if (total < best) {
            best = total;
            for (int i = 0; i < n; i++) offsets[i] = items[i].offset;
        }
    }
    for (int i = 0; i < n; i++) items[i].offset = offsets[i];
    free(offsets);
    free(order);
    return n ? best : 0;
}

int64_t pack_live_peak(const pack_item *items, int n) {
    int32_t end = 0;
    for (int i = 0; i < n; i++)
        if (items[i].last >= end) end = items[i].last + 1;
    int64_t *delta = xcalloc((size_t)end + 1, sizeof *delta);
    for (int i = 0; i < n; i++) {
        delta[items[i].first] += rounded(items[i].bytes);
        delta[items[i].last + 1] -= rounded(items[i].bytes);
    }
    int64_t live = 0, peak = 0;
    for (int32_t t = 0; t < end; t++) {
        live += delta[t];
        if (live > peak) peak = live;
    }
    free(delta);
    return peak;
}
