/* The packed product of one instruction set; op/gemm.c chooses. */
#ifndef OP_CPU_GEMM_TILE_H
#define OP_CPU_GEMM_TILE_H

#include <omp.h>

#include "op/cpu/variant.h"
#include "op/gemm.h"

int64_t CPU_FN(gemm_ws)(int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt);
void CPU_FN(gemm_packed)(int threads, const gemm_args *g, void *ws);

/* Whether gemv runs the product instead (gemm_packed asks). */
bool CPU_FN(gemv_fits)(const gemm_args *g);
void CPU_FN(gemv)(int threads, const gemm_args *g);

#endif
