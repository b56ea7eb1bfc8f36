/* The kernels for CUDA devices, one table per storage format, indexed by op_kind. NULL: none yet. */
#ifndef OP_CUDA_TABLES_H
#define OP_CUDA_TABLES_H

#include "op/op.h"

extern const op_impl *const op_cuda_table_f32[OP_COUNT];
extern const op_impl *const op_cuda_table_bf16[OP_COUNT];
extern const op_impl *const op_cuda_table_f16[OP_COUNT];

/* What changes from run to run goes to the device, if it differs from what is there. Called before
 * calls of another run are given. */
void cuda_set_run(dev *d, const op_run *run);
/* Runs a call on a CUDA device: fn launches kernels, which may touch only what the call names. */
void cuda_op_launch(dev *d, op_fn fn, const op_call *c);

#endif
