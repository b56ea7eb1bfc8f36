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
    /* stored_dot.c, of avx512_bf16 and amx; NULL elsewhere. */
    bool (*stored_dot_fits)(dtype dt);
    int64_t (*stored_dot_ws)(int threads, int64_t m, int64_t k);
    void (*stored_dot)(int threads, const gemm_args *g, void *ws);
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

#endif
