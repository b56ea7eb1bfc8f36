/* The numbers of Adafactor's rule (factored.h), for the C compiler and for nvcc. */
#ifndef OP_FACTORED_RULE_H
#define OP_FACTORED_RULE_H

#include <math.h>
#include <stdbool.h>

#ifdef __CUDACC__
#define FACTORED_FN static __device__ __forceinline__
#else
#define FACTORED_FN static inline
#endif

typedef struct factored_rule {
    double lr, keep, eps, eps_scale, clip, weight_decay; /* weight_decay 0: this one has none */
    bool scale_parameter;                                /* the rate depends on rms(p) */
} factored_rule;

/* By how much a tensor moves along u: p = p * decayed - rate * u. */
typedef struct factored_moves {
    float rate, decayed;
} factored_moves;

/* Of a tensor of n elements, from the sums of squares of its parameters and of u. */
FACTORED_FN factored_moves factored_moves_of(const factored_rule *a, double n, double params,
                                             double updates) {
    double rms = sqrt(params / n), rate = a->lr, over = sqrt(updates / n) / a->clip;
    if (a->scale_parameter) rate *= rms > a->eps_scale ? rms : a->eps_scale;
    factored_moves m;
    m.rate = (float)(over > 1 ? rate / over : rate);
    m.decayed = (float)(1.0 - rate * a->weight_decay);
    return m;
}

/* A mean square after a step in which it was `square`. */
FACTORED_FN float factored_average(const factored_rule *a, float mean, double square) {
    return (float)(a->keep * (double)mean + (1.0 - a->keep) * (square + a->eps));
}

#endif
