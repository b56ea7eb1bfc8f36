/* LINEAR: y = x w^T + bias + res; dx = dy w; dw = dy^T x; dbias = column sums of dy.
 *
 * The products are cuBLASLt's (product.h): 2 N I O FLOPs each; bias and residual are added to the
 * sums before they are rounded. cuBLASLt wants a bias in y's format, so in programs of 16 bits it is
 * rounded first, as PyTorch's autocast does: 6 bytes a column. The gradient of the bias reads dy once.
 *
 * LINEAR_DGELU: dx = (dy w) gelu'(x), by cuBLASLt's epilogue: beside the product it reads x once. It takes no fp32 and
 * no odd rows; there ACT's kernel follows the product, and reads dx and x and writes dx.
 *
 * Weights as files store them, in programs of f32: for a few rows of x, as in decoding, a warp makes
 * one column of y from the blocks where they lie, each of which is read once for up to 4 rows; for
 * more rows w becomes float, so many rows at a time, for the product.
 *
 * With attr.by_row no product is cuBLASLt's, whose sums depend on the number of rows: a warp makes one
 * column of four rows of y, in one order of sums. It reads w once for four rows, which is slow where there are
 * many. */
#include "op/cuda/column_sums.h"
#include "op/cuda/stored.h"

typedef struct linear_args {
    const float *bias;
    void *staged; /* [cols] in y's format */
    int64_t cols;
    int32_t y_f32;
} linear_args;

enum { LINEAR_THREADS = 256 };

KERNEL(linear_stage, linear_args, LINEAR_THREADS) {
    int64_t c = (int64_t)block_x() * threads_x() + thread_x();
    if (c >= a->cols) return;
    if (a->y_f32)
        ((float *)a->staged)[c] = a->bias[c];
    else
        ((STORE *)a->staged)[c] = store(a->bias[c]);
}

/* ---- by row ---- */

typedef struct by_row_args {
    mat x, w, y, res;
    const float *bias;
    int64_t rows, cols, outs;
    int32_t y_f32;
} by_row_args;

enum { BY_ROW_ROWS = 4, BY_ROW_WARPS = 4 };

/* A warp: column o of y, 4 rows from 4 block_y() on. */
KERNEL(linear_by_row, by_row_args, BY_ROW_WARPS *GPU_WARP) {
    int64_t o = (int64_t)block_x() * BY_ROW_WARPS + warp(), n0 = (int64_t)block_y() * BY_ROW_ROWS;
    if (o >= a->outs) return;
    float sum[BY_ROW_ROWS];
    for (int r = 0; r < BY_ROW_ROWS; r++) sum[r] = 0;
    for (int64_t i = lane(); i < a->cols; i += GPU_WARP) {
        float w = load(row_of(a->w, o)[i]);
        for (int r = 0; r < BY_ROW_ROWS; r++)
            if (n0 + r < a->rows) sum[r] += load(row_of(a->x, n0 + r)[i]) * w;
    }
    for (int r = 0; r < BY_ROW_ROWS && n0 + r < a->rows; r++) {
        float v = warp_sum(sum[r]);
        if (lane() != 0) continue;
        if (a->bias) v += a->bias[o];
        if (a->res.p) v += load(row_of(a->res, n0 + r)[o]);
        if (a->y_f32)
            f32_row_of(a->y, n0 + r)[o] = v;
        else
            row_of(a->y, n0 + r)[o] = store(v);
    }
}

#if defined(CUDA_STORE_F32)
/* ---- weights in other formats ---- */

typedef struct stored_args {
    const uint8_t *w;
    int64_t w_row_bytes;
    mat x, y, res;
    const float *bias;
    float *wide; /* [outs, cols] */
    int64_t rows, cols, outs;
    int32_t dt, x_wide;
} stored_args;

enum { STORED_ROWS = 4, STORED_WARPS = 4 };

/* x[n, i] to x[n, i + 8), 0 behind the last. */
GPU_FN void x_read8(const stored_args *a, int64_t n, int64_t i, float out[STORED_STEP]) {
    const float *x = f32_row_of(a->x, n) + i;
    if (a->x_wide) {
        load4(out, x);
        load4(out + 4, x + 4);
    } else {
        for (int j = 0; j < STORED_STEP; j++) out[j] = i + j < a->cols ? x[j] : 0.0f;
    }
}

