/* The arithmetic of base/rng.h that kernels of GPUs share: inline, for the C compiler and for nvcc. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FN static __device__ __forceinline__
#else
#define PHILOX_FN static inline
#endif

typedef struct rng_key {
    uint32_t k[2];
} rng_key;

/* Philox4x32-10: 128 random bits for one value of a counter of 128 bits. */
PHILOX_FN void philox_block(rng_key key, uint64_t counter, uint64_t counter_hi, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The 32 bits of one value of a counter that numbers words (rng_u32), at the price of four. */
PHILOX_FN uint32_t philox_u32(rng_key key, uint64_t counter) {
    uint32_t bits[4];
    philox_block(key, counter >> 2, 0, bits);
    uint32_t i = (uint32_t)counter & 3u;
    uint32_t low = i & 1u ? bits[1] : bits[0], high = i & 1u ? bits[3] : bits[2];
    return i & 2u ? high : low;
}

/* SplitMix64 finaliser: a good 64-bit mix of one word. */
PHILOX_FN uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A key of two words, in two rounds of mixing, so that (seed, stream) and (stream, seed) differ and
 * neighbours part: key_of_stream(mixed_seed(seed), stream). */
PHILOX_FN uint64_t mixed_seed(uint64_t seed) {
    return mix64(seed + 0x9e3779b97f4a7c15u);
}
PHILOX_FN rng_key key_of_stream(uint64_t mixed, uint64_t stream) {
    uint64_t x = mix64(mixed ^ stream);
    rng_key key = {{(uint32_t)x, (uint32_t)(x >> 32)}};
    return key;
}

#endif
