/* Merges the symbols of a word, lowest rank first and leftmost among equals, until none is left.
 *
 * Two ways to the same result: most words have a few symbols, for which a scan over all ranks is
 * quickest; long ones go through a heap of candidates, O(n log n). */
#include <stdlib.h>
#include <string.h>

#include "tok/model/bpe.h"

enum { SCAN_MAX = 48, NO_RANK = INT32_MAX };

/* ---- few symbols ---- */

/* What merging a symbol with the one after it gives, and at which rank. */
static inline void look_up(const bpe_model *m, const bpe_symbol *pair, int32_t *rank, int32_t *id) {
    const bpe_merge *p = bpe_find(m, pair[0].id, pair[1].id);
    *rank = p ? p->rank : NO_RANK;
    *id = p ? p->id : -1;
}

/* rank[i], id[i]: of merging symbols i and i + 1. */
static int32_t merge_by_scan(const bpe_model *m, bpe_symbol *sym, int32_t n) {
    int32_t rank[SCAN_MAX], id[SCAN_MAX];
    for (int32_t i = 0; i + 1 < n; i++) look_up(m, &sym[i], &rank[i], &id[i]);
    while (n > 1) {
        int32_t best = 0;
        for (int32_t i = 1; i + 1 < n; i++) {
            if (rank[i] < rank[best]) best = i;
        }
        if (rank[best] == NO_RANK) break;
        sym[best].id = id[best];
        sym[best].end = sym[best + 1].end;
        n--;
        size_t moved = (size_t)(n - best - 1);
        memmove(sym + best + 1, sym + best + 2, moved * sizeof(*sym));
        memmove(rank + best, rank + best + 1, moved * sizeof(*rank));
        memmove(id + best, id + best + 1, moved * sizeof(*id));
        for (int32_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            look_up(m, &sym[i], &rank[i], &id[i]);
        }
    }
    return n;
}

/* ---- many symbols ---- */

/* Symbols form a list, so that a merge is O(1). */
typedef struct bpe_node {
    int32_t prev, next;
} bpe_node;

/* order = rank << 32 | place: lowest rank first, then leftmost. Ids tell stale candidates. */
typedef struct bpe_candidate {
    uint64_t order;
    int32_t left, right, id;
} bpe_candidate;

static void heap_push(bpe_work *w, bpe_candidate c) {
    size_t i = w->n_heap++;
    while (i > 0 && w->heap[(i - 1) / 2].order > c.order) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
}

static bpe_candidate heap_pop(bpe_work *w) {
    bpe_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && w->heap[child + 1].order < w->heap[child].order) child++;
        if (w->heap[child].order >= last.order) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static void offer(const bpe_model *m, bpe_work *w, int32_t left) {
    int32_t right = left < 0 ? -1 : w->node[left].next;
    if (right < 0) return;
    int32_t a = w->symbol[left].id, b = w->symbol[right].id;
    const bpe_merge *p = bpe_find(m, a, b);
    if (p) {
        uint64_t order = (uint64_t)(uint32_t)p->rank << 32 | (uint32_t)left;
        heap_push(w, (bpe_candidate){order, a, b, p->id});
    }
}

/* Each symbol but the last gives one candidate and each merge at most two, of which it used one. */
static void reserve_nodes(bpe_work *w, size_t n) {
    if (n <= w->cap_nodes) return;
    w->cap_nodes = 2 * n;
    free(w->node);
    free(w->heap);
    w->node = xmalloc(w->cap_nodes * sizeof(*w->node));
    w->heap = xmalloc(2 * w->cap_nodes * sizeof(*w->heap));
}

static bool is_stale(const bpe_work *w, const bpe_candidate *c, int32_t at) {
    int32_t next = w->node[at].next;
    return w->symbol[at].id != c->left || next < 0 || w->symbol[next].id != c->right;
}

static void apply(const bpe_model *m, bpe_work *w, const bpe_candidate *c, int32_t at) {
    bpe_node *node = &w->node[at];
    int32_t right = node->next;
    w->symbol[at].id = c->id;
    w->symbol[at].end = w->symbol[right].end;
    w->symbol[right].id = -1;
    node->next = w->node[right].next;
    if (node->next >= 0) w->node[node->next].prev = at;
    offer(m, w, node->prev);
    offer(m, w, at);
}

/* With dropout a candidate is passed over with that chance each time it comes to the top, and comes
 * back after the next merge (as Hugging Face tokenizers does it). Passed-over ones are kept at the
 * end of the heap's memory. */
static void merge_by_heap(const bpe_model *m, bpe_work *w, bpe_dropout *drop) {
    size_t top = 2 * w->cap_nodes, held = top;
    while (w->n_heap > 0) {
        bpe_candidate c = heap_pop(w);
        int32_t at = (int32_t)(c.order & UINT32_MAX);
        if (drop && rng_uniform(drop->key, drop->drawn++) < drop->share) {
            w->heap[--held] = c;
            continue;
        }
        for (; held < top; held++) heap_push(w, w->heap[held]);
        if (!is_stale(w, &c, at)) apply(m, w, &c, at);
    }
}

static int32_t merge_list(const bpe_model *m, bpe_work *w, int32_t n, bpe_dropout *drop) {
    reserve_nodes(w, (size_t)n);
    w->n_heap = 0;
    for (int32_t i = 0; i < n; i++) w->node[i] = (bpe_node){i - 1, i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i + 1 < n; i++) offer(m, w, i);
    merge_by_heap(m, w, drop);
    int32_t left = 0;
    for (int32_t i = 0; i >= 0; i = w->node[i].next) w->symbol[left++] = w->symbol[i];
    return left;
}

int32_t bpe_merge_all(const bpe_model *m, bpe_work *w, int32_t n, bpe_dropout *drop) {
    if (n < 2) return n;
    return n <= SCAN_MAX && !drop ? merge_by_scan(m, w->symbol, n) : merge_list(m, w, n, drop);
}

void bpe_work_free(bpe_work *w) {
    free(w->symbol);
    free(w->node);
    free(w->heap);
}
