/* What latent attention has beside attention: LATENT_KV and HEADWISE.
 *
 *   LATENT_KV  y = k | v; k[n,h] = kv[n,h,:D] | rope[n], v[n,h] = kv[n,h,D:]
 *              dkv[n,h] = dk[n,h,:D] | dv[n,h]; drope[n] = sum_h dk[n,h,D:]
 *   HEADWISE   y[n,h] = x[n,h] w_h^T, or x[n,h] w_h where w is turned, then the tail of x[n,h] or zeros
 *
 * LATENT_KV: a thread for each piece of a result; each number of y and of its gradient is read once and written once,
 * H FLOPs for each number of drope. HEADWISE: 2 FLOPs for each number of w_h and row of x, and w, in whatever format,
 * is read once for 4 rows, where it lies: a warp makes one column of these, or, where w is turned, a thread eight.
 * Sums are in one order, whatever N. */
#include "op/cuda/pieces.h"
#include "op/cuda/weight.h"

typedef struct latent_args {
    mat kv, rope, y; /* or their gradients */
    pieces p;
    int32_t H, D, Dv, R, add;
} latent_args;

/* The column of y that has column c of kv. */
GPU_FN int32_t column_of_y(const latent_args *a, int32_t c) {
    int32_t h = c / (a->D + a->Dv), i = c % (a->D + a->Dv);
    return i < a->D ? h * (a->D + a->R) + i : a->H * (a->D + a->R) + h * a->Dv + i - a->D;
}

KERNEL(latent_fwd, latent_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    const STORE *from;
    int32_t keys = a->H * (a->D + a->R), h = c / (a->D + a->R), i = c % (a->D + a->R);
    if (c >= keys)
        from = row_of(a->kv, n) + (c - keys) / a->Dv * (a->D + a->Dv) + a->D + (c - keys) % a->Dv;
    else
        from = i < a->D ? row_of(a->kv, n) + h * (a->D + a->Dv) + i : row_of(a->rope, n) + i - a->D;
    piece_load(v, from, a->p.wide);
    piece_store(row_of(a->y, n) + c, v, a->p.wide);
}

KERNEL(latent_bwd_kv, latent_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load(v, row_of(a->y, n) + column_of_y(a, c), a->p.wide);
    piece_put(row_of(a->kv, n) + c, v, a->p.wide, a->add);
}

KERNEL(latent_bwd_rope, latent_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC], sum[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    for (int k = 0; k < VEC; k++) sum[k] = 0;
    for (int32_t h = 0; h < a->H; h++) {
        piece_load(v, row_of(a->y, n) + h * (a->D + a->R) + a->D + c, a->p.wide);
        for (int k = 0; k < VEC; k++) sum[k] += v[k];
    }
    piece_put(row_of(a->rope, n) + c, sum, a->p.wide, a->add);
}

/* ---- products of heads ---- */

typedef struct headwise_args {
    mat x, y;
    const char *w;
    int64_t w_row_bytes, rows;
    int32_t H, in, out, tail, step, first, zero;
    int32_t dt, wide, w_wide; /* wide: every head of x begins at a multiple of 16 bytes */
} headwise_args;

enum { HEAD_ROWS = 4, HEAD_WARPS = 4 };

GPU_FN const STORE *x_of(const headwise_args *a, int64_t n, int32_t h) {
    return row_of(a->x, n) + h * (a->in + a->tail);
}
GPU_FN STORE *y_of(const headwise_args *a, int64_t n, int32_t h) {
    return row_of(a->y, n) + h * (a->out + a->tail);
}
GPU_FN const char *w_of(const headwise_args *a, int32_t h, int32_t row) {
    return a->w + ((int64_t)h * a->step + a->first + row) * a->w_row_bytes;
}

/* The block's rows [n0, n0 + rows) and head; of the first block across also the tails. */
typedef struct head_place {
    int64_t n0;
    int32_t rows, h;
} head_place;

GPU_FN head_place head_of_block(const headwise_args *a) {
    head_place at;
    at.n0 = (int64_t)(block_x() / (uint32_t)a->H) * HEAD_ROWS;
    at.h = (int32_t)(block_x() % (uint32_t)a->H);
    at.rows = a->rows - at.n0 < HEAD_ROWS ? (int32_t)(a->rows - at.n0) : HEAD_ROWS;
    for (int32_t i = (int32_t)thread_x(); i < at.rows * a->tail && block_y() == 0;
         i += (int32_t)threads_x()) {
        int64_t n = at.n0 + i / a->tail;
        int32_t c = i % a->tail;
        y_of(a, n, at.h)[a->out + c] = a->zero ? store(0) : x_of(a, n, at.h)[a->in + c];
    }
    return at;
}

