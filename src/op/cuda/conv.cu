/* What linear layers have beside the delta rule: CONV, CONV_STATE, DELTA_GATES.
 *
 *   CONV   c_t = sum_j w_j x_(t-W+1+j), y = silu(c);  dc = dy silu'(c), dx_s = sum_j w_j dc_(s+W-1-j), dw_j = sum_t dc_t x_(t-W+1+j)
 *   gates  beta = 1 / (1 + e^-b), g = -e^A_log softplus(a + dt_bias)
 *
 * A thread has one number of a row, so that rows are read in one piece; the W - 1 rows before come from the cache.
 * Forward 2 W + 4 FLOPs, a number read and one written. Backward makes dc once, in a workspace of one float for each
 * number of x: 6 W + 8 FLOPs, x and dc are read twice. Gates: 15 FLOPs forward. Sums over rows: a block takes a slice of the
 * rows and 32 columns, a second kernel adds the slices in their order. */
#include "op/cuda/store.h"

enum { CONV_THREADS = 256, CONV_WARPS = 8 };

typedef struct conv_args {
    mat x, state, state_out, y, dy, dx;
    mat start, span;       /* absent: none */
    int32_t by_row;        /* the sequences share the rows; span says which */
    const float *w;        /* [C, W] */
    float *dw, *dc, *part; /* dc [rows, C]; part [slices, C W] */
    int64_t rows;
    int32_t T, W, C, B, slices, add_x, add_w;
} conv_args;

/* The row and column of a thread. */
GPU_FN bool conv_place(const conv_args *a, int64_t *n, int32_t *i) {
    int64_t at = (int64_t)block_x() * threads_x() + thread_x();
    *n = at / a->C;
    *i = (int32_t)(at - *n * a->C);
    return *n < a->rows;
}

/* Row t of sequence b, which begins with row0 of the call. */
typedef struct conv_row {
    int64_t b, row0;
    int32_t t;
} conv_row;

/* Whose row n of the call is. False: it pads. */
GPU_FN bool conv_row_of(const conv_args *a, int64_t n, conv_row *r) {
    if (!a->by_row) {
        r->b = n / a->T, r->row0 = r->b * a->T, r->t = (int32_t)(n - r->row0);
        return !a->span.p || r->t < i32_row_of(a->span, r->b)[1];
    }
    for (r->b = 0; r->b < a->B; r->b++) {
        const int32_t *span = i32_row_of(a->span, r->b);
        r->row0 = span[2], r->t = (int32_t)(n - r->row0);
        if (r->t >= 0 && r->t < span[1]) return true;
    }
    return false;
}

/* The first row of the sequence that row t of it looks at; with a state it may lie before the rows of the call. */
GPU_FN int32_t conv_first(const conv_args *a, int64_t n, int32_t t) {
    int32_t first = t - a->W + 1, start = a->start.p ? *i32_row_of(a->start, n) : 0;
    if (a->state.p) return first;
    return first > start ? first : start > 0 ? start : 0;
}

/* x of row t of a sequence; of rows before it, that of the state. A sequence without rows keeps its state. */
GPU_FN float conv_x(const conv_args *a, const conv_row *r, int32_t t, int32_t i) {
    if (t >= 0) return load(row_of(a->x, r->row0 + t)[i]);
    const int32_t *span = i32_row_of(a->span, r->b);
    bool kept = span[0] > 0 || span[1] == 0;
    return kept ? load(row_of(a->state, r->b * (a->W - 1) + t + a->W - 1)[i]) : 0;
}

GPU_FN float convolve(const conv_args *a, const conv_row *r, int64_t n, int32_t i) {
    float sum = 0;
    for (int32_t s = conv_first(a, n, r->t); s <= r->t; s++)
        sum += a->w[i * a->W + s - r->t + a->W - 1] * conv_x(a, r, s, i);
    return sum;
}

KERNEL(conv_forward, conv_args, CONV_THREADS) {
    int64_t n;
    int32_t i;
    conv_row r;
    if (!conv_place(a, &n, &i)) return;
    float c = conv_row_of(a, n, &r) ? convolve(a, &r, n, i) : 0;
    row_of(a->y, n)[i] = store(c / (1 + expf(-c)));
}

