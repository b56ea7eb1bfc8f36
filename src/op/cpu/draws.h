/* The draws of op/dropout.h, many at a time: what `dropout_keeps` decides for consecutive counters,
 * as factors to multiply with. */
#ifndef OP_CPU_DRAWS_H
#define OP_CPU_DRAWS_H

#include "op/cpu/philox.h"
#include "op/dropout.h"

enum { DRAW_BLOCKS = 16, DRAW_BITS = 4 * DRAW_BLOCKS };

/* rng_block for DRAW_BLOCKS counters. */
V_INLINE void draw_blocks(rng_key key, uint64_t counter, uint32_t bits[DRAW_BITS]) {
    for (int block = 0; block < DRAW_BLOCKS; block += PHILOX_BLOCKS) {
        vq first[PHILOX_GROUPS], second[PHILOX_GROUPS];
        philox_blocks(key, counter + (uint64_t)block, first, second);
#pragma GCC unroll 16
        for (int i = 0; i < PHILOX_BLOCKS; i++) {
            uint64_t pair[2] = {first[i / VQ_LANES][i % VQ_LANES],
                                second[i / VQ_LANES][i % VQ_LANES]};
            memcpy(bits + 4 * (block + i), pair, sizeof pair);
        }
    }
}

/* factors[i] = keep / (1-p) of counter first + i. */
static inline void draw_factors(const dropout_draw *d, float scale, uint64_t first, int64_t n,
                                float *factors) {
    uint32_t bits[DRAW_BITS];
    int64_t at = -(int64_t)(first & 3); /* counter of bits[0], seen from first */
    for (uint64_t block = first >> 2; at < n; at += DRAW_BITS, block += DRAW_BLOCKS) {
        draw_blocks(d->key, block, bits);
        int64_t e = at < 0 ? -at : 0, end = n - at < DRAW_BITS ? n - at : DRAW_BITS;
#pragma omp simd
        for (int64_t i = e; i < end; i++) factors[at + i] = bits[i] >= d->threshold ? scale : 0.0f;
    }
}

#endif
