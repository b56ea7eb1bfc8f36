/* RMSNORM and LAYERNORM: of each group of `width` columns
 *   xn = (x - mean) rstd, rstd = 1/sqrt(mean((x - mean)^2) + eps), with mean = 0 in RMSNORM
 *   y = xn w + b, or xn (1 + w); absent w = 1, absent b = 0
 * Backward, with g = dy w, within a group:
 *   dx = rstd (g - mean(g) - xn mean(g xn)), in RMSNORM without mean(g)
 *   dw = sum over rows and groups of dy xn;  db = the same sum of dy
 *
 * Forward: a block takes a group; x is read twice, the second time from the cache; y written once.
 * Backward: dx in one kernel like the forward. dw and db: a block takes 32 columns and a slice of the
 * groups, and adds up in a fixed order; a last kernel adds the slices. x and dy are read twice. */
#include "op/cuda/store.h"

typedef struct norm_args {
    mat x, y, dy, dx, mean, rstd; /* mean absent: RMSNORM */
    const float *w, *b;
    float *sum_w, *sum_b; /* [slices, width] */
    float *dw, *db;
    int64_t n; /* groups in all rows */
    int32_t width, groups;
    int32_t slices;
    float eps;
    int32_t unit_offset, center, add_dx, add_w, add_b;
} norm_args;

enum { NORM_THREADS = 256, SUM_COLS = 32, SUM_ROWS = 8 };

/* Column `first` of group i, of row i / groups. */
GPU_FN const STORE *norm_at(const norm_args *a, mat m, int64_t i) {
    return row_of(m, i / a->groups) + i % a->groups * a->width;
}
GPU_FN float *stat_at(const norm_args *a, mat m, int64_t i) {
    return f32_row_of(m, i / a->groups) + i % a->groups;
}

GPU_FN float gain_of(const norm_args *a, int32_t c) {
    return (a->unit_offset ? 1.0f : 0.0f) + (a->w ? a->w[c] : a->unit_offset ? 0.0f : 1.0f);
}

KERNEL(norm_fwd, norm_args, NORM_THREADS) {
    SHARED(float, room, 32);
    int64_t i = block_x();
    const STORE *x = norm_at(a, a->x, i);
    STORE *y = (STORE *)norm_at(a, a->y, i);
    float mean = 0, square = 0;
    if (a->center) {
        float sum = 0;
        for (int32_t c = (int32_t)thread_x(); c < a->width; c += (int32_t)threads_x())
            sum += load(x[c]);
        mean = block_sum(sum, room) / (float)a->width;
        sync_block();
    }
    for (int32_t c = (int32_t)thread_x(); c < a->width; c += (int32_t)threads_x()) {
        float d = load(x[c]) - mean;
        square += d * d;
    }
    float rstd = 1.0f / sqrtf(block_sum(square, room) / (float)a->width + a->eps);
    if (thread_x() == 0) {
        *stat_at(a, a->rstd, i) = rstd;
        if (a->center) *stat_at(a, a->mean, i) = mean;
    }
    for (int32_t c = (int32_t)thread_x(); c < a->width; c += (int32_t)threads_x())
        y[c] = store((load(x[c]) - mean) * rstd * gain_of(a, c) + (a->b ? a->b[c] : 0.0f));
}

KERNEL(norm_bwd, norm_args, NORM_THREADS) {
    SHARED(float, room, 32);
    int64_t i = block_x();
    const STORE *x = norm_at(a, a->x, i), *dy = norm_at(a, a->dy, i);
    STORE *dx = (STORE *)norm_at(a, a->dx, i);
    float rstd = *stat_at(a, a->rstd, i), mean = a->center ? *stat_at(a, a->mean, i) : 0;
    float sum_g = 0, sum_gx = 0;
    for (int32_t c = (int32_t)thread_x(); c < a->width; c += (int32_t)threads_x()) {
        float g = load(dy[c]) * gain_of(a, c);
        sum_g += g;
        sum_gx += g * (load(x[c]) - mean) * rstd;
    }
    float mean_gx = block_sum(sum_gx, room) / (float)a->width, mean_g = 0;
    if (a->center) {
        sync_block();
        mean_g = block_sum(sum_g, room) / (float)a->width;
    }
    for (int32_t c = (int32_t)thread_x(); c < a->width; c += (int32_t)threads_x()) {
        float xn = (load(x[c]) - mean) * rstd;
        put(&dx[c], rstd * (load(dy[c]) * gain_of(a, c) - mean_g - xn * mean_gx), a->add_dx);
    }
}

