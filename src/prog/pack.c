/* Frame packing: offsets for buffers with known lifetimes (offline dynamic storage allocation).
 *
 * The buffers are placed one after the other, each at the lowest offset that is free during its
 * lifetime (Pisarchyk & Lee 2020). Four orders are tried, and the best result is taken: the largest
 * first (not in large programs, where that is slow); the first to be born; the last to die, and the
 * first to die, for programs with gradients in the frame. An order is tried again with the buffer
 * that reached the top moved to the front: until 2 % above the lower bound, or 48 times (fewer in large programs). */
#include "prog/graph_int.h"

#include <stdlib.h>
#include <string.h>

enum { GREEDY_LIMIT = 5000, PROMOTIONS = 48, NEAR = 50, ORDERS = 4 };

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

/* An item that has its place. Many of them are looked at for each further one, so they lie side by side. */
typedef struct placed_item {
    int64_t offset, end;
    int32_t first, last;
} placed_item;

/* BLOCK placed items, one behind the other: most blocks live as a whole or not at all while a further item does. */
enum { BLOCK = 64 };
typedef struct block {
    int64_t end, gap;    /* of all; the widest between one and those below it */
    int32_t first, last; /* of any */
    int32_t latest_first, earliest_last;
} block;

/* Placed items, sorted by offset. */
typedef struct placed_list {
    placed_item *item;
    block *block;
    int n, summed; /* so many blocks are up to date */
} placed_list;

/* Most items of a long program live for a few ops: these are found by time, in lists of slices of the program, of which an item has
 * one or two. Others are in the list of those that last, or of those that were fixed from the beginning. */
enum { SLICES = 64, LASTING = SLICES, FIXED, LISTS };
typedef struct places {
    placed_list list[LISTS];
    placed_item *room; /* of all lists */
    block *blocks;
    int32_t width; /* times in a slice */
    int64_t border;
} places;

static int slice_of(const places *p, int32_t time) {
    return time / p->width;
}

/* The lists that have an item: from the returned one to *last. */
static int lists_of(const places *p, const pack_item *it, int *last) {
    int first = slice_of(p, it->first);
    *last = slice_of(p, it->last);
    if (!it->fixed && *last - first <= 1) return first;
    return *last = it->fixed ? FIXED : LASTING;
}

/* Lists with room for all items, none of which has a place. */
static places places_new(const pack_item *items, int n) {
    places p = {.width = 1};
    int has[LISTS] = {0}, at = 0, last;
    for (int i = 0; i < n; i++)
        if (items[i].last / SLICES + 1 > p.width) p.width = items[i].last / SLICES + 1;
    for (int i = 0; i < n; i++)
        for (int k = lists_of(&p, &items[i], &last); k <= last; k++) has[k]++;
    p.room = xmalloc(sizeof *p.room * (size_t)(2 * n + 1));
    p.blocks = xmalloc(sizeof *p.blocks * (size_t)(2 * n / BLOCK + 1));
    for (int k = 0; k < LISTS; at += has[k++])
        p.list[k] = (placed_list){.item = p.room + at, .block = p.blocks + at / BLOCK};
    return p;
}

static void insert(placed_list *to, placed_item x) {
    int at = to->n, low = 0;
    while (low < at) {
        int middle = (low + at) / 2;
        if (to->item[middle].offset > x.offset)
            at = middle;
        else
            low = middle + 1;
    }
    memmove(to->item + at + 1, to->item + at, sizeof x * (size_t)(to->n++ - at));
    to->item[at] = x;
    if (at / BLOCK < to->summed) to->summed = at / BLOCK;
}

static void put(places *p, const pack_item *it, int64_t size) {
    placed_item x = {it->offset, it->offset + size, it->first, it->last};
    int last;
    for (int k = lists_of(p, it, &last); k <= last; k++) insert(&p->list[k], x);
}

static block sum_of(const placed_item *p) {
    block b = {p->end, 0, p->first, p->last, p->first, p->last};
    for (int i = 1; i < BLOCK; i++) {
        if (p[i].offset - b.end > b.gap) b.gap = p[i].offset - b.end;
        if (p[i].end > b.end) b.end = p[i].end;
        if (p[i].first < b.first) b.first = p[i].first;
        if (p[i].last > b.last) b.last = p[i].last;
        if (p[i].first > b.latest_first) b.latest_first = p[i].first;
        if (p[i].last < b.earliest_last) b.earliest_last = p[i].last;
    }
    return b;
}

/* Whether the block that begins at item i is passed over as a whole: nothing of it lives at the same time, or all, without a gap. */
static bool passes_block(placed_list *list, int i, const pack_item *it, int64_t size,
                         int64_t *offset) {
    if (i % BLOCK || i + BLOCK > list->n) return false;
    for (; list->summed <= i / BLOCK; list->summed++)
        list->block[list->summed] = sum_of(&list->item[list->summed * BLOCK]);
    const block *b = &list->block[i / BLOCK];
    if (b->last < it->first || it->last < b->first) return true;
    if (b->latest_first > it->last || b->earliest_last < it->first || b->gap >= size) return false;
    if (b->end > *offset) *offset = b->end;
    return true;
}