/* A warp: column o of y, 4 rows from 4 block_y() on. */
KERNEL(stored_gemv, stored_args, STORED_WARPS *GPU_WARP) {
    int64_t o = (int64_t)block_x() * STORED_WARPS + warp(), n0 = (int64_t)block_y() * STORED_ROWS;
    if (o >= a->outs) return;
    const uint8_t *row = a->w + o * a->w_row_bytes;
    float sum[STORED_ROWS], w[STORED_STEP], x[STORED_STEP];
    for (int r = 0; r < STORED_ROWS; r++) sum[r] = 0;
    for (int64_t i = (int64_t)lane() * STORED_STEP; i < a->cols; i += GPU_WARP * STORED_STEP) {
        stored_read8(a->dt, row, a->cols, i, w);
        for (int r = 0; r < STORED_ROWS; r++) {
            if (n0 + r >= a->rows) break;
            x_read8(a, n0 + r, i, x);
            for (int j = 0; j < STORED_STEP; j++) sum[r] += x[j] * w[j];
        }
    }
    for (int r = 0; r < STORED_ROWS; r++) {
        if (n0 + r >= a->rows) break;
        float v = warp_sum(sum[r]);
        if (lane() != 0) continue;
        if (a->bias) v += a->bias[o];
        if (a->res.p) v += f32_row_of(a->res, n0 + r)[o];
        f32_row_of(a->y, n0 + r)[o] = v;
    }
}

/* A thread widens 8 elements of row block_y() + 65535 times block_z(). */
KERNEL(stored_widen, stored_args, LINEAR_THREADS) {
    int64_t o = (int64_t)block_z() * GPU_MOST_GRID_YZ + block_y();
    int64_t i = ((int64_t)block_x() * threads_x() + thread_x()) * STORED_STEP;
    if (o >= a->outs || i >= a->cols) return;
    float w[STORED_STEP];
    stored_read8(a->dt, a->w + o * a->w_row_bytes, a->cols, i, w);
    for (int j = 0; j < STORED_STEP; j++)
        if (i + j < a->cols) a->wide[o * a->cols + i + j] = w[j];
}
#endif

#ifndef __CUDACC__
#include "op/cuda/product.h"

static gpu_grid grid_of(int64_t n) {
    uint32_t threads = n <= GPU_WARP ? GPU_WARP : LINEAR_THREADS;
    return (gpu_grid){blocks_for(n, threads), 1, 1, threads, 0};
}

static int64_t stage_bytes(int64_t cols) {
    return (cols * (int64_t)sizeof(float) + 255) / 256 * 256;
}

/* The bias as cuBLASLt takes it: in y's format, at an address that is a multiple of 16. */
static const void *staged_bias(const op_call *c, void *room) {
    const tensor *bias = &c->in[2], *y = &c->out[0];
    if (!bias->data || (y->dt == DT_F32 && (uintptr_t)bias->data % 16 == 0)) return bias->data;
    linear_args a = {.bias = bias->data, .staged = room, .cols = y->cols, .y_f32 = y->dt == DT_F32};
    launch(c, &linear_stage, grid_of(a.cols), &a);
    return room;
}

#if defined(CUDA_STORE_F32)
/* Rows for which blocks are read where they lie; and what w may take as float at a time, so that it
 * is still in the L2 cache when the product comes. */
enum { STORED_MOST_ROWS = 2 * STORED_ROWS, STORED_TILE_BYTES = 16 << 20, STORED_TILE_LEAST = 64 };

/* Rows of w that are made float at a time. */
static int64_t stored_tile(int64_t outs, int64_t cols) {
    int64_t rows = STORED_TILE_BYTES / (cols * (int64_t)sizeof(float));
    rows =
        rows < STORED_TILE_LEAST ? STORED_TILE_LEAST : rows / STORED_TILE_LEAST * STORED_TILE_LEAST;
    return rows < outs ? rows : outs;
}

static int64_t tile_bytes(int64_t outs, int64_t cols) {
    return (stored_tile(outs, cols) * cols * (int64_t)sizeof(float) + 255) / 256 * 256;
}

/* A product with rows [o, o + a->outs) of w, which have become floats. */
static void multiply_tile(const op_call *c, const stored_args *a, const float *bias, int64_t o) {
    const tensor *x = &c->in[0], *res = &c->in[3], *y = &c->out[0];
    cuda_product p = {.m = x->rows, .n = a->outs, .k = x->cols, .a = x->data, .lda = x->ld};
    p.b = a->wide, p.ldb = x->cols, p.b_trans = true, p.ab_dt = DT_F32;
    p.c = (float *)y->data + o, p.ldc = y->ld, p.c_dt = DT_F32;
    if (bias) p.bias = bias + o;
    if (res->data) p.add = (const float *)res->data + o, p.ld_add = res->ld;
    cuda_product_run(c->run, &p, (char *)a->wide + tile_bytes(y->cols, x->cols));
}

