/* Rows of a matrix 8 numbers at a time: of STORE, or of weights as files store them. */
#ifndef OP_CUDA_WEIGHT_H
#define OP_CUDA_WEIGHT_H

#include "op/cuda/store.h"
#include "op/cuda/stored.h"

/* Numbers [i, i + 8) of a row of n; those behind it are 0. wide: rows begin at multiples of 16 bytes, and i is one of 8. */
GPU_FN void read8(const STORE *row, int64_t i, int64_t n, int32_t wide, float out[STORED_STEP]) {
    if (wide && i + STORED_STEP <= n) {
        for (int j = 0; j < STORED_STEP; j += VEC) load_vec(out + j, row + i + j);
        return;
    }
    for (int j = 0; j < STORED_STEP; j++) out[j] = i + j < n ? load(row[i + j]) : 0;
}

/* The same of a row of weights; dt: their format, or WEIGHT_OWN if they are of STORE. */
enum { WEIGHT_OWN = -1 };
GPU_FN void weight_read8(const char *row, int32_t dt, int64_t i, int64_t n, int32_t wide,
                         float out[STORED_STEP]) {
    if (dt == WEIGHT_OWN)
        read8((const STORE *)row, i, n, wide, out);
    else
        stored_read8(dt, (const uint8_t *)row, n, i, out);
}

#endif