/* Passes what lies below offset + size in the list from *at on, and returns the offset behind all of that which lives at the same time. */
static int64_t pass_over(placed_list *list, int *at, const pack_item *it, int64_t size,
                         int64_t offset) {
    int i = *at;
    while (i < list->n && list->item[i].offset < offset + size) {
        const placed_item *p = &list->item[i];
        if (passes_block(list, i, it, size, &offset)) {
            i += BLOCK;
            continue;
        }
        if (it->first <= p->last && p->first <= it->last && p->end > offset) offset = p->end;
        i++;
    }
    *at = i;
    return offset;
}

/* The lowest free offset for an item of `size` bytes: where no list has anything in the way any more. */
static int64_t lowest_free(places *p, const pack_item *it, int64_t size) {
    int at[LISTS] = {0};
    int64_t offset = 0, before;
    do {
        before = offset;
        if (offset < p->border && offset + size > p->border) offset = p->border;
        for (int k = LASTING; k < LISTS; k++)
            offset = pass_over(&p->list[k], &at[k], it, size, offset);
        for (int k = slice_of(p, it->first); k <= slice_of(p, it->last); k++)
            offset = pass_over(&p->list[k], &at[k], it, size, offset);
    } while (offset > before);
    return offset;
}

/* Gives places in the given order, in which fixed ones come first, each other at the lowest free
 * offset. */
static int64_t place_in_order(ordered *order, int n, places *p) {
    int64_t total = 0;
    for (int k = 0; k < LISTS; k++) p->list[k].n = p->list[k].summed = 0;
    for (int i = 0; i < n; i++) {
        pack_item *it = order[i].item;
        int64_t size = pack_rounded(it->bytes);
        if (!it->fixed) it->offset = lowest_free(p, it, size);
        if (it->offset + size > total) total = it->offset + size;
        put(p, it, size);
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

/* No packing ends below that: the most that lives at a time, and the end of what is fixed. */
static int64_t least_end(const pack_item *items, int n, int64_t live) {
    int64_t least = live;
    for (int i = 0; i < n; i++) {
        int64_t end = items[i].fixed ? items[i].offset + pack_rounded(items[i].bytes) : 0;
        if (end > least) least = end;
    }
    return least;
}

typedef int (*order_fn)(const void *, const void *);
static const order_fn usual[ORDERS] = {by_size, by_birth, by_death, by_end};

static int64_t pack(pack_item *items, int n, int64_t border, const order_fn *orders) {
    ordered *order = xmalloc(sizeof *order * (size_t)(n ? n : 1));
    places placed = places_new(items, n);
    placed.border = border;
    packing best = {INT64_MAX, xmalloc(sizeof *best.offsets * (size_t)(n ? n : 1))};
    int64_t live = pack_live_peak(items, n), enough = live + live / NEAR;
    int64_t least = least_end(items, n, live);
    if (enough < least) enough = least;
    int fixed = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (items[i].fixed) order[fixed++] = (ordered){&items[i], i};
    for (int i = 0; i < n; i++)
        if (!items[i].fixed) order[fixed + at++] = (ordered){&items[i], i};
    int promotions = n < GREEDY_LIMIT ? PROMOTIONS : PROMOTIONS * GREEDY_LIMIT / n;
    for (int k = 0; k < ORDERS && best.total > least; k++) {
        if (orders[k] == by_size && n >= GREEDY_LIMIT) continue;
        qsort(order + fixed, (size_t)at, sizeof *order, orders[k]);
        for (int i = 0; i == 0 || (i < promotions && best.total > enough); i++) {
            int64_t total = place_in_order(order, n, &placed);
            keep_if_better(&best, total, items, n);
            promote_topmost(order + fixed, at, total);
        }
    }
    for (int i = 0; i < n; i++) items[i].offset = best.offsets[i];
    free(best.offsets);
    free(placed.blocks);
    free(placed.room);
    free(order);
    return n ? best.total : 0;
}

int64_t pack_items(pack_item *items, int n) {
    return pack(items, n, 0, usual);
}

/* What is kept lives together, so that any order is as good. With the last to die lowest, what
 * becomes free in a backward is in one piece. */
int64_t pack_around_kept(pack_item *items, int kept, int n, int64_t *border) {
    static const order_fn last_first[ORDERS] = {by_death, by_size, by_birth, by_end};
    *border = pack(items, kept, 0, last_first);
    for (int i = 0; i < kept; i++) items[i].fixed = true;
    return pack(items, n, *border, usual);
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
