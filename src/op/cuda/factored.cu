/* Adafactor's update of one tensor (op/factored.h). A vector is one block's work. A matrix takes seven
 * kernels, as each needs sums over all that the one before has written:
 *
 *   factored_rows      a block for each row: its mean square, and the squares of its parameters
 *   factored_cols      a warp's width of columns and a chunk of rows: sums of squares
 *   factored_join      a thread for each column adds up its chunks: its mean square
 *   factored_totals    one block: the mean over rows, the squares of all parameters
 *   factored_updates   a block for each row: the squares of u
 *   factored_rate      one block: by how much the tensor moves along u
 *   factored_move      a block for each row
 *
 * Sums are in double; a block adds up in a fixed order, and one last block adds the sums of blocks.
 * 16 FLOPs and 22 bytes an element: gradients are read four times, parameters twice. */
#include "gpu/kernel.h"
#include "op/factored_rule.h"

enum { FACTORED_THREADS = 256 };
enum { NO_COPY, COPY_BF16, COPY_F16 };

typedef struct factored_totals_part {
    double mean_row, param_squares;
    factored_moves moves;
} factored_totals_part;

typedef struct factored_gpu_args {
    factored_rule rule;
    int64_t rows, cols;
    float *param, *row, *col;
    const float *grad;
    const int64_t *grad_fixed; /* replaces grad */
    uint16_t *copy;
    double *row_sums; /* [rows] */
    double *col_sums; /* [chunks, cols] */
    factored_totals_part *totals;
    const float *scale_at; /* replaces grad_scale; a NaN there: nothing is written */
    float grad_scale;
    int32_t chunks, how; /* how: copies are rounded */
} factored_gpu_args;

/* By what gradients are multiplied. False: nothing changes. */
GPU_FN bool scale_of(const factored_gpu_args *a, float *scale) {
    *scale = a->scale_at ? *a->scale_at : a->grad_scale;
    return *scale == *scale;
}

GPU_FN float gradient_at(const factored_gpu_args *a, int64_t at, float scale) {
    const float unit = 8.8817841970012523e-16f; /* 2^-50 */
    return (a->grad_fixed ? (float)a->grad_fixed[at] * unit : a->grad[at]) * scale;
}

GPU_FN double square_of(float v) {
    return (double)v * (double)v;
}

/* An element takes its step along u. */
GPU_FN void move_one(const factored_gpu_args *a, factored_moves m, int64_t at, float u) {
    float p = a->param[at] * m.decayed - m.rate * u;
    a->param[at] = p;
    if (a->how != NO_COPY) a->copy[at] = a->how == COPY_BF16 ? bf16_store(p) : f16_store(p);
}

/* ---- matrices ---- */

KERNEL(factored_rows, factored_gpu_args, FACTORED_THREADS) {
    SHARED(double, room, FACTORED_THREADS);
    float scale;
    if (!scale_of(a, &scale)) return;
    int64_t row = block_x(), first = row * a->cols;
    double grads = 0, params = 0;
    for (int64_t c = thread_x(); c < a->cols; c += threads_x()) {
        grads += square_of(gradient_at(a, first + c, scale));
        params += square_of(a->param[first + c]);
    }
    grads = block_sum_f64(grads, room);
    sync_block();
    params = block_sum_f64(params, room);
    if (thread_x() != 0) return;
    a->row[row] = factored_average(&a->rule, a->row[row], grads / (double)a->cols);
    a->row_sums[row] = params;
}

KERNEL(factored_cols, factored_gpu_args, FACTORED_THREADS) {
    SHARED(double, room, FACTORED_THREADS);
    float scale;
    if (!scale_of(a, &scale)) return;
    int64_t c = (int64_t)block_x() * GPU_WARP + lane(), chunk = block_y();
    int64_t first = a->rows * chunk / a->chunks, end = a->rows * (chunk + 1) / a->chunks;
    uint32_t warps = threads_x() / GPU_WARP;
    double sum = 0;
    for (int64_t r = first + warp(); r < end && c < a->cols; r += warps)
        sum += square_of(gradient_at(a, r * a->cols + c, scale));
    room[thread_x()] = sum;
    sync_block();
    if (warp() != 0 || c >= a->cols) return;
    for (uint32_t w = 1; w < warps; w++) sum += room[w * GPU_WARP + lane()];
    a->col_sums[chunk * a->cols + c] = sum;
}

