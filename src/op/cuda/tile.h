/* Tiles of 16-bit numbers in shared memory, for ldmatrix: rows of w numbers, w = 64 or 128, whose 16-byte pieces are
 * permuted by the row (piece ^ row % 8), so that the 8 rows of an ldmatrix lie in different banks. */
#ifndef OP_CUDA_TILE_H
#define OP_CUDA_TILE_H

#include "op/cuda/store.h"

GPU_FN STORE *tile_piece(STORE *tile, int32_t w, int32_t row, int32_t piece) {
    return tile + row * w + ((piece ^ (row & 7)) * 8);
}

#endif