KERNEL(headwise, headwise_args, HEAD_WARPS *GPU_WARP) {
    head_place at = head_of_block(a);
    int32_t o = (int32_t)block_y() * HEAD_WARPS + (int32_t)warp();
    float sum[HEAD_ROWS], w[STORED_STEP], x[STORED_STEP];
    if (o >= a->out) return;
    for (int r = 0; r < HEAD_ROWS; r++) sum[r] = 0;
    for (int32_t i = (int32_t)lane() * STORED_STEP; i < a->in; i += GPU_WARP * STORED_STEP) {
        weight_read8(w_of(a, at.h, o), a->dt, i, a->in, a->w_wide, w);
        for (int r = 0; r < HEAD_ROWS; r++) {
            if (r >= at.rows) break;
            read8(x_of(a, at.n0 + r, at.h), i, a->in, a->wide, x);
            for (int j = 0; j < STORED_STEP; j++) sum[r] += x[j] * w[j];
        }
    }
    for (int r = 0; r < HEAD_ROWS && r < at.rows; r++) {
        float v = warp_sum(sum[r]);
        if (lane() == 0) y_of(a, at.n0 + r, at.h)[o] = store(v);
    }
}

KERNEL(headwise_turned, headwise_args, HEAD_WARPS *GPU_WARP) {
    head_place at = head_of_block(a);
    int32_t o = (int32_t)(block_y() * threads_x() + thread_x()) * STORED_STEP;
    float sum[HEAD_ROWS][STORED_STEP], w[STORED_STEP];
    if (o >= a->out) return;
    for (int i = 0; i < HEAD_ROWS * STORED_STEP; i++) sum[i / STORED_STEP][i % STORED_STEP] = 0;
    for (int32_t i = 0; i < a->in; i++) {
        weight_read8(w_of(a, at.h, i), a->dt, o, a->out, a->w_wide, w);
        for (int r = 0; r < HEAD_ROWS; r++) {
            if (r >= at.rows) break;
            float x = load(x_of(a, at.n0 + r, at.h)[i]);
            for (int j = 0; j < STORED_STEP; j++) sum[r][j] += x * w[j];
        }
    }
    for (int r = 0; r < HEAD_ROWS && r < at.rows; r++)
        for (int j = 0; j < STORED_STEP; j++)
            if (o + j < a->out) y_of(a, at.n0 + r, at.h)[o + j] = store(sum[r][j]);
}

#ifndef __CUDACC__

static latent_args latent_open(const op_call *c, const tensor *y) {
    const op_heads *at = &c->attr->heads;
    latent_args a = {.H = at->heads, .D = at->D, .Dv = at->Dv, .y = mat_of(y)};
    a.R = (int32_t)(y->cols / at->heads) - at->D - at->Dv;
    return a;
}

/* Whether no piece of 16 bytes lies in two parts of a row. */
static bool parts_are_wide(const latent_args *a, const tensor *x, const tensor *y) {
    return is_wide(x) && is_wide(y) && a->D % VEC == 0 && a->Dv % VEC == 0 && a->R % VEC == 0;
}

static void latent_forward(const op_call *c) {
    const tensor *y = &c->out[0];
    latent_args a = latent_open(c, y);
    a.kv = mat_of(&c->in[0]), a.rope = mat_of(&c->in[1]);
    a.p = pieces_of(y->rows, y->cols, parts_are_wide(&a, &c->in[0], y) && is_wide(&c->in[1]));
    launch(c, &latent_fwd, grid_of_pieces(&a.p), &a);
}

static void latent_backward(const op_call *c) {
    const tensor *dy = &c->dout[0];
    latent_args a = latent_open(c, dy);
    a.kv = mat_of(&c->din[0]), a.rope = mat_of(&c->din[1]);
    if (a.kv.p) {
        a.add = op_accumulates(c, 0);
        a.p = pieces_of(dy->rows, (int64_t)a.H * (a.D + a.Dv), parts_are_wide(&a, &c->din[0], dy));
        launch(c, &latent_bwd_kv, grid_of_pieces(&a.p), &a);
    }
    if (!a.rope.p) return;
    a.add = op_accumulates(c, 1);
    a.p = pieces_of(dy->rows, a.R, parts_are_wide(&a, &c->din[1], dy));
    launch(c, &latent_bwd_rope, grid_of_pieces(&a.p), &a);
}

const op_impl CUDA_IMPL(LATENT_KV) = {latent_forward, latent_backward, NULL, NULL};

static void headwise_fwd(const op_call *c) {
    const op_heads *at = &c->attr->heads;
    const tensor *x = &c->in[0], *w = &c->in[1];
    headwise_args a = {.x = mat_of(x), .y = mat_of(&c->out[0]), .w = w->data, .rows = x->rows};
    a.w_row_bytes = dtype_span_bytes(w->dt, w->ld), a.H = at->heads, a.in = at->in, a.out = at->out;
    a.tail = at->tail, a.step = at->step, a.first = at->first, a.zero = at->zero;
    a.dt = w->dt == x->dt ? WEIGHT_OWN : (int32_t)w->dt;
    a.wide = is_wide(x) && (at->in + at->tail) % VEC == 0;
    a.w_wide = a.dt == WEIGHT_OWN && is_wide(w);
    gpu_grid g = {blocks_for(a.rows, HEAD_ROWS) * (uint32_t)a.H, 1, 1, HEAD_WARPS * GPU_WARP, 0};
    if (at->turned) g.threads = threads_for(blocks_for(a.out, STORED_STEP), g.threads);
    g.y = blocks_for(a.out, at->turned ? (int64_t)g.threads * STORED_STEP : HEAD_WARPS);
    launch(c, at->turned ? &headwise_turned : &headwise, g, &a);
}

const op_impl CUDA_IMPL(HEADWISE) = {headwise_fwd, NULL, NULL, NULL};
#endif
