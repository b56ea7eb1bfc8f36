/* What the host's half of every .cu file uses: from an op_call to launches. nvcc does not see it.
 *
 * A file of this folder holds, for one op or one family of ops: the arguments, the kernels, and, for
 * the host, functions op_fn that compute grids and launch. They run on the caller's thread. Each
 * file says what its kernels read and write per element. */
#ifndef OP_CUDA_HOST_H
#define OP_CUDA_HOST_H

#include "dev/cuda.h"
#include "op/cuda/numbers.h"
#include "op/cuda/store.h"
#include "op/op.h"

#define CUDA_CAT_(a, b, c) a##b##_##c
#define CUDA_CAT(a, b, c) CUDA_CAT_(a, b, c)
/* The symbol of an op's kernels for this storage: op_cuda_RMSNORM_bf16. */
#define CUDA_IMPL(ID) CUDA_CAT(op_cuda_, ID, KERNEL_SUFFIX)

/* Where the numbers of the run lie on the device (tables.c). */
const run_numbers *cuda_numbers(dev *d);

static inline mat mat_of(const tensor *t) {
    return (mat){t->data, t->ld};
}

static inline void launch(const op_call *c, const gpu_kernel *k, gpu_grid g, const void *args) {
    cuda_launch(c->run->dev, k, g, args);
}

/* n numbers at `at`, or nothing where that is NULL. */
static inline gpu_range range_of(const char *name, const void *at, int64_t n, int32_t item_bytes,
                                 gpu_access access) {
    return (gpu_range){name, at, at ? 1 : 0, n * item_bytes, n * item_bytes, access, item_bytes};
}

static inline gpu_range rows_range(const char *name, const tensor *t, gpu_access access) {
    int64_t item = (int64_t)dtype_bytes(t->dt);
    return (gpu_range){name, t->data, t->rows, t->cols * item, t->ld * item, access, (int32_t)item};
}

static inline uint32_t blocks_for(int64_t n, int64_t per_block) {
    return (uint32_t)((n + per_block - 1) / per_block);
}

/* Threads of a block that has work for n: whole warps, no more than it takes. */
static inline uint32_t threads_for(int64_t n, uint32_t most) {
    uint32_t threads = GPU_WARP;
    while (threads < most && threads < n) threads *= 2;
    return threads;
}

/* True if every row of the tensor may be read and written 16 bytes at a time. An absent one may. */
static inline bool is_wide(const tensor *t) {
    int64_t item = (int64_t)dtype_bytes(t->dt);
    return !t->data ||
           ((uintptr_t)t->data % 16 == 0 && t->ld * item % 16 == 0 && t->cols * item % 16 == 0);
}

#endif
