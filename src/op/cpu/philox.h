/* Philox4x32-10 of base/rng.h for PHILOX_BLOCKS consecutive counters, one per 64-bit lane:
 * rng_block with an upper counter half of 0. */
#ifndef OP_CPU_PHILOX_H
#define OP_CPU_PHILOX_H

#include "base/rng.h"
#include "op/cpu/wide.h"

/* Two vectors of counters at a time: one's multiplications fill the other's waits. */
enum { PHILOX_GROUPS = 2, PHILOX_BLOCKS = PHILOX_GROUPS * VQ_LANES };

/* Words 0 and 1 of each counter's block in `first`, words 2 and 3 in `second`, the lower word in
 * the lower half. In the rounds only the low halves of c0..c3 count. */
V_INLINE void philox_blocks(rng_key key, uint64_t counter, vq first[PHILOX_GROUPS],
                            vq second[PHILOX_GROUPS]) {
    const vq multiply0 = (vq){0} + 0xd2511f53u, multiply1 = (vq){0} + 0xcd9e8d57u;
    vq lane = {0}, c0[PHILOX_GROUPS], c1[PHILOX_GROUPS], c2[PHILOX_GROUPS], c3[PHILOX_GROUPS];
    uint64_t k0 = key.k[0], k1 = key.k[1];
    for (int i = 0; i < VQ_LANES; i++) lane[i] = (uint64_t)i;
    for (int g = 0; g < PHILOX_GROUPS; g++) {
        c0[g] = lane + (counter + (uint64_t)(g * VQ_LANES));
        c1[g] = c0[g] >> 32;
        c2[g] = c3[g] = (vq){0};
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
#pragma GCC unroll 2
        for (int g = 0; g < PHILOX_GROUPS; g++) {
            vq p0 = vq_multiply_low(c0[g], multiply0), p1 = vq_multiply_low(c2[g], multiply1);
            c0[g] = (p1 >> 32) ^ c1[g] ^ k0;
            c2[g] = (p0 >> 32) ^ c3[g] ^ k1;
            c1[g] = p1;
            c3[g] = p0;
        }
    }
    for (int g = 0; g < PHILOX_GROUPS; g++) {
        first[g] = (c0[g] & 0xffffffffu) | c1[g] << 32;
        second[g] = (c2[g] & 0xffffffffu) | c3[g] << 32;
    }
}

#endif
