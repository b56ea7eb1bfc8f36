/* Philox4x32-10 on the device: the bits of rng_block (base/rng.h). */
#ifndef OP_CUDA_PHILOX_H
#define OP_CUDA_PHILOX_H

#include "base/rng.h"
#include "gpu/kernel.h"

GPU_FN void philox_block(rng_key key, uint64_t counter, uint64_t counter_hi, uint32_t out[4]) {
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
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The 32 bits of one element (rng_u32). */
GPU_FN uint32_t philox_u32(rng_key key, uint64_t counter) {
    uint32_t r[4];
    philox_block(key, counter >> 2, 0, r);
    uint32_t even = counter & 2 ? r[2] : r[0], odd = counter & 2 ? r[3] : r[1];
    return counter & 1 ? odd : even;
}

#endif
