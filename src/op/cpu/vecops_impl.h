/* Whole-buffer operations of one instruction set; op/vecops.c chooses. */
#ifndef OP_CPU_VECOPS_IMPL_H
#define OP_CPU_VECOPS_IMPL_H

#include "op/cpu/variant.h"
#include "op/vecops.h"

void CPU_FN(vec_adamw)(int threads, const adamw_args *a);
double CPU_FN(vec_sum_squares)(int threads, const float *x, int64_t n);
bool CPU_FN(vec_all_finite)(int threads, const float *x, int64_t n);
void CPU_FN(vec_scale)(int threads, float *x, int64_t n, float by);

#endif
