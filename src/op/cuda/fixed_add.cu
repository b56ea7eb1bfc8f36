/* FIXED_ADD: sum (+)= x * unscale * 2^50, rounded to nearest even, in int64; what is beyond the limit, or
 * NaN, counts as the limit and raises a flag. 4 bytes read, 8 written; 16 where it adds. Three operations
 * in double: on cards with few units for these it is still the memory that takes longer. */
#include "op/cuda/numbers.h"
#include "op/cuda/pieces.h"

typedef struct fixed_args {
    const float *x;
    int64_t *sum;
    bool *overflow;
    int64_t n;
    const run_numbers *run;
    int32_t add;
} fixed_args;

KERNEL(fixed_add, fixed_args, PIECE_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x();
    if (i >= a->n) return;
    double limit = a->run->fixed_limit;
    double x = (double)mul_rounded(a->x[i], a->run->fixed_unscale), low = x > -limit ? x : -limit;
    double limited = low < limit ? low : limit;
    int64_t fixed = (int64_t)llrint(limited * 1125899906842624.0); /* 2^50 */
    a->sum[i] = a->add ? (int64_t)((uint64_t)a->sum[i] + (uint64_t)fixed) : fixed;
    if (!(fabs(x) <= limit)) raise_flag(a->overflow);
}

#ifndef __CUDACC__
#include "op/fixed.h"

_Static_assert(FIXED_GRAD_BITS == 50, "2^50 above");

/* Neither has gaps between rows. */
static void fixed_add_fwd(const op_call *c) {
    const tensor *x = &c->in[0];
    fixed_args a = {.x = x->data, .sum = c->out[0].data, .n = x->rows * x->cols};
    a.overflow = c->run->fixed_overflow;
    a.run = cuda_numbers(c->run->dev);
    a.add = op_accumulates(c, 0);
    uint32_t threads = threads_for(a.n, PIECE_THREADS);
    launch(c, &fixed_add, (gpu_grid){blocks_for(a.n, threads), 1, 1, threads, 0}, &a);
}

const op_impl CUDA_IMPL(FIXED_ADD) = {fixed_add_fwd, NULL, NULL, NULL};
#endif
