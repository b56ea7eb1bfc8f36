/* LINEAR: y = x w^T + bias + res through the packed product, or that by row. FLOPs 2 N I O in each of
 * its three phases. */
#include "op/cpu/column_sums.h"
#include "op/cpu/parts.h"
#include "op/cpu/ops.h"

/* Weights in blocks are always multiplied by row, which is the fastest way, and f16, bf16, fp8 and NF4 in programs of f32 for
 * a few rows. More of these have the sums, and so the bits, of the same weights in f32. */
static bool is_by_row(const op_attr *attr, dtype x, dtype w, int64_t rows) {
    const int64_t few = 8;
    bool blocks = dtype_is_blocks(w) && !dtype_is_listed(w);
    return attr->linear.by_row || blocks || (w != x && (rows <= few || !CPU_STORED));
}

static void linear_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1], *bias = &c->in[2], *y = &c->out[0];
    gemm_args g = {.m = x->rows, .n = w->rows, .k = x->cols, .a = x->data, .lda = x->ld};
    g.b = w->data, g.ldb = w->ld, g.b_trans = true, g.ab_dt = x->dt;
    g.c = y->data, g.ldc = y->ld, g.c_dt = y->dt, g.bias = bias->data;
    g.res = c->in[3].data, g.ldr = c->in[3].ld;
    if (w->dt != x->dt) g.b_stored = w->dt;
    if (!CPU_STORED && g.b_stored != DT_F32)
        op_find_reference(OP_LINEAR, DT_F32)->fwd(c);
    else if (is_by_row(c->attr, x->dt, w->dt, x->rows))
        CPU_FN(product_by_row)(c->run->dev, c->attr->linear.rounds, call_threads(c), &g, c->ws);
    else if (w->dt == x->dt)
        gemm_run(c->run->dev, &g, c->ws);
    else
        CPU_FN(gemm_packed)(call_threads(c), &g, c->ws);
}

static void linear_bwd_input(const op_call *c) {
    const tensor *dy = &c->dout[0], *w = &c->in[1], *dx = &c->din[0];
    if (!dx->data) return;
    gemm_args g = {.m = dy->rows, .n = w->cols, .k = w->rows, .a = dy->data, .lda = dy->ld};
    g.b = w->data, g.ldb = w->ld, g.ab_dt = dy->dt;
    g.c = dx->data, g.ldc = dx->ld, g.c_dt = dx->dt, g.accumulate = op_accumulates(c, 0);
    if (w->dt == dy->dt) {
        gemm_run(c->run->dev, &g, c->ws);
        return;
    }
#if CPU_STORED
    g.b_stored = w->dt;
    CPU_FN(gemm_packed)(call_threads(c), &g, c->ws);
#else
    op_find_reference(OP_LINEAR, DT_F32)->bwd_input(c);
#endif
}

static void linear_bwd_weight(const op_call *c) {
    const tensor *dy = &c->dout[0], *x = &c->in[0], *dw = &c->din[1];
    if (dw->data) {
        gemm_args g = {.m = dy->cols, .n = x->cols, .k = dy->rows, .a = dy->data, .lda = dy->ld};
        g.a_trans = true, g.b = x->data, g.ldb = x->ld, g.ab_dt = dy->dt;
        g.c = dw->data, g.ldc = dw->ld, g.c_dt = DT_F32, g.accumulate = op_accumulates(c, 1);
        gemm_run(c->run->dev, &g, c->ws);
    }
    if (c->din[2].data) column_sums(c, 2);
}

static void linear_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t n = io->in[0].rows, k = io->in[0].cols, o = io->in[1].rows;
    dtype dt = io->in[0].dt;
    if (is_by_row(io->attr, dt, io->in[1].dt, n)) {
        ws[0] = CPU_FN(product_by_row_ws)(io->dev, io->attr->linear.rounds, dev_threads(io->dev), n,
                                          o, k, dt, io->in[1].dt);
    } else {
        gemm_args y = gemm_args_of(GEMM_FORWARD, n, o, k, dt);
        if (io->attr->linear.exact) y.c_dt = DT_F32;
        ws[0] = gemm_ws_bytes(io->dev, &y);
    }
    gemm_args dx = gemm_args_of(GEMM_BACKWARD_INPUT, n, k, o, dt);
    gemm_args dw = gemm_args_of(GEMM_BACKWARD_WEIGHT, o, k, n, dt);
    ws[1] = gemm_ws_bytes(io->dev, &dx);
    ws[2] = gemm_ws_bytes(io->dev, &dw);
    int64_t sums = io->in[2].rows ? column_sums_bytes(n, o) : 0;
    if (ws[2] < sums) ws[2] = sums;
}

const op_impl CPU_FN(cpu_linear) = {linear_fwd, linear_bwd_input, linear_bwd_weight,
                                    linear_workspace};
