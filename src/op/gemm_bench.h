/* Timing one matrix product with every implementation in turn, beside the arithmetic limit. */
#ifndef OP_GEMM_BENCH_H
#define OP_GEMM_BENCH_H

#include "op/gemm.h"

typedef struct gemm_case {
    int64_t m, n, k;
    gemm_layout layout;
    dtype dt; /* of both operands */
} gemm_case;

typedef struct gemm_timing {
    double best_s[GEMM_IMPLS]; /* 0: the implementation has no such product */
    double peak_flops;         /* op/peak.h, measured between the rounds */
    int rounds;
} gemm_timing;

/* Largest error of the product against sums in double precision, as a share of the sum of absolute
 * terms; negative: the implementation has no such product. For small products. d: a CPU. */
status gemm_bench_error(dev *d, const gemm_case *c, gemm_impl impl, double *out,
                        err *e) ATH_MUST_USE;
/* At least 5 rounds after one to warm up, more where they are short. On CUDA there is one
 * implementation, cuBLASLt, whose time stands first; 0 on the emulated GPU. */
status gemm_bench_run(dev *d, const gemm_case *c, gemm_timing *out, err *e) ATH_MUST_USE;

#endif
