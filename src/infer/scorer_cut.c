/* The order of requests, and how lanes are cut into passes.
 *
 * A pass of B lanes with T rows computes B * T rows, whatever of them is padding, and reads all
 * weights once, which costs about as much as PASS_COST rows. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "infer/scorer_int.h"

enum { PASS_COST = 64 };

static const int rows_of_lanes[] = {4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512};
static const int lanes_of_pass[] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};

/* ---- sizes ---- */

/* Rows of the longest lane of any shape: no more than a sequence has, rounded up. */
static int longest_lane(const scorer_size *size) {
    int t = 0;
    while (t + 1 < ARRAY_LEN(rows_of_lanes) && rows_of_lanes[t] < size->longest) t++;
    return rows_of_lanes[t] > SCORER_LEAST_ROWS ? rows_of_lanes[t] : SCORER_LEAST_ROWS;
}

scorer_size scorer_size_for(const model_config *mc, dtype compute, int64_t longest,
                            int64_t cache_bytes) {
    enum { MOST_LANES = 64, LEAST_LANES = 4 };
    scorer_size size = {.longest = (int)longest};
    size.tok = size.longest + longest_lane(&size);
    int64_t slot_bytes = model_cache_bytes(mc, 1, 1, size.tok, compute, compute);
    size.lanes = MOST_LANES;
    while (size.lanes > LEAST_LANES && slot_bytes * 2 * size.lanes > cache_bytes) size.lanes /= 2;
    size.slots = 2 * size.lanes;
    return size;
}

scorer_size scorer_size_for_beams(int64_t longest, int beams) {
    scorer_size size = {
        .lanes = 1, .slots = beams + 1, .longest = (int)longest, .writes = beams + 1};
    size.tok = size.longest + longest_lane(&size);
    return size;
}

/* Lanes 16 or 32: products of these many rows go through the same kernels, so that what is written
 * does not depend on the number. */
void scorer_size_add_writer(scorer_size *size, int64_t texts) {
    enum { FEW = 16, MANY = 32 };
    size->writes = texts >= FEW && size->slots >= MANY ? MANY : FEW;
    if (size->slots < size->writes) size->slots = size->writes;
}

/* ---- shapes ---- */

scorer_shape scorer_shape_at(const scorer_size *size, int number) {
    for (int t = 0; size->tok && t < ARRAY_LEN(rows_of_lanes); t++)
        for (int b = 0; b < ARRAY_LEN(lanes_of_pass); b++) {
            int T = rows_of_lanes[t], B = lanes_of_pass[b];
            bool fits = B <= size->lanes && B * T >= SCORER_LEAST_ROWS &&
                        B * T <= SCORER_MOST_ROWS && T <= longest_lane(size);
            if (fits && number-- == 0) return (scorer_shape){B, T};
        }
    return (scorer_shape){0};
}

int scorer_shapes(const scorer_size *size) {
    int n = 0;
    while (scorer_shape_at(size, n).B) n++;
    return n;
}

int scorer_longest_shape(const scorer_size *size) {
    return scorer_shapes(size) - 1;
}

/* ---- cuts ---- */

typedef struct cut_table {
    scorer_shape shape[256];
    int n;
} cut_table;

static cut_table table_of(const scorer_size *size) {
    cut_table t = {.n = scorer_shapes(size)};
    CHECK(t.n <= ARRAY_LEN(t.shape), "%d shapes", t.n);
    for (int i = 0; i < t.n; i++) t.shape[i] = scorer_shape_at(size, i);
    return t;
}

/* The cheapest shape for some lanes; -1: none. */
static int shape_for(const cut_table *t, int64_t lanes, int64_t rows, int64_t targets) {
    int best = -1;
    for (int i = 0; i < t->n; i++) {
        const scorer_shape *k = &t->shape[i];
        if (k->B < lanes || k->T < rows || k->B * k->T < targets) continue;
        if (best < 0 || k->B * k->T < t->shape[best].B * t->shape[best].T) best = i;
    }
    return best;
}