/* Row s of the new state is not before row s of the old one, so it may take its place. */
KERNEL(conv_keep, conv_args, CONV_THREADS) {
    conv_row r;
    int32_t i;
    if (!conv_place(a, &r.b, &i)) return;
    const int32_t *span = i32_row_of(a->span, r.b);
    r.row0 = a->by_row ? span[2] : r.b * a->T;
    for (int32_t s = 0; s < a->W - 1; s++) {
        float x = conv_x(a, &r, span[1] - a->W + 1 + s, i);
        row_of(a->state_out, r.b * (a->W - 1) + s)[i] = store(x);
    }
}

KERNEL(conv_slopes, conv_args, CONV_THREADS) {
    int64_t n;
    int32_t i;
    conv_row r;
    if (!conv_place(a, &n, &i) || !conv_row_of(a, n, &r)) return;
    float c = convolve(a, &r, n, i), s = 1 / (1 + expf(-c));
    a->dc[n * a->C + i] = load(row_of(a->dy, n)[i]) * s * (1 + c * (1 - s));
}

KERNEL(conv_dx, conv_args, CONV_THREADS) {
    int64_t n;
    int32_t i;
    if (!conv_place(a, &n, &i)) return;
    int32_t s = (int32_t)(n % a->T);
    float dx = 0;
    for (int32_t j = 0; j < a->W && s + j < a->T; j++)
        if (conv_first(a, n + j, s + j) <= s)
            dx += a->w[i * a->W + a->W - 1 - j] * a->dc[(n + j) * a->C + i];
    put(row_of(a->dx, n) + i, dx, a->add_x);
}

/* Tap block_z() of 32 columns, of a slice of the rows. */
KERNEL(conv_dw, conv_args, CONV_WARPS *GPU_WARP) {
    SHARED(float, room, CONV_WARPS *GPU_WARP);
    int32_t i = (int32_t)(block_x() * GPU_WARP + lane()), back = a->W - 1 - (int32_t)block_z();
    int64_t first = a->rows * block_y() / a->slices, end = a->rows * (block_y() + 1) / a->slices;
    float sum = 0;
    for (int64_t n = first + warp(); n < end && i < a->C; n += threads_x() / GPU_WARP) {
        int32_t t = (int32_t)(n % a->T);
        if (conv_first(a, n, t) <= t - back)
            sum += a->dc[n * a->C + i] * load(row_of(a->x, n - back)[i]);
    }
    room[thread_x()] = sum;
    sync_block();
    if (warp() != 0 || i >= a->C) return;
    for (uint32_t w = 1; w < threads_x() / GPU_WARP; w++) sum += room[w * GPU_WARP + lane()];
    a->part[((int64_t)block_y() * a->C + i) * a->W + block_z()] = sum;
}

KERNEL(conv_join, conv_args, CONV_THREADS) {
    int32_t i = (int32_t)(block_x() * threads_x() + thread_x());
    if (i >= a->C * a->W) return;
    float sum = 0;
    for (int32_t s = 0; s < a->slices; s++) sum += a->part[(int64_t)s * a->C * a->W + i];
    put_f32(a->dw + i, sum, a->add_w);
}

/* ---- gates ---- */

typedef struct gates_args {
    mat ba, gates, dgates, dba;
    const float *A_log, *dt_bias;
    float *d_log, *d_bias, *part; /* part [2, slices, H] */
    int64_t rows;
    int32_t H, slices, add_ba, add_log, add_bias;
} gates_args;

GPU_FN float softplus(float x) {
    return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
}

GPU_FN bool gates_place(const gates_args *a, int64_t *n, int32_t *h) {
    int64_t at = (int64_t)block_x() * threads_x() + thread_x();
    *n = at / a->H;
    *h = (int32_t)(at - *n * a->H);
    return *n < a->rows;
}

