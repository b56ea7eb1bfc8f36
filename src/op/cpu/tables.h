/* What one compiled variant of this folder offers, and which variant serves whom. */
#ifndef OP_CPU_TABLES_H
#define OP_CPU_TABLES_H

#include "op/gemm.h"
#include "op/op.h"
#include "op/vecops.h"

typedef struct cpu_kernels {
    const op_impl *const *ops; /* [OP_COUNT]; NULL where this variant has no kernel */
    int64_t (*gemm_ws)(int threads, const gemm_args *g);
    void (*gemm)(int threads, const gemm_args *g, void *ws);
    void (*gemm_tiles)(int threads, const gemm_args *g, void *ws); /* parts.h */
    double (*dot_loop)(int threads, int64_t rounds);
    /* NULL in avx512_bf16 and amx, where nothing of this would gain. */
    double (*fma_loop)(int threads, int64_t rounds);
    void (*update)(int threads, const vec_spans *s, const vec_update_args *a, uint64_t *digest);
    double (*sum_squares)(int threads, const vec_spans *s, const float *x);
    void (*sum_squares_fixed)(int threads, const vec_spans *s, const int64_t *x,
                              int64_t limb[VEC_LIMBS]);
    uint64_t (*digest)(int threads, const vec_spans *s, const float *x);
    void (*draw)(int threads, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *copy);
    void (*round)(int threads, const vec_spans *s, const float *x, uint16_t *copy);
} cpu_kernels;

extern const cpu_kernels cpu_kernels_base, cpu_kernels_avx2, cpu_kernels_avx512,
    cpu_kernels_avx512_bf16, cpu_kernels_amx;

/* table.c: the kernels for operands of type `dt`, f32, bf16 or f16, on a machine with this
 * instruction set. */
const cpu_kernels *cpu_kernels_of(cpu_isa isa, dtype dt);

/* Products of f32 with weights as files store them, in integers (stored_dot.c). */
typedef struct stored_dot_kernels {
    /* Whether weights may have n rows of this format. */
    bool (*fits)(dtype dt, int64_t n);
    int64_t (*ws)(int threads, int64_t m, int64_t k);
    void (*multiply)(int threads, const gemm_args *g, void *ws);
} stored_dot_kernels;

extern const stored_dot_kernels stored_dot_avx2, stored_dot_avx512, stored_dot_avx512_vnni;

/* table.c: those of a machine with this instruction set, NULL if there are none. */
const stored_dot_kernels *cpu_stored_dot_of(cpu_isa isa);

#endif