/* Rows [o, o + a->outs) of w become floats. */
static void widen_tile(const op_call *c, stored_args *a, int64_t o) {
    const tensor *w = &c->in[1];
    a->w = (const uint8_t *)w->data + o * a->w_row_bytes;
    uint32_t threads = a->cols <= GPU_WARP * STORED_STEP ? GPU_WARP : LINEAR_THREADS;
    uint32_t y_blocks = (uint32_t)(a->outs < GPU_MOST_GRID_YZ ? a->outs : GPU_MOST_GRID_YZ);
    gpu_grid g = {blocks_for(a->cols, (int64_t)threads * STORED_STEP), y_blocks,
                  blocks_for(a->outs, GPU_MOST_GRID_YZ), threads, 0};
    launch(c, &stored_widen, g, a);
}

/* dx (+)= dy w, a tile of rows of w after the other. */
static void linear_stored_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0], *w = &c->in[1], *dx = &c->din[0];
    stored_args a = {.w_row_bytes = dtype_span_bytes(w->dt, w->ld), .wide = c->ws};
    a.cols = w->cols, a.dt = (int32_t)w->dt;
    for (int64_t o = 0, n = stored_tile(w->rows, w->cols); o < w->rows; o += n) {
        a.outs = w->rows - o < n ? w->rows - o : n;
        widen_tile(c, &a, o);
        cuda_product p = {.m = dy->rows, .n = w->cols, .k = a.outs, .lda = dy->ld};
        p.a = (const float *)dy->data + o, p.b = a.wide, p.ldb = w->cols, p.ab_dt = DT_F32;
        p.c = dx->data, p.ldc = dx->ld, p.c_dt = DT_F32;
        if (o > 0 || op_accumulates(c, 0)) p.add = dx->data, p.ld_add = dx->ld;
        cuda_product_run(c->run, &p, (char *)a.wide + tile_bytes(w->rows, w->cols));
    }
}

static void linear_stored(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    stored_args a = {.w = w->data, .w_row_bytes = dtype_span_bytes(w->dt, w->ld), .x = mat_of(x)};
    a.y = mat_of(y), a.res = mat_of(&c->in[3]), a.bias = c->in[2].data;
    a.rows = x->rows, a.cols = x->cols, a.outs = w->rows, a.dt = (int32_t)w->dt;
    a.x_wide = is_wide(x) && x->cols % STORED_STEP == 0;
    if (x->rows <= STORED_MOST_ROWS || c->attr->linear.by_row) {
        launch(c, &stored_gemv,
               (gpu_grid){blocks_for(a.outs, STORED_WARPS), blocks_for(a.rows, STORED_ROWS), 1,
                          STORED_WARPS * GPU_WARP, 0},
               &a);
        return;
    }
    const float *bias = staged_bias(c, c->ws);
    a.wide = (float *)((char *)c->ws + stage_bytes(y->cols));
    for (int64_t o = 0, n = stored_tile(w->rows, x->cols); o < w->rows; o += n) {
        a.outs = w->rows - o < n ? w->rows - o : n;
        widen_tile(c, &a, o);
        multiply_tile(c, &a, bias, o);
    }
}

static int64_t stored_ws(int64_t rows, int64_t outs, int64_t cols) {
    if (rows <= STORED_MOST_ROWS) return 0;
    return stage_bytes(outs) + tile_bytes(outs, cols) +
           cuda_product_ws_bytes(rows, stored_tile(outs, cols));
}
#endif

static void product_by_row(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    by_row_args a = {.x = mat_of(x), .w = mat_of(w), .y = mat_of(y), .res = mat_of(&c->in[3])};
    a.bias = c->in[2].data, a.y_f32 = y->dt == DT_F32;
    a.rows = x->rows, a.cols = x->cols, a.outs = w->rows;
    gpu_grid g = {blocks_for(a.outs, BY_ROW_WARPS), blocks_for(a.rows, BY_ROW_ROWS), 1,
                  BY_ROW_WARPS * GPU_WARP, 0};
    launch(c, &linear_by_row, g, &a);
}

static void linear_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1], *res = &c->in[3], *y = &c->out[0];
#if defined(CUDA_STORE_F32)
    if (w->dt != x->dt) {
        linear_stored(c);
        return;
    }
