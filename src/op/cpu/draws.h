/* The draws of op/dropout.h, many at a time: what `dropout_keeps` decides for consecutive counters,
 * as factors to multiply with. */
#ifndef OP_CPU_DRAWS_H
#define OP_CPU_DRAWS_H

#include "op/cpu/simd.h"
#include "op/dropout.h"

enum { DRAW_BLOCKS = 16, DRAW_BITS = 4 * DRAW_BLOCKS };

typedef uint64_t vq __attribute__((vector_size(V_BYTES)));
enum { DRAW_LANES = V_BYTES / 8 };

/* Products of the low halves of the lanes. */
V_INLINE vq draw_multiply(vq a, uint32_t by) {
#if V_AVX512
    return (vq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(by));
#elif V_AVX2
    return (vq)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(by));
#else
    return (a & 0xffffffffu) * by;
#endif
}

/* rng_block for DRAW_BLOCKS counters, one per 64-bit lane. Only the low halves of c0..c3 count. */
V_INLINE void draw_blocks(rng_key key, uint64_t counter, uint32_t bits[DRAW_BITS]) {
    for (int block = 0; block < DRAW_BLOCKS; block += DRAW_LANES) {
        vq c0, c1, c2 = {0}, c3 = {0};
        uint64_t k0 = key.k[0], k1 = key.k[1];
        for (int i = 0; i < DRAW_LANES; i++) c0[i] = counter + (uint64_t)(block + i);
        c1 = c0 >> 32;
        for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
            vq p0 = draw_multiply(c0, 0xd2511f53u), p1 = draw_multiply(c2, 0xcd9e8d57u);
            c0 = (p1 >> 32) ^ c1 ^ k0;
            c2 = (p0 >> 32) ^ c3 ^ k1;
            c1 = p1;
            c3 = p0;
        }
        vq low = (c0 & 0xffffffffu) | c1 << 32, high = (c2 & 0xffffffffu) | c3 << 32;
        for (int i = 0; i < DRAW_LANES; i++) {
            uint64_t pair[2] = {low[i], high[i]};
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
        for (; e < end; e++) factors[at + e] = bits[e] >= d->threshold ? scale : 0.0f;
    }
}

#endif
