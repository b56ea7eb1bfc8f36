/* The arithmetic of choosing a token from a row of logits, which the host's sampler (infer/sample.h) and
 * kernels of GPUs share: they choose the same token by the same draw.
 *
 * A token has a weight, exp((logit - best) / temperature), and its mass is this weight in units of
 * 2^-PICK_BITS, an integer: sums of masses have no order. Tokens are kept in falling order of likelihood
 * (the higher logit, then the lower id), and one is drawn from those that are kept, in the order of ids. */
#ifndef OP_PICK_H
#define OP_PICK_H

#include "op/exp_below.h"

#ifdef __CUDACC__
#define PICK_FN static __device__ __forceinline__
#else
#define PICK_FN static inline
#endif

enum { PICK_BITS = 42, PICK_ID_BITS = 21 }; /* 2^21 tokens of weight 1 have a mass of 63 bits */
/* Tokens this far (in units of temperature) below the best, with e^-50 of its probability, are left out.
 * From e^-29 on they have no mass, and cannot come either. */
#define PICK_REACH 50.0f

/* How a token is chosen from logits alone. */
typedef struct pick_rule {
    float temperature; /* 1e-6 or more; 0: the most likely token, and nothing else counts */
    float min_p;
    double top_p;
    int32_t top_k;
    uint64_t draw; /* evenly distributed */
} pick_rule;

/* `weight`: at most 1. */
PICK_FN uint64_t pick_mass(float weight) {
    return (uint64_t)(int64_t)(weight * (float)((uint64_t)1 << PICK_BITS));
}

/* The mass that top_p asks for, of `all`: some at least, which the best token has. */
PICK_FN uint64_t pick_share(double top_p, uint64_t all) {
    double share = top_p * (double)all;
    uint64_t floor = (uint64_t)share;
    return floor + ((double)floor < share || floor == 0);
}

/* Below `mass`: the token that is drawn is the first with which the sum of masses exceeds it. */
PICK_FN uint64_t pick_at(uint64_t draw, uint64_t mass) {
    const uint64_t low = 0xffffffffu;
    uint64_t a = draw >> 32, b = draw & low, c = mass >> 32, d = mass & low;
    uint64_t middle = (b * d >> 32) + (a * d & low) + (b * c & low);
    return a * c + (a * d >> 32) + (b * c >> 32) + (middle >> 32);
}

#ifndef __CUDACC__
#include <stdbool.h>

#include "dev/dev.h"

/* Whether a device chooses tokens itself, so that logits need not come to the host. */
bool pick_is_on_device(const dev *d);
/* Chooses from n rows of logits [ld] in the device's memory, among their first n_ids, and waits. ids[i] -1:
 * row i is no distribution (infer/sample.h). Such devices only. */
void pick_rows(dev *d, const float *logits, int64_t ld, int n, int32_t n_ids, const pick_rule *rule,
               int32_t *ids);
#endif

#endif
