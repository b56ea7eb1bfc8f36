/* Fixed point of the deterministic mode: sums of integers have no order, so gradients and losses
 * come out with the same bits however a step is cut into micro-batches and ranks.
 *
 * A contribution to a gradient (one use of a parameter in one micro-batch) is divided by the loss
 * scale (train/guard/loss_scale.h; 1 but in fp16), then rounded once, to the nearest multiple of 2^-FIXED_GRAD_BITS, ties to even, and added in int64. Contributions are
 * limited so that no sum of all of a step can overflow: fixed_grad_limit. */
#ifndef OP_FIXED_H
#define OP_FIXED_H

#include <stdint.h>

enum {
    FIXED_GRAD_BITS = 50, /* gradients: below 2^12 in magnitude, in steps of 9e-16 */
    FIXED_NLL_BITS = 30,  /* sums of negative log-likelihoods: below 2^33 */
};

/* How large each of so many contributions may be, so that their sum stays below half of int64. */
static inline float fixed_grad_limit(int64_t contributions) {
    return 0x1p12f / (float)(contributions > 0 ? contributions : 1);
}

#endif
