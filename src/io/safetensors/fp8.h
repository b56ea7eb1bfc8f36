/* 8-bit floats with 4 bits of exponent and 3 of mantissa (OCP E4M3, no infinities), and matrices
 * stored so with a factor for each block of 128 x 128 elements: the form in which DeepSeek-V3 and
 * its like are published ("quantization_config": quant_method fp8, fmt e4m3). Reading only. */
#ifndef IO_FP8_H
#define IO_FP8_H

#include <stdint.h>

#include "base/dtype.h"

enum { FP8_BLOCK = 128 };

float fp8_e4m3(uint8_t bits);

/* Number `block` of the factors, F32 or BF16, in any alignment. */
float fp8_factor(const uint8_t *scale, dtype dt, int64_t block);
/* Elements [first, first + n) of a [rows, cols] matrix: bits times the factor of the block, which
 * stand in scale[ceil(rows / 128), ceil(cols / 128)] (F32 or BF16, in any alignment). */
void fp8_blocks_to_f32(float *dst, const uint8_t *bits, const uint8_t *scale, dtype scale_dt,
                       int64_t cols, int64_t first, int64_t n);

#endif
