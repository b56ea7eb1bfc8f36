/* LINEAR: y = x w^T + bias + res through the packed product. FLOPs 2 N I O in each of its three
 * phases.
 *
 * The bias gradient sums columns of dy in fixed slices of rows, then the slices in order. */
#include "op/cpu/gemm_tile.h"
#include "op/cpu/ops.h"
#include "op/cpu/simd.h"
#include "op/cpu/stored_rows.h"

enum { BIAS_SLICE = 512 }; /* rows of dy per partial column sum */

static void linear_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1], *bias = &c->in[2], *y = &c->out[0];
    gemm_args g = {.m = x->rows, .n = w->rows, .k = x->cols, .a = x->data, .lda = x->ld};
    g.b = w->data, g.ldb = w->ld, g.b_trans = true, g.ab_dt = x->dt;
    g.c = y->data, g.ldc = y->ld, g.c_dt = y->dt, g.bias = bias->data;
    g.res = c->in[3].data, g.ldr = c->in[3].ld;
    if (w->dt == x->dt) {
        gemm_run(c->run->dev, &g, c->ws);
        return;
    }
    g.b_stored = w->dt;
    if (CPU_FN(gemv_stored_fits)(&g))
        CPU_FN(gemv_stored)(call_threads(c), &g);
    else
        CPU_FN(gemm_packed)(call_threads(c), &g, c->ws);
}

static void linear_bwd_input(const op_call *c) {
    const tensor *dy = &c->dout[0], *w = &c->in[1], *dx = &c->din[0];
    if (!dx->data) return;
    gemm_args g = {.m = dy->rows, .n = w->cols, .k = w->rows, .a = dy->data, .lda = dy->ld};
    g.b = w->data, g.ldb = w->ld, g.ab_dt = dy->dt;
    g.c = dx->data, g.ldc = dx->ld, g.c_dt = dx->dt, g.accumulate = op_accumulates(c, 0);
    gemm_run(c->run->dev, &g, c->ws);
}

static int64_t bias_slices(int64_t rows) {
    return (rows + BIAS_SLICE - 1) / BIAS_SLICE;
}

/* partial[s, :] = column sums of slice s of dy. */
V_INLINE void sum_slice(float *sum, const tensor *dy, int64_t s, dtype dt) {
    int64_t end = (s + 1) * BIAS_SLICE < dy->rows ? (s + 1) * BIAS_SLICE : dy->rows;
    for (int64_t j = 0; j < dy->cols; j++) sum[j] = 0.0f;
    for (int64_t i = s * BIAS_SLICE; i < end; i++) {
        int64_t j = 0, row = i * dy->ld;
        for (; j + VW <= dy->cols; j += VW)
            v_store(sum + j, v_load(sum + j) + v_get(dy->data, row + j, dt));
        for (; j < dy->cols; j++) sum[j] += s_get(dy->data, row + j, dt);
    }
}

static void sum_bias(const op_call *c) {
    const tensor *dy = &c->dout[0];
    float *partial = c->ws, *db = c->din[2].data;
    int64_t slices = bias_slices(dy->rows), n = dy->cols;
    bool add = op_accumulates(c, 2);
#pragma omp parallel num_threads(loop_threads(c, dy->rows *n))
    {
#pragma omp for schedule(static)
        for (int64_t s = 0; s < slices; s++) {
            if (dy->dt == DT_BF16)
                sum_slice(partial + s * n, dy, s, DT_BF16);
            else
                sum_slice(partial + s * n, dy, s, DT_F32);
        }
#pragma omp for schedule(static)
        for (int64_t j = 0; j < n; j++) {
            float v = 0.0f;
            for (int64_t s = 0; s < slices; s++) v += partial[s * n + j];
            db[j] = add ? db[j] + v : v;
        }
    }
}

static void linear_bwd_weight(const op_call *c) {
    const tensor *dy = &c->dout[0], *x = &c->in[0], *dw = &c->din[1];
    if (dw->data) {
        gemm_args g = {.m = dy->cols, .n = x->cols, .k = dy->rows, .a = dy->data, .lda = dy->ld};
        g.a_trans = true, g.b = x->data, g.ldb = x->ld, g.ab_dt = dy->dt;
        g.c = dw->data, g.ldc = dw->ld, g.c_dt = DT_F32, g.accumulate = op_accumulates(c, 1);
        gemm_run(c->run->dev, &g, c->ws);
    }
    if (c->din[2].data) sum_bias(c);
}

static void linear_workspace(const op_infer *io, int64_t ws[3]) {
    int t = dev_threads(io->dev);
    int64_t n = io->in[0].rows, k = io->in[0].cols, o = io->in[1].rows;
    dtype dt = io->in[0].dt;
    ws[0] = CPU_FN(gemm_ws)(t, n, o, k, dt, dt);
    ws[1] = CPU_FN(gemm_ws)(t, n, k, o, dt, dt);
    ws[2] = CPU_FN(gemm_ws)(t, o, k, n, dt, DT_F32);
    int64_t sums = io->in[2].rows ? bias_slices(n) * o * (int64_t)sizeof(float) : 0;
    if (ws[2] < sums) ws[2] = sums;
}

const op_impl CPU_FN(cpu_linear_f32) = {linear_fwd, linear_bwd_input, linear_bwd_weight,
                                        linear_workspace};
const op_impl CPU_FN(cpu_linear_bf16) = {linear_fwd, linear_bwd_input, linear_bwd_weight,
                                         linear_workspace};