#endif
    if (c->attr->linear.by_row) {
        product_by_row(c);
        return;
    }
    cuda_product p = {.m = x->rows, .n = w->rows, .k = x->cols, .a = x->data, .lda = x->ld};
    p.b = w->data, p.ldb = w->ld, p.b_trans = true, p.ab_dt = x->dt;
    p.c = y->data, p.ldc = y->ld, p.c_dt = y->dt;
    p.bias = staged_bias(c, c->ws);
    p.add = res->data, p.ld_add = res->ld;
    cuda_product_run(c->run, &p, (char *)c->ws + stage_bytes(y->cols));
}

static void linear_bwd_input(const op_call *c) {
    const tensor *dy = &c->dout[0], *w = &c->in[1], *dx = &c->din[0];
    if (!dx->data) return;
#if defined(CUDA_STORE_F32)
    if (w->dt != dy->dt) {
        linear_stored_bwd(c);
        return;
    }
#endif
    cuda_product p = {.m = dy->rows, .n = w->cols, .k = w->rows, .a = dy->data, .lda = dy->ld};
    p.b = w->data, p.ldb = w->ld, p.ab_dt = dy->dt;
    p.c = dx->data, p.ldc = dx->ld, p.c_dt = dx->dt;
    if (op_accumulates(c, 0)) p.add = dx->data, p.ld_add = dx->ld;
    cuda_product_run(c->run, &p, c->ws);
}

extern const op_impl CUDA_IMPL(ACT);

static void linear_dgelu(const op_call *c) {
    static const op_attr gelu = {.act = {.kind = ACT_GELU_TANH}};
    const tensor *dy = &c->in[0], *w = &c->in[1], *x = &c->in[2], *dx = &c->out[0];
    cuda_product p = {.m = dy->rows, .n = w->cols, .k = w->rows, .a = dy->data, .lda = dy->ld};
    p.b = w->data, p.ldb = w->ld, p.ab_dt = dy->dt;
    p.c = dx->data, p.ldc = dx->ld, p.c_dt = dx->dt;
    p.slope_at = x->data, p.ld_slope = x->ld;
    bool joined = cuda_product_has_slope(c->run->dev, &p);
    if (!joined) p.slope_at = NULL;
    cuda_product_run(c->run, &p, c->ws);
    if (joined) return;
    op_call act = {.kind = OP_ACT, .attr = &gelu, .run = c->run};
    act.in[0] = *x, act.dout[0] = act.din[0] = *dx;
    CUDA_IMPL(ACT).bwd_input(&act);
}

static void linear_dgelu_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = cuda_product_ws_bytes(io->in[0].rows, io->in[1].cols);
}

static void linear_bwd_weight(const op_call *c) {
    const tensor *dy = &c->dout[0], *x = &c->in[0], *dw = &c->din[1], *db = &c->din[2];
    if (db->data) column_sums(c, dy, db, op_accumulates(c, 2), c->ws);
    if (!dw->data) return;
    cuda_product p = {.m = dy->cols, .n = x->cols, .k = dy->rows, .a = dy->data, .lda = dy->ld};
    p.a_trans = true, p.b = x->data, p.ldb = x->ld, p.ab_dt = dy->dt;
    p.c = dw->data, p.ldc = dw->ld, p.c_dt = DT_F32;
    if (op_accumulates(c, 1)) p.add = dw->data, p.ld_add = dw->ld;
    cuda_product_run(c->run, &p, c->ws);
}

static void linear_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t n = io->in[0].rows, k = io->in[0].cols, o = io->in[1].rows;
    ws[0] = stage_bytes(o) + cuda_product_ws_bytes(n, o);
#if defined(CUDA_STORE_F32)
    if (io->in[1].dt != DT_F32) ws[0] = stored_ws(n, o, k);
#endif
    ws[1] = cuda_product_ws_bytes(n, k);
#if defined(CUDA_STORE_F32)
    if (io->in[1].dt != DT_F32) ws[1] += tile_bytes(o, k);
#endif
    ws[2] = cuda_product_ws_bytes(o, k);
    int64_t sums = io->in[2].rows ? column_sums_bytes(n, o) : 0;
    if (ws[2] < sums) ws[2] = sums;
}

const op_impl CUDA_IMPL(LINEAR) = {linear_fwd, linear_bwd_input, linear_bwd_weight,
                                   linear_workspace};
const op_impl CUDA_IMPL(LINEAR_DGELU) = {linear_dgelu, NULL, NULL, linear_dgelu_workspace};
#endif
