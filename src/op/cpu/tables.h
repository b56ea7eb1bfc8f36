/* What one compiled variant of this folder offers. */
#ifndef OP_CPU_TABLES_H
#define OP_CPU_TABLES_H

#include "op/gemm.h"
#include "op/op.h"
#include "op/vecops.h"

typedef struct cpu_kernels {
    const op_impl *const *f32, *const *bf16; /* [OP_COUNT], NULL where there is no tuned kernel */
    int64_t (*gemm_ws)(int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt);
    void (*gemm)(int threads, const gemm_args *g, void *ws);
    void (*adamw)(int threads, const adamw_args *a);
    double (*sum_squares)(int threads, const float *x, int64_t n);
    bool (*all_finite)(int threads, const float *x, int64_t n);
    void (*scale)(int threads, float *x, int64_t n, float by);
    double (*fma_loop)(int threads, int64_t rounds);
    double (*dot_loop)(int threads, int64_t rounds);
} cpu_kernels;

extern const cpu_kernels cpu_kernels_base, cpu_kernels_avx2, cpu_kernels_avx512,
    cpu_kernels_avx512_bf16;

const cpu_kernels *cpu_kernels_of(cpu_isa isa);

#endif