KERNEL(factored_join, factored_gpu_args, FACTORED_THREADS) {
    float scale;
    int64_t c = (int64_t)block_x() * threads_x() + thread_x();
    if (!scale_of(a, &scale) || c >= a->cols) return;
    double sum = 0;
    for (int64_t k = 0; k < a->chunks; k++) sum += a->col_sums[k * a->cols + c];
    a->col[c] = factored_average(&a->rule, a->col[c], sum / (double)a->rows);
}

KERNEL(factored_totals, factored_gpu_args, FACTORED_THREADS) {
    SHARED(double, room, FACTORED_THREADS);
    float scale;
    if (!scale_of(a, &scale)) return;
    double rows = 0, params = 0;
    for (int64_t r = thread_x(); r < a->rows; r += threads_x()) {
        rows += (double)a->row[r];
        params += a->row_sums[r];
    }
    rows = block_sum_f64(rows, room);
    sync_block();
    params = block_sum_f64(params, room);
    if (thread_x() != 0) return;
    a->totals->mean_row = rows / (double)a->rows;
    a->totals->param_squares = params;
}

/* u of an element is its gradient by these. */
GPU_FN float by_row(const factored_gpu_args *a, int64_t row) {
    return (float)sqrt(a->totals->mean_row / (double)a->row[row]);
}

GPU_FN float by_col(const factored_gpu_args *a, int64_t c) {
    return 1.0f / sqrtf(a->col[c]);
}

KERNEL(factored_updates, factored_gpu_args, FACTORED_THREADS) {
    SHARED(double, room, FACTORED_THREADS);
    float scale;
    if (!scale_of(a, &scale)) return;
    int64_t row = block_x();
    float of_row = by_row(a, row);
    double sum = 0;
    for (int64_t c = thread_x(); c < a->cols; c += threads_x())
        sum += square_of(gradient_at(a, row * a->cols + c, scale) * (of_row * by_col(a, c)));
    sum = block_sum_f64(sum, room);
    if (thread_x() == 0) a->row_sums[row] = sum;
}

KERNEL(factored_rate, factored_gpu_args, FACTORED_THREADS) {
    SHARED(double, room, FACTORED_THREADS);
    float scale;
    if (!scale_of(a, &scale)) return;
    double sum = 0;
    for (int64_t r = thread_x(); r < a->rows; r += threads_x()) sum += a->row_sums[r];
    sum = block_sum_f64(sum, room);
    if (thread_x() == 0)
        a->totals->moves =
            factored_moves_of(&a->rule, (double)(a->rows * a->cols), a->totals->param_squares, sum);
}

KERNEL(factored_move, factored_gpu_args, FACTORED_THREADS) {
    float scale;
    if (!scale_of(a, &scale)) return;
    int64_t row = block_x();
    float of_row = by_row(a, row);
    for (int64_t c = thread_x(); c < a->cols; c += threads_x()) {
        int64_t at = row * a->cols + c;
        move_one(a, a->totals->moves, at, gradient_at(a, at, scale) * (of_row * by_col(a, c)));
    }
}

/* ---- vectors ---- */

KERNEL(factored_vector, factored_gpu_args, FACTORED_THREADS) {
    SHARED(double, room, FACTORED_THREADS);
    float scale;
    if (!scale_of(a, &scale)) return;
    double params = 0, updates = 0;
    for (int64_t c = thread_x(); c < a->cols; c += threads_x()) {
        float g = gradient_at(a, c, scale);
        a->col[c] = factored_average(&a->rule, a->col[c], square_of(g));
        updates += square_of(g / sqrtf(a->col[c]));
        params += square_of(a->param[c]);
    }
    params = block_sum_f64(params, room);
    sync_block();
    updates = block_sum_f64(updates, room);
    if (thread_x() == 0)
        a->totals->moves = factored_moves_of(&a->rule, (double)a->cols, params, updates);
    sync_block();
    for (int64_t c = thread_x(); c < a->cols; c += threads_x())
        move_one(a, a->totals->moves, c, gradient_at(a, c, scale) / sqrtf(a->col[c]));
}

