/* The draws of op/dropout.h, many at a time: what `dropout_keeps` decides for consecutive counters,
 * as factors to multiply with. */
#ifndef OP_CPU_DRAWS_H
#define OP_CPU_DRAWS_H

#include "op/cpu/philox.h"
#include "op/dropout.h"

enum { DRAW_BLOCKS = 16, DRAW_BITS = 4 * DRAW_BLOCKS };

/* Both lanes 0, both lanes 1, ... */
V_INLINE void store_pairs(uint32_t *bits, vq first, vq second) {
#if V_AVX512
    vq low = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    vq high = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
#elif V_AVX2
    vq low = __builtin_shufflevector(first, second, 0, 4, 1, 5);
    vq high = __builtin_shufflevector(first, second, 2, 6, 3, 7);
#else
    vq low = {first[0], second[0]}, high = {first[1], second[1]};
#endif
    memcpy(bits, &low, sizeof low);
    memcpy(bits + 2 * VQ_LANES, &high, sizeof high);
}

/* rng_block for DRAW_BLOCKS counters. */
V_INLINE void draw_blocks(rng_key key, uint64_t counter, uint32_t bits[DRAW_BITS]) {
    for (int block = 0; block < DRAW_BLOCKS; block += PHILOX_BLOCKS) {
        vq first[PHILOX_GROUPS], second[PHILOX_GROUPS];
        philox_blocks(key, counter + (uint64_t)block, first, second);
#pragma GCC unroll 2
        for (int g = 0; g < PHILOX_GROUPS; g++)
            store_pairs(bits + 4 * (block + g * VQ_LANES), first[g], second[g]);
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