KERNEL(gates_forward, gates_args, CONV_THREADS) {
    int64_t n;
    int32_t h;
    if (!gates_place(a, &n, &h)) return;
    const STORE *ba = row_of(a->ba, n);
    float *to = f32_row_of(a->gates, n);
    to[h] = 1 / (1 + expf(-load(ba[h])));
    to[a->H + h] = -expf(a->A_log[h]) * softplus(load(ba[a->H + h]) + a->dt_bias[h]);
}

/* da of a row and head; its x is a + dt_bias. */
GPU_FN float gate_slope(const gates_args *a, int64_t n, int32_t h, float *x) {
    *x = load(row_of(a->ba, n)[a->H + h]) + a->dt_bias[h];
    return -f32_row_of(a->dgates, n)[a->H + h] * expf(a->A_log[h]) / (1 + expf(-*x));
}

KERNEL(gates_dba, gates_args, CONV_THREADS) {
    int64_t n;
    int32_t h;
    float x;
    if (!gates_place(a, &n, &h)) return;
    float beta = 1 / (1 + expf(-load(row_of(a->ba, n)[h])));
    put(row_of(a->dba, n) + h, f32_row_of(a->dgates, n)[h] * beta * (1 - beta), a->add_ba);
    put(row_of(a->dba, n) + a->H + h, gate_slope(a, n, h, &x), a->add_ba);
}

KERNEL(gates_sums, gates_args, CONV_WARPS *GPU_WARP) {
    SHARED(float, room, 2 * CONV_WARPS * GPU_WARP);
    int32_t h = (int32_t)(block_x() * GPU_WARP + lane()), threads = (int32_t)threads_x();
    int64_t first = a->rows * block_y() / a->slices, end = a->rows * (block_y() + 1) / a->slices;
    float d_log = 0, d_bias = 0, x;
    for (int64_t n = first + warp(); n < end && h < a->H; n += threads / GPU_WARP) {
        d_bias += gate_slope(a, n, h, &x);
        d_log -= f32_row_of(a->dgates, n)[a->H + h] * expf(a->A_log[h]) * softplus(x);
    }
    room[thread_x()] = d_log, room[threads + (int32_t)thread_x()] = d_bias;
    sync_block();
    if (warp() != 0 || h >= a->H) return;
    for (int32_t w = GPU_WARP + (int32_t)lane(); w < threads; w += GPU_WARP)
        d_log += room[w], d_bias += room[threads + w];
    a->part[(int64_t)block_y() * a->H + h] = d_log;
    a->part[((int64_t)a->slices + block_y()) * a->H + h] = d_bias;
}

KERNEL(gates_join, gates_args, CONV_THREADS) {
    int32_t h = (int32_t)(block_x() * threads_x() + thread_x());
    float d_log = 0, d_bias = 0;
    if (h >= a->H) return;
    for (int32_t s = 0; s < a->slices; s++) {
        d_log += a->part[(int64_t)s * a->H + h];
        d_bias += a->part[((int64_t)a->slices + s) * a->H + h];
    }
    if (a->d_log) put_f32(a->d_log + h, d_log, a->add_log);
    if (a->d_bias) put_f32(a->d_bias + h, d_bias, a->add_bias);
}

#ifndef __CUDACC__
#include "op/cuda/host.h"

static gpu_grid conv_grid(int64_t numbers) {
    uint32_t threads = threads_for(numbers, CONV_THREADS);
    return (gpu_grid){blocks_for(numbers, threads), 1, 1, threads, 0};
}

static int32_t conv_slices(int64_t rows) {
    int64_t s = rows / 64;
    return (int32_t)(s < 1 ? 1 : s > 128 ? 128 : s);
}

/* A block for 32 columns and a slice of the rows. */
static gpu_grid slice_grid(int64_t cols, int64_t rows, int32_t slices) {
    uint32_t threads = threads_for(rows / slices * GPU_WARP, CONV_WARPS * GPU_WARP);
    return (gpu_grid){blocks_for(cols, GPU_WARP), (uint32_t)slices, 1, threads, 0};
}

