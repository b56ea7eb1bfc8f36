/* The arithmetic of merging: n tensors of one shape become one, in fp32.
 *
 *   linear        sum w_i x_i / sum w_i                     Wortsman et al. 2022, arXiv:2203.05482 (soups)
 *   slerp         on the arc between two tensors            Shoemake 1985
 *   task_arithmetic  base + lambda sum w_i d_i, d_i = x_i - base     Ilharco et al. 2023, arXiv:2212.04089
 *   ties          the same with d_i trimmed to its largest numbers, and where signs differ only those of
 *                 the heavier sign                          Yadav et al. 2023, arXiv:2306.01708
 *   dare_linear, dare_ties   d_i with numbers dropped at random and the rest scaled up
 *                                                           Yu et al. 2024, arXiv:2311.03099
 *
 * Parameters have the names and the sense of mergekit, except that `rescale` is what DARE's paper
 * says: what is kept is divided by its share.
 *
 * Products and sums are fp32, in the order of the models; norms and dot products are sums in double
 * over blocks of fixed length. So a result depends on numbers, names and the seed, never on threads. */
#ifndef INTERCHANGE_MERGE_MATH_H
#define INTERCHANGE_MERGE_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MERGE_METHODS(W)                                                                           \
    W(MERGE_LINEAR, "linear")                                                                      \
    W(MERGE_SOUP, "soup") /* linear with equal weights */                                          \
    W(MERGE_SLERP, "slerp")                                                                        \
    W(MERGE_TASK_ARITHMETIC, "task_arithmetic")                                                    \
    W(MERGE_TIES, "ties")                                                                          \
    W(MERGE_DARE_LINEAR, "dare_linear")                                                            \
    W(MERGE_DARE_TIES, "dare_ties")
typedef enum merge_method { MERGE_METHODS(LIST_ENUMERATOR) MERGE_METHOD_COUNT } merge_method;

/* Whether the method works on differences from a base. */
bool merge_uses_base(merge_method m);
bool merge_draws(merge_method m);  /* numbers are dropped at random */
bool merge_trims(merge_method m);  /* the smallest numbers are dropped */
bool merge_elects(merge_method m); /* one sign is elected for each number */

/* One model's part in one tensor. */
typedef struct merge_input {
    float *x; /* [elems]; overwritten where the method uses a base */
    double weight;
    double density; /* share of d_i that is kept, in (0, 1] */
} merge_input;

typedef struct merge_tensor {
    merge_method method;
    const char *name; /* with `seed` and the number of the model: the key of random numbers */
    uint64_t seed;
    int64_t elems;
    merge_input *in; /* [n] */
    int n;
    const float *base; /* [elems]; NULL where the method uses none */
    double t;          /* slerp: 0 gives in[0], 1 gives in[1] */
    double lambda;
    bool normalize; /* divide by the sum of the weights that took part */
    bool rescale;   /* dare: divide what is kept by its share */
    float *out;     /* [elems]; may be in[0].x */
} merge_tensor;

/* Where all inputs have the same number, a weighted mean is that number, to the last bit. */
void merge_compute(const merge_tensor *m);

/* sqrt(sum (a - b)^2) and, with b NULL, sqrt(sum a^2). */
double merge_distance(const float *a, const float *b, int64_t n);

#endif
