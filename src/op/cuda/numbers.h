/* The numbers of a run (op_run) that differ from one replay to the next. Kernels read them in the
 * device's memory, so that all replays of a program launch the same kernels with the same arguments:
 * these launches can be one CUDA graph. */
#ifndef OP_CUDA_NUMBERS_H
#define OP_CUDA_NUMBERS_H

#include "base/philox.h"
#include "gpu/kernel.h"

typedef struct run_numbers {
    uint64_t draws; /* mixed_seed of all draws of the step */
    uint64_t micro_batch;
    double fixed_limit;
    float grad_scale, fixed_unscale;
} run_numbers;

#endif