/* Threads of a warp take neighbouring columns, warps every SUM_ROWS-th group of the slice. */
KERNEL(norm_sums, norm_args, SUM_COLS *SUM_ROWS) {
    SHARED(float, part_w, SUM_ROWS *SUM_COLS);
    SHARED(float, part_b, SUM_ROWS *SUM_COLS);
    int32_t c = (int32_t)(block_x() * SUM_COLS + lane());
    int64_t first = a->n * block_y() / a->slices, end = a->n * (block_y() + 1) / a->slices;
    float w = 0, b = 0;
    for (int64_t i = first + warp(); i < end && c < a->width; i += SUM_ROWS) {
        float dy = load(norm_at(a, a->dy, i)[c]);
        float mean = a->center ? *stat_at(a, a->mean, i) : 0;
        w += dy * (load(norm_at(a, a->x, i)[c]) - mean) * *stat_at(a, a->rstd, i);
        b += dy;
    }
    part_w[thread_x()] = w;
    part_b[thread_x()] = b;
    sync_block();
    if (warp() != 0 || c >= a->width) return;
    for (int r = 1; r < SUM_ROWS; r++) {
        w += part_w[r * SUM_COLS + (int32_t)lane()];
        b += part_b[r * SUM_COLS + (int32_t)lane()];
    }
    int64_t at = (int64_t)block_y() * a->width + c;
    if (a->dw) a->sum_w[at] = w;
    if (a->db) a->sum_b[at] = b;
}

KERNEL(norm_join, norm_args, NORM_THREADS) {
    int32_t c = (int32_t)(block_x() * NORM_THREADS + thread_x());
    if (c >= a->width) return;
    float w = 0, b = 0;
    for (int32_t s = 0; s < a->slices; s++) {
        if (a->dw) w += a->sum_w[(int64_t)s * a->width + c];
        if (a->db) b += a->sum_b[(int64_t)s * a->width + c];
    }
    if (a->dw) put_f32(&a->dw[c], w, a->add_w);
    if (a->db) put_f32(&a->db[c], b, a->add_b);
}

#ifndef __CUDACC__
#include "op/cuda/host.h"

static norm_args norm_open(const op_call *c, bool center) {
    int64_t width = op_norm_width(c->attr, c->in[0].cols);
    norm_args a = {.x = mat_of(&c->in[0]), .y = mat_of(&c->out[0]), .center = center};
    a.w = c->in[1].data;
    if (center) a.b = c->in[2].data, a.mean = mat_of(&c->out[1]);
    a.rstd = mat_of(&c->out[center ? 2 : 1]);
    a.width = (int32_t)width;
    a.groups = (int32_t)(c->in[0].cols / width);
    a.n = c->in[0].rows * a.groups;
    a.eps = c->attr->norm.eps;
    a.unit_offset = c->attr->norm.unit_offset;
    return a;
}

/* A few columns for each thread: a warp for the heads of a norm per head, eight for wide rows. */
static gpu_grid grid_of_groups(const norm_args *a) {
    uint32_t threads = 32;
    while (threads < NORM_THREADS && (int64_t)threads * 4 < a->width) threads *= 2;
    return (gpu_grid){(uint32_t)a->n, 1, 1, threads, 0};
}

static void forward(const op_call *c, bool center) {
    norm_args a = norm_open(c, center);
    launch(c, &norm_fwd, grid_of_groups(&a), &a);
}

/* Enough slices for all multiprocessors of the largest devices, whatever the number of columns. */
static int32_t slices_for(int64_t n) {
    int64_t s = n / 64;
    return (int32_t)(s < 1 ? 1 : s > 128 ? 128 : s);
}

static void backward(const op_call *c, bool center) {
    norm_args a = norm_open(c, center);
    a.dy = mat_of(&c->dout[0]);
    a.dx = mat_of(&c->din[0]);
    a.add_dx = op_accumulates(c, 0);
    a.dw = c->din[1].data, a.add_w = op_accumulates(c, 1);
    if (center) a.db = c->din[2].data, a.add_b = op_accumulates(c, 2);
    if (a.dx.p) launch(c, &norm_bwd, grid_of_groups(&a), &a);
    if (!a.dw && !a.db) return;
    a.slices = slices_for(a.n);
    a.sum_w = c->ws;
    a.sum_b = a.sum_w + (int64_t)a.slices * a.width;
    uint32_t cols = blocks_for(a.width, SUM_COLS);
    launch(c, &norm_sums, (gpu_grid){cols, (uint32_t)a.slices, 1, SUM_COLS * SUM_ROWS, 0}, &a);
    launch(c, &norm_join, (gpu_grid){blocks_for(a.width, NORM_THREADS), 1, 1, NORM_THREADS, 0}, &a);
}

static void norm_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t width = op_norm_width(io->attr, io->in[0].cols);
    ws[1] =
        2 * (int64_t)sizeof(float) * slices_for(io->in[0].rows * (io->in[0].cols / width)) * width;
}

static void rmsnorm_fwd(const op_call *c) {
    forward(c, false);
}
static void rmsnorm_bwd(const op_call *c) {
    backward(c, false);
}
static void layernorm_fwd(const op_call *c) {
    forward(c, true);
}
static void layernorm_bwd(const op_call *c) {
    backward(c, true);
}

const op_impl CUDA_IMPL(RMSNORM) = {rmsnorm_fwd, rmsnorm_bwd, NULL, norm_workspace};
const op_impl CUDA_IMPL(LAYERNORM) = {layernorm_fwd, layernorm_bwd, NULL, norm_workspace};
#endif
