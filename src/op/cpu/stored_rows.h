/* Rows of weights as files store them, for kernels in f32. */
#ifndef OP_CPU_STORED_ROWS_H
#define OP_CPU_STORED_ROWS_H

#include "op/cpu/variant.h"
#include "op/gemm.h"

/* The first n elements of a row as floats; dt is none of f32. */
void CPU_FN(stored_read)(float *dst, const void *row, int64_t n, dtype dt);
/* Elements [k0, k0 + k) of `rows` rows as panels of B (pack.h); k0 is a multiple of 32. */
void CPU_FN(stored_pack)(float *dst, const void *src, int64_t row_bytes, int64_t rows, int64_t k0,
                         int64_t k, dtype dt);
/* The product of few rows: B is decoded once, in registers, as it passes. */
bool CPU_FN(gemv_stored_fits)(const gemm_args *g);
void CPU_FN(gemv_stored)(int threads, const gemm_args *g);

#endif
