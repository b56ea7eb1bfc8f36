/* The matrix products of a model's training program. */
#ifndef TRAIN_BENCH_GEMM_H
#define TRAIN_BENCH_GEMM_H

#include "op/gemm_bench.h"
#include "run/config/config.h"

typedef struct bench_gemm {
    char name[96]; /* of the layer, without its number; "head" */
    gemm_case c;
} bench_gemm;

/* Every linear layer and the head's chunk in their three layouts, equal ones once; in the format of
 * the config's precision. Planned without memory; the list lives in `a`. */
status bench_gemm_list(config *c, arena *a, bench_gemm **out, int *n, err *e) ATH_MUST_USE;

#endif
