/* sums[i] = sum over n of x[n,i], in a fixed order: the gradient of a bias. A block takes a slice of
 * the rows and a piece of columns for each lane; its warps take every SUM_WARPS-th row. A second
 * kernel adds the slices. x is read once, and 2 * slices numbers per column go through memory. */
#ifndef OP_CUDA_COLUMN_SUMS_H
#define OP_CUDA_COLUMN_SUMS_H

#include "op/cuda/pieces.h"

typedef struct column_args {
    mat x;
    float *part, *sums; /* part [slices, cols] */
    int64_t rows;
    int32_t cols, wide, slices, add;
} column_args;

enum { SUM_WARPS = 8, JOIN_THREADS = 128 };

KERNEL(column_parts, column_args, SUM_WARPS *GPU_WARP) {
    SHARED(float, room, SUM_WARPS *GPU_WARP *VEC);
    int32_t per = a->wide ? VEC : 1, warps = (int32_t)(threads_x() / GPU_WARP);
    int32_t c = (int32_t)(block_x() * GPU_WARP + lane()) * per;
    int64_t first = a->rows * block_y() / a->slices, end = a->rows * (block_y() + 1) / a->slices;
    float sum[VEC], v[VEC];
    for (int k = 0; k < VEC; k++) sum[k] = 0;
    for (int64_t n = first + warp(); n < end && c < a->cols; n += warps) {
        piece_load(v, row_of(a->x, n) + c, a->wide);
        for (int k = 0; k < VEC; k++) sum[k] += v[k];
    }
    for (int k = 0; k < VEC; k++) room[k * (int32_t)threads_x() + (int32_t)thread_x()] = sum[k];
    sync_block();
    if (warp() != 0 || c >= a->cols) return;
    for (int w = 1; w < warps; w++)
        for (int k = 0; k < VEC; k++)
            sum[k] += room[k * (int32_t)threads_x() + w * GPU_WARP + (int32_t)lane()];
    piece_put_f32(a->part + (int64_t)block_y() * a->cols + c, sum, a->wide, false);
}

KERNEL(column_join, column_args, JOIN_THREADS) {
    int32_t c = (int32_t)(block_x() * threads_x() + thread_x());
    if (c >= a->cols) return;
    float sum = 0;
    for (int32_t s = 0; s < a->slices; s++) sum += a->part[(int64_t)s * a->cols + c];
    put_f32(&a->sums[c], sum, a->add);
}

#ifndef __CUDACC__
/* Enough slices for all multiprocessors of the largest devices. */
static inline int32_t column_slices(int64_t rows) {
    int64_t s = rows / 64;
    return (int32_t)(s < 1 ? 1 : s > 128 ? 128 : s);
}

static inline int64_t column_sums_bytes(int64_t rows, int64_t cols) {
    return (int64_t)sizeof(float) * column_slices(rows) * cols;
}

/* ws: column_sums_bytes. */
static inline void column_sums(const op_call *c, const tensor *x, const tensor *sums, bool add,
                               void *ws) {
    column_args a = {.x = mat_of(x), .part = ws, .sums = sums->data};
    a.rows = x->rows, a.cols = (int32_t)x->cols, a.add = add;
    a.wide = is_wide(x);
    a.slices = column_slices(x->rows);
    uint32_t threads = x->rows < SUM_WARPS ? GPU_WARP : SUM_WARPS * GPU_WARP;
    uint32_t across = blocks_for(a.cols, (int64_t)GPU_WARP * (a.wide ? VEC : 1));
    launch(c, &column_parts, (gpu_grid){across, (uint32_t)a.slices, 1, threads, 0}, &a);
    threads = threads_for(a.cols, JOIN_THREADS);
    launch(c, &column_join, (gpu_grid){blocks_for(a.cols, threads), 1, 1, threads, 0}, &a);
}
#endif

#endif