/* first: which input x is. */
static conv_args conv_open(const op_call *c, int first) {
    const tensor *x = &c->in[first];
    conv_args a = {.x = mat_of(x), .w = c->in[first + 1].data, .rows = x->rows};
    a.C = (int32_t)x->cols, a.B = c->attr->conv.B, a.T = c->attr->conv.T, a.W = c->attr->conv.W;
    a.by_row = c->attr->conv.by_row;
    if (first == 0) a.start = mat_of(&c->in[2]);
    return a;
}

static void conv_fwd(const op_call *c) {
    conv_args a = conv_open(c, 0);
    a.y = mat_of(&c->out[0]);
    launch(c, &conv_forward, conv_grid(a.rows * a.C), &a);
}

static void conv_state_fwd(const op_call *c) {
    conv_args a = conv_open(c, 1);
    a.state = mat_of(&c->in[0]), a.state_out = mat_of(&c->out[0]);
    a.span = mat_of(&c->in[3]), a.y = mat_of(&c->out[1]);
    launch(c, &conv_forward, conv_grid(a.rows * a.C), &a);
    a.rows = a.B; /* a thread for each column of a sequence */
    launch(c, &conv_keep, conv_grid(a.rows * a.C), &a);
}

static void conv_bwd(const op_call *c) {
    conv_args a = conv_open(c, 0);
    a.dy = mat_of(&c->dout[0]), a.dx = mat_of(&c->din[0]), a.dw = c->din[1].data;
    a.add_x = op_accumulates(c, 0), a.add_w = op_accumulates(c, 1);
    a.slices = conv_slices(a.rows), a.dc = c->ws, a.part = a.dc + a.rows * a.C;
    if (!a.dx.p && !a.dw) return;
    launch(c, &conv_slopes, conv_grid(a.rows * a.C), &a);
    if (a.dx.p) launch(c, &conv_dx, conv_grid(a.rows * a.C), &a);
    if (!a.dw) return;
    gpu_grid g = slice_grid(a.C, a.rows, a.slices);
    g.z = (uint32_t)a.W;
    launch(c, &conv_dw, g, &a);
    launch(c, &conv_join, conv_grid((int64_t)a.C * a.W), &a);
}

static void conv_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t rows = io->in[0].rows, parts = conv_slices(rows) * io->attr->conv.W;
    ws[1] = (rows + parts) * io->in[0].cols * (int64_t)sizeof(float);
}

const op_impl CUDA_IMPL(CONV) = {conv_fwd, conv_bwd, NULL, conv_workspace};
const op_impl CUDA_IMPL(CONV_STATE) = {conv_state_fwd, NULL, NULL, NULL};

static gates_args gates_open(const op_call *c) {
    gates_args a = {.ba = mat_of(&c->in[0]), .A_log = c->in[1].data, .dt_bias = c->in[2].data};
    a.rows = c->in[0].rows, a.H = (int32_t)c->in[1].cols;
    return a;
}

static void gates_fwd(const op_call *c) {
    gates_args a = gates_open(c);
    a.gates = mat_of(&c->out[0]);
    launch(c, &gates_forward, conv_grid(a.rows * a.H), &a);
}

static void gates_bwd(const op_call *c) {
    gates_args a = gates_open(c);
    a.dgates = mat_of(&c->dout[0]), a.dba = mat_of(&c->din[0]);
    a.d_log = c->din[1].data, a.d_bias = c->din[2].data;
    a.add_ba = op_accumulates(c, 0), a.add_log = op_accumulates(c, 1);
    a.add_bias = op_accumulates(c, 2), a.slices = conv_slices(a.rows), a.part = c->ws;
    if (a.dba.p) launch(c, &gates_dba, conv_grid(a.rows * a.H), &a);
    if (!a.d_log && !a.d_bias) return;
    launch(c, &gates_sums, slice_grid(a.H, a.rows, a.slices), &a);
    launch(c, &gates_join, conv_grid(a.H), &a);
}

static void gates_workspace(const op_infer *io, int64_t ws[3]) {
    ws[1] = 2 * conv_slices(io->in[0].rows) * io->in[1].cols * (int64_t)sizeof(float);
}

const op_impl CUDA_IMPL(DELTA_GATES) = {gates_fwd, gates_bwd, NULL, gates_workspace};
#endif