int scorer_cut_first(const scorer_size *size, score_cut *cut, int n) {
    cut_table t = table_of(size);
    int64_t cost[SCORER_CUT_MOST + 1], longest = t.shape[t.n - 1].T;
    int taken = 1;
    cost[n] = 0;
    for (int i = n - 1; i >= 0; i--) { /* cost[i]: of all lanes from i on */
        int64_t targets = 0, rows = cut->rows[i] < longest ? cut->rows[i] : longest;
        cost[i] = INT64_MAX;
        for (int end = i + 1; end <= n && end - i <= SCORER_MOST_LANES; end++) {
            targets += cut->targets[end - 1];
            int number = shape_for(&t, end - i, rows, targets);
            if (number < 0) break;
            int64_t c = t.shape[number].B * t.shape[number].T + PASS_COST + cost[end];
            if (c >= cost[i]) continue;
            cost[i] = c;
            if (i == 0) taken = end, cut->number = number;
        }
    }
    return taken;
}

/* ---- the order ---- */

typedef struct sort_key {
    score_request *r;
    int64_t cluster;
} sort_key;

static int64_t trunk_of(const score_request *r) {
    return r->n - 1 - r->n_scored;
}

static int by_trunk(const score_request *a, const score_request *b) {
    int64_t n_a = trunk_of(a), n_b = trunk_of(b), most = n_a < n_b ? n_a : n_b;
    for (int64_t i = 0; i < most; i++)
        if (a->ids[i] != b->ids[i]) return a->ids[i] < b->ids[i] ? -1 : 1;
    return (n_a > n_b) - (n_a < n_b);
}

static int by_ids(const score_request *a, const score_request *b) {
    int c = by_trunk(a, b);
    if (c) return c;
    if (a->n_scored != b->n_scored) return a->n_scored < b->n_scored ? -1 : 1;
    c = 0;
    for (int64_t i = trunk_of(a); i < a->n && !c; i++)
        c = (a->ids[i] > b->ids[i]) - (a->ids[i] < b->ids[i]);
    return c ? c : (a > b) - (a < b);
}

static int order_of_text(const void *a, const void *b) {
    return by_ids(((const sort_key *)a)->r, ((const sort_key *)b)->r);
}

/* Long trunks first: memory that is too small is known at once. */
static int order_of_work(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    if (x->cluster != y->cluster) return x->cluster < y->cluster ? -1 : 1;
    int64_t n_x = trunk_of(x->r), n_y = trunk_of(y->r);
    if (n_x != n_y) return n_x > n_y ? -1 : 1;
    return by_ids(x->r, y->r);
}

/* Whether two trunks share so much that they should be computed side by side. */
static bool is_near(const score_request *a, const score_request *b) {
    int64_t n_a = trunk_of(a), n_b = trunk_of(b), most = n_a < n_b ? n_a : n_b, i = 0;
    while (i < most && a->ids[i] == b->ids[i]) i++;
    return i >= 32 && 2 * i >= most;
}

void scorer_sort(score_request **order, int64_t n) {
    sort_key *key = xcalloc((size_t)n + 1, sizeof *key);
    for (int64_t i = 0; i < n; i++) key[i].r = order[i];
    qsort(key, (size_t)n, sizeof *key, order_of_text);
    for (int64_t i = 0, cluster = 0; i < n; i++) { /* 0: those that share little with any other */
        bool before = i > 0 && is_near(key[i - 1].r, key[i].r);
        bool after =
            i + 1 < n && is_near(key[i].r, key[i + 1].r) && by_trunk(key[i].r, key[i + 1].r);
        if (!before && after) cluster++;
        bool same_text = i > 0 && by_trunk(key[i - 1].r, key[i].r) == 0;
        key[i].cluster = before ? key[i - 1].cluster : after ? cluster : 0;
        if (same_text) key[i].cluster = key[i - 1].cluster;
    }
    qsort(key, (size_t)n, sizeof *key, order_of_work);
    for (int64_t i = 0; i < n; i++) order[i] = key[i].r;
    free(key);
}
