/* Whole-array operations of one instruction set; op/vecops.c chooses. vecops.c: what a step does;
 * vecfixed.c: the same in the deterministic mode; vecinit.c: what the start does. */
#ifndef OP_CPU_VECOPS_IMPL_H
#define OP_CPU_VECOPS_IMPL_H

#include "op/cpu/variant.h"
#include "op/vecops.h"

/* x[0..n) * 2^-FIXED_GRAD_BITS, each rounded once. */
void CPU_FN(vec_unfix)(const int64_t *x, float *out, int64_t n);
void CPU_FN(vec_update)(int threads, const vec_spans *s, const vec_update_args *a,
                        uint64_t *digest);
double CPU_FN(vec_sum_squares)(int threads, const vec_spans *s, const float *x);
void CPU_FN(vec_sum_squares_fixed)(int threads, const vec_spans *s, const int64_t *x,
                                   int64_t limb[VEC_LIMBS]);
uint64_t CPU_FN(vec_digest)(int threads, const vec_spans *s, const float *x);
void CPU_FN(vec_draw)(int threads, const vec_spans *s, const vec_rule *rule, float *x,
                      uint16_t *x_bf16);
void CPU_FN(vec_round)(int threads, const vec_spans *s, const float *x, uint16_t *x_bf16);

#endif
