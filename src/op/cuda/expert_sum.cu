/* EXPERT_SUM: y[n] = sum_j w[n,j] z[slots[n,j]] + res[n]; dz[slots[n,j]] = w[n,j] dy[n], dw[n,j] = z[slots[n,j]] . dy[n].
 *
 * Forward: a thread for each piece of y, 2 k FLOPs an element; k rows of z are read for each that is written.
 * Backward: a warp for each pick, 3 FLOPs an element of z, which is read and written once; dy is read k times, mostly
 * from the cache. Slots name the first rows of z; how many, a kernel counts, and those behind get 0. */
#include "op/cuda/pieces.h"

typedef struct expert_sum_args {
    mat z, weights, slots, res, y, dy, dz, dweights;
    pieces p; /* of y, or of dz */
    int32_t *used;
    int64_t rows; /* of y */
    int32_t k, C, wide, add_z, add_w;
} expert_sum_args;

enum { EXPERT_SUM_THREADS = 256, EXPERT_COUNT_THREADS = 1024 };

KERNEL(expert_sum_fwd, expert_sum_args, EXPERT_SUM_THREADS) {
    int64_t n;
    int32_t c;
    if (!my_piece(&a->p, &n, &c)) return;
    const int32_t *slots = i32_row_of(a->slots, n);
    const float *weights = f32_row_of(a->weights, n);
    float sum[VEC], v[VEC];
    for (int i = 0; i < VEC; i++) sum[i] = 0;
    for (int32_t j = 0; j < a->k; j++) {
        if (slots[j] < 0) continue;
        piece_load(v, row_of(a->z, slots[j]) + c, a->wide);
        for (int i = 0; i < VEC; i++) sum[i] += weights[j] * v[i];
    }
    if (a->res.p) {
        piece_load(v, row_of(a->res, n) + c, a->wide);
        for (int i = 0; i < VEC; i++) sum[i] += v[i];
    }
    piece_store(row_of(a->y, n) + c, sum, a->wide);
}

KERNEL(expert_sum_bwd, expert_sum_args, EXPERT_SUM_THREADS) {
    int64_t i = (int64_t)block_x() * (threads_x() / GPU_WARP) + warp(), n = i / a->k;
    int32_t j = (int32_t)(i - n * a->k), per = a->wide ? VEC : 1;
    if (n >= a->rows) return;
    int32_t slot = i32_row_of(a->slots, n)[j];
    float weight = f32_row_of(a->weights, n)[j], dot = 0, g[VEC], v[VEC];
    for (int32_t c = (int32_t)lane() * per; c < a->C && slot >= 0; c += GPU_WARP * per) {
        piece_load(g, row_of(a->dy, n) + c, a->wide);
        if (a->dweights.p) piece_load(v, row_of(a->z, slot) + c, a->wide);
        for (int x = 0; x < VEC && a->dweights.p; x++) dot += v[x] * g[x];
        for (int x = 0; x < VEC; x++) g[x] *= weight;
        if (a->dz.p) piece_put(row_of(a->dz, slot) + c, g, a->wide, a->add_z);
    }
    dot = warp_sum(dot);
    if (a->dweights.p && lane() == 0) put_f32(f32_row_of(a->dweights, n) + j, dot, a->add_w);
}

/* One block: how many slots name a row. */
KERNEL(expert_sum_count, expert_sum_args, EXPERT_COUNT_THREADS) {
    SHARED(uint32_t, room, 32);
    uint64_t n = 0;
    for (int64_t i = thread_x(); i < a->rows * a->k; i += threads_x())
        n += i32_row_of(a->slots, i / a->k)[i % a->k] >= 0;
    n = warp_sum_u64(n);
    if (lane() == 0) room[warp()] = (uint32_t)n;
    sync_block();
    if (thread_x() != 0) return;
    for (uint32_t w = 1; w < threads_x() / GPU_WARP; w++) n += room[w];
    *a->used = (int32_t)n;
}

KERNEL(expert_sum_clear, expert_sum_args, EXPERT_SUM_THREADS) {
    int64_t n;
    int32_t c;
    float zero[VEC];
    if (!my_piece(&a->p, &n, &c) || n < *a->used) return;
    for (int i = 0; i < VEC; i++) zero[i] = 0;
    piece_store(row_of(a->dz, n) + c, zero, a->wide);
}

#ifndef __CUDACC__

static expert_sum_args sum_open(const op_call *c, const tensor *y) {
    expert_sum_args a = {.weights = mat_of(&c->in[1]), .slots = mat_of(&c->in[2])};
    a.rows = y->rows, a.C = (int32_t)y->cols, a.k = (int32_t)c->in[1].cols;
    a.z = mat_of(&c->in[0]);
    return a;
}

static void sum_fwd(const op_call *c) {
    expert_sum_args a = sum_open(c, &c->out[0]);
    a.wide = is_wide(&c->in[0]) && is_wide(&c->out[0]) && (!c->in[3].data || is_wide(&c->in[3]));
    a.y = mat_of(&c->out[0]);
    if (c->in[3].data) a.res = mat_of(&c->in[3]);
    a.p = pieces_of(a.rows, a.C, a.wide);
    launch(c, &expert_sum_fwd, grid_of_pieces(&a.p), &a);
}

static void sum_bwd(const op_call *c) {
    const tensor *dz = &c->din[0];
    expert_sum_args a = sum_open(c, &c->dout[0]);
    if (!dz->data && !c->din[1].data) return;
    a.dy = mat_of(&c->dout[0]), a.dz = mat_of(dz), a.dweights = mat_of(&c->din[1]);
    a.add_z = op_accumulates(c, 0), a.add_w = op_accumulates(c, 1), a.used = c->ws;
    a.wide = is_wide(&c->in[0]) && is_wide(&c->dout[0]) && is_wide(dz);
    if (dz->data && !a.add_z) {
        uint32_t all = threads_for(a.rows * a.k, EXPERT_COUNT_THREADS);
        launch(c, &expert_sum_count, (gpu_grid){1, 1, 1, all, 0}, &a);
        a.p = pieces_of(dz->rows, a.C, a.wide);
        launch(c, &expert_sum_clear, grid_of_pieces(&a.p), &a);
    }
    uint32_t threads = threads_for(a.rows * a.k * GPU_WARP, EXPERT_SUM_THREADS);
    launch(c, &expert_sum_bwd,
           (gpu_grid){blocks_for(a.rows * a.k, threads / GPU_WARP), 1, 1, threads, 0}, &a);
}

static void sum_workspace(const op_infer *io, int64_t ws[3]) {
    (void)io;
    ws[1] = (int64_t)sizeof(int32_t);
}

const op_impl CUDA_IMPL(EXPERT_SUM) = {sum_fwd, sum_bwd, NULL, sum_workspace};
#endif
