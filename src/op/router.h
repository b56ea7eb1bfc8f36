/* How a router chooses experts: the same in every kernel, so that the picks are. */
#ifndef OP_ROUTER_H
#define OP_ROUTER_H

#include <math.h>

#include "op/op.h"

/* Added to a sum of weights before dividing by it (DeepSeek-V3's code: all may be 0). */
#define ROUTER_TINY 1e-20

/* Sequences of which the rows are. */
static inline int64_t router_sequences(const op_router *r) {
    return r->sequences > 1 ? r->sequences : 1;
}

/* Numbers that the choice of one token needs: scores of the experts, then of the groups. */
static inline int64_t router_room(int64_t E, const op_router *r) {
    return E + (r->groups > 1 ? r->groups : 0);
}

/* The largest of n numbers; of equal ones the first. */
static inline int64_t router_largest(const double *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The sum of the `best` largest of n numbers. */
static inline double router_sum_of_best(const double *x, int64_t n, int best) {
    double sum = 0, below = INFINITY;
    int64_t after = -1; /* the last one that was taken of those equal to `below` */
    for (int b = 0; b < best; b++) {
        int64_t at = -1;
        for (int64_t i = 0; i < n; i++) {
            bool is_left = x[i] < below || (x[i] == below && i > after);
            if (is_left && (at < 0 || x[i] > x[at])) at = i;
        }
        if (at < 0) break; /* only NaN is left */
        sum += x[at], below = x[at], after = at;
    }
    return sum;
}

/* Experts of the groups that are not kept get -infinity. */
static inline void router_keep_groups(const op_router *r, double *score, int64_t E) {
    double *group = score + E;
    int64_t of_group = E / r->groups;
    for (int g = 0; g < r->groups; g++)
        group[g] = router_sum_of_best(score + g * of_group, of_group, r->best);
    for (int i = 0; i < r->kept; i++) group[router_largest(group, r->groups)] = -INFINITY;
    /* Kept ones are marked with -infinity; the scores of the others are taken away. */
    for (int g = 0; g < r->groups; g++)
        for (int64_t e = 0; group[g] != -INFINITY && e < of_group; e++)
            score[g * of_group + e] = -INFINITY;
}

/* pick[k] by falling score; score [router_room] is overwritten. */
static inline void router_choose(const op_router *r, double *score, int64_t E, int32_t *pick) {
    if (r->groups > 1) router_keep_groups(r, score, E);
    for (int j = 0; j < r->k; j++) {
        int64_t best = router_largest(score, E);
        pick[j] = (int32_t)best;
        score[best] = -INFINITY;
    }
}

#endif
