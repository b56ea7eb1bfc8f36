/* LINEAR: y = x w^T + bias + res; dx = dy w; dw = dy^T x; dbias = column sums of dy.
 *
 * The products are cuBLASLt's (product.h): 2 N I O FLOPs each; bias and residual are added to the
 * sums before they are rounded. cuBLASLt wants a bias in y's format, so in programs of 16 bits it is
 * rounded first, as PyTorch's autocast does: 6 bytes a column. The gradient of the bias reads dy once.
 */
#include "op/cuda/column_sums.h"

typedef struct linear_args {
    const float *bias;
    void *staged; /* [cols] in y's format */
    mat res, y;   /* y is f32 */
    int64_t rows, cols;
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

/* y = res, which has another format: then the product is added to y. */
KERNEL(linear_widen, linear_args, LINEAR_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x();
    if (i >= a->rows * a->cols) return;
    int64_t n = i / a->cols, c = i % a->cols;
    f32_row_of(a->y, n)[c] = load(row_of(a->res, n)[c]);
}

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

static void linear_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1], *res = &c->in[3], *y = &c->out[0];
    cuda_product p = {.m = x->rows, .n = w->rows, .k = x->cols, .a = x->data, .lda = x->ld};
    p.b = w->data, p.ldb = w->ld, p.b_trans = true, p.ab_dt = x->dt;
    p.c = y->data, p.ldc = y->ld, p.c_dt = y->dt;
    p.bias = staged_bias(c, c->ws);
    p.add = res->data, p.ld_add = res->ld;
    if (res->data && res->dt != y->dt) {
        linear_args a = {.res = mat_of(res), .y = mat_of(y), .rows = y->rows, .cols = y->cols};
        launch(c, &linear_widen, grid_of(a.rows * a.cols), &a);
        p.add = y->data, p.ld_add = y->ld;
    }
    cuda_product_run(c->run->dev, &p, (char *)c->ws + stage_bytes(y->cols));
}

static void linear_bwd_input(const op_call *c) {
    const tensor *dy = &c->dout[0], *w = &c->in[1], *dx = &c->din[0];
    if (!dx->data) return;
    cuda_product p = {.m = dy->rows, .n = w->cols, .k = w->rows, .a = dy->data, .lda = dy->ld};
    p.b = w->data, p.ldb = w->ld, p.ab_dt = dy->dt;
    p.c = dx->data, p.ldc = dx->ld, p.c_dt = dx->dt;
    if (op_accumulates(c, 0)) p.add = dx->data, p.ld_add = dx->ld;
    cuda_product_run(c->run->dev, &p, c->ws);
}

static void linear_bwd_weight(const op_call *c) {
    const tensor *dy = &c->dout[0], *x = &c->in[0], *dw = &c->din[1], *db = &c->din[2];
    if (db->data)
        column_sums(c, dy, db, op_accumulates(c, 2), c->ws);
    if (!dw->data) return;
    cuda_product p = {.m = dy->cols, .n = x->cols, .k = dy->rows, .a = dy->data, .lda = dy->ld};
    p.a_trans = true, p.b = x->data, p.ldb = x->ld, p.ab_dt = dy->dt;
    p.c = dw->data, p.ldc = dw->ld, p.c_dt = DT_F32;
    if (op_accumulates(c, 1)) p.add = dw->data, p.ld_add = dw->ld;
    cuda_product_run(c->run->dev, &p, c->ws);
}

static void linear_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t n = io->in[0].rows, k = io->in[0].cols, o = io->in[1].rows;
    ws[0] = stage_bytes(o) + cuda_product_ws_bytes(n, o);
    ws[1] = cuda_product_ws_bytes(n, k);
    ws[2] = cuda_product_ws_bytes(o, k);
    int64_t sums = io->in[2].rows ? column_sums_bytes(n, o) : 0;
    if (ws[2] < sums) ws[2] = sums;
}

const op_impl CUDA_IMPL(LINEAR) = {linear_fwd, linear_bwd_input, linear_bwd_weight,
                                   linear_workspace};
#endif