#ifndef __CUDACC__
#include "dev/cuda.h"
#include "op/cuda/host.h"
#include "op/factored.h"

/* Enough chunks for all multiprocessors, however few columns there are. */
static int32_t chunks_of(int64_t rows) {
    int64_t n = rows / 64;
    return (int32_t)(n < 1 ? 1 : n > 64 ? 64 : n);
}

static factored_gpu_args args_of(const factored_args *f) {
    factored_gpu_args a = {.rule = f->rule,
                           .rows = f->rows,
                           .cols = f->cols,
                           .param = f->param,
                           .row = f->row,
                           .col = f->col,
                           .grad = f->grad,
                           .grad_fixed = f->grad_fixed,
                           .copy = f->param_copy,
                           .scale_at = f->grad_scale_at,
                           .grad_scale = f->grad_scale,
                           .chunks = f->row ? chunks_of(f->rows) : 0};
    a.how = !f->param_copy ? NO_COPY : f->copy_dt == DT_BF16 ? COPY_BF16 : COPY_F16;
    return a;
}

/* Totals, then sums of rows and of columns. False: the device has no memory for them. */
static bool find_room(dev *d, factored_gpu_args *a) {
    int64_t sums = a->row ? a->rows + a->chunks * a->cols : 0;
    a->totals = cuda_scratch(d, sizeof *a->totals + (size_t)sums * sizeof(double));
    a->row_sums = (double *)(void *)(a->totals + 1);
    a->col_sums = a->row_sums + a->rows;
    return a->totals != NULL;
}

static void launch_matrix(dev *d, const factored_gpu_args *a) {
    uint32_t rows = (uint32_t)a->rows, along = threads_for(a->cols, FACTORED_THREADS);
    uint32_t down = threads_for(a->rows, FACTORED_THREADS);
    gpu_grid by_row = {rows, 1, 1, along, 0}, one = {1, 1, 1, down, 0};
    gpu_grid columns = {blocks_for(a->cols, along), 1, 1, along, 0};
    gpu_grid tiles = {blocks_for(a->cols, GPU_WARP), (uint32_t)a->chunks, 1, FACTORED_THREADS, 0};
    cuda_launch(d, &factored_rows, by_row, a);
    cuda_launch(d, &factored_cols, tiles, a);
    cuda_launch(d, &factored_join, columns, a);
    cuda_launch(d, &factored_totals, one, a);
    cuda_launch(d, &factored_updates, by_row, a);
    cuda_launch(d, &factored_rate, one, a);
    cuda_launch(d, &factored_move, by_row, a);
}

void factored_update_cuda(dev *d, const factored_args *f) {
    factored_gpu_args a = args_of(f);
    int64_t n = a.rows * a.cols;
    if (!find_room(d, &a)) return;
    gpu_range may[] = {range_of("parameters", a.param, n, 4, GPU_UPDATE),
                       range_of("gradients", a.grad, n, 4, GPU_READ),
                       range_of("gradients in fixed point", a.grad_fixed, n, 8, GPU_READ),
                       range_of("rounded parameters", a.copy, n, 2, GPU_UPDATE),
                       range_of("mean squares of rows", a.row, a.rows, 4, GPU_UPDATE),
                       range_of("mean squares of columns", a.col, a.cols, 4, GPU_UPDATE),
                       range_of("totals", a.totals, sizeof *a.totals / 4, 4, GPU_SCRATCH),
                       range_of("sums of rows", a.row_sums, a.row ? a.rows : 0, 8, GPU_SCRATCH),
                       range_of("sums of columns", a.col_sums, a.chunks * a.cols, 8, GPU_SCRATCH),
                       range_of("scale of the gradients", a.scale_at, 1, 4, GPU_READ)};
    cuda_scope_begin(d, "adafactor", may, ARRAY_LEN(may));
    if (a.row)
        launch_matrix(d, &a);
    else
        cuda_launch(d, &factored_vector,
                    (gpu_grid){1, 1, 1, threads_for(a.cols, FACTORED_THREADS), 0}, &a);
    cuda_scope_end(d);
}
#endif
