/* Matrices that are stored as 8-bit floats (base/fp8.h) with a factor for each block of elements: of 128 x 128 as DeepSeek-V3 and its like are published
 * ("quantization_config": quant_method fp8, fmt e4m3), of a row or of the whole matrix as compressed-tensors, FBGEMM
 * and ModelOpt write them. Reading only. */
#ifndef IO_FP8_H
#define IO_FP8_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/fp8.h"

/* The factors of a matrix: scale[across rows of blocks][across], F32, BF16 or F16, in any alignment. */
typedef struct fp8_grid {
    const uint8_t *scale;
    dtype dt;
    int64_t rows, cols; /* of a block */
    int64_t across;     /* blocks beside each other */
} fp8_grid;

/* Number `block` of the factors. */
float fp8_factor(const uint8_t *scale, dtype dt, int64_t block);
/* Elements [first, first + n) of a matrix of `cols` columns: bits times the factor of the block. */
void fp8_blocks_to_f32(float *dst, const uint8_t *bits, const fp8_grid *g, int64_t cols,
                       int64_t first, int64_t n);

#endif
