/* HEAD_CE: the head of a language model, a chunk of rows at a time.
 *
 *   logits = x w^T (f32);  lse, nll;  logits become dlogits in place;  dx = dlogits w;
 *   dw += dlogits^T x
 *
 * In bf16 storage dlogits is rounded to bf16 over its own logits, so that all three products run on
 * bf16 operands. FLOPs 6 N V C with gradients. Workspace: the logits of one chunk, one chunk of dx
 * in f32, and the products' own. */
#include <math.h>

#include "op/cpu/gemm_tile.h"
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"
#include "op/cpu/vmath.h"

V_INLINE float row_max(const float *x, int64_t cols) {
    vf m = v_set1(-INFINITY);
    int64_t j = 0;
    for (; j + VW <= cols; j += VW) m = v_max(m, v_load(x + j));
    float r = v_hmax(m);
    for (; j < cols; j++) r = x[j] > r ? x[j] : r;
    return r;
}

/* x = exp(x - max); returns the sum. */
V_INLINE float row_exp(float *x, int64_t cols, float max) {
    vf s = v_zero();
    double total = 0.0;
    int64_t j = 0, flush = 0;
    for (; j + VW <= cols; j += VW) {
        vf e = v_exp(v_load(x + j) - max);
        v_store(x + j, e);
        s += e;
        if (++flush == 256) total += (double)v_sum(s), s = v_zero(), flush = 0;
    }
    if (j < cols) {
        vf e = v_exp(v_get_n(x, j, cols - j, DT_F32) - max);
        v_put_n(x, j, e, cols - j, DT_F32);
        s += v_get_n(x, j, cols - j, DT_F32);
    }
    return (float)(total + (double)v_sum(s));
}

/* to[j] = x[j] * by; `to` may be the same memory with narrower elements. */
V_INLINE void row_scale(void *to, const float *x, int64_t cols, float by, dtype dt) {
    FOR_VECTORS(cols, j, n) put_upto(to, j, get_upto(x, j, n, DT_F32) * by, n, dt);
}

/* Row r of the chunk that begins at n0. */
V_INLINE void head_row(const op_call *c, int64_t n, float *logits, bool grad, dtype dt) {
    int64_t V = c->in[1].rows;
    int32_t target = ((const int32_t *)c->in[2].data)[n * c->in[2].ld];
    CHECK(target < V, "head_ce: target %d is outside the vocabulary of %lld", target, (long long)V);
    float at_target = target >= 0 ? logits[target] : 0.0f;
    float max = row_max(logits, V), sum = row_exp(logits, V, max);
    double lse = (double)max + log((double)sum);
    ((float *)c->out[0].data)[n * c->out[0].ld] =
        target >= 0 ? (float)(lse - (double)at_target) : 0.0f;
    ((float *)c->out[1].data)[n * c->out[1].ld] = (float)lse;
    if (!grad) return;
    if (target < 0) {
        memset(logits, 0, (size_t)V * (dt == DT_BF16 ? 2 : 4));
        return;
    }
    float s = c->run->grad_scale;
    float scale = s * (float)(1.0 + 2.0 * (double)c->attr->head.z_loss * lse) / sum;
    float d_target = logits[target] * scale - s;
    row_scale(logits, logits, V, scale, dt);
    s_put(logits, target, d_target, dt);
}

typedef struct head_buffers {
    float *logits, *dx;
    void *gemm;
} head_buffers;

static int64_t align64(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static int64_t gemm_bytes(int threads, int64_t rows, int64_t V, int64_t C, dtype dt) {
    int64_t f = CPU_FN(gemm_ws)(threads, rows, V, C, dt, DT_F32);
    int64_t dx = CPU_FN(gemm_ws)(threads, rows, C, V, dt, DT_F32);
    int64_t dw = CPU_FN(gemm_ws)(threads, V, C, rows, dt, DT_F32);
    return f > dx ? (f > dw ? f : dw) : (dx > dw ? dx : dw);
}

static void head_dx(const op_call *c, const head_buffers *b, int64_t n0, int64_t rows) {
    const tensor *w = &c->in[1], *dx = &c->out[2];
    bool direct = dx->dt == DT_F32;
    gemm_args g = {.m = rows, .n = w->cols, .k = w->rows, .a = b->logits, .ab_dt = dx->dt};
    g.lda = direct ? w->rows : 2 * w->rows;
    g.b = w->data, g.ldb = w->ld, g.c_dt = DT_F32;
    g.c = direct ? (float *)dx->data + n0 * dx->ld : b->dx;
    g.ldc = direct ? dx->ld : dx->cols;
    gemm_run(c->run->dev, &g, b->gemm);
    if (direct) return;
#pragma omp parallel for num_threads(loop_threads(c, rows * dx->cols)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        row_scale((uint16_t *)dx->data + (n0 + r) * dx->ld, b->dx + r * dx->cols, dx->cols, 1.0f,
                  DT_BF16);
}

static void head_dw(const op_call *c, const head_buffers *b, int64_t n0, int64_t rows) {
    const tensor *x = &c->in[0], *dw = &c->din[1];
    int64_t V = dw->rows, bytes = x->dt == DT_BF16 ? 2 : 4;
    gemm_args g = {.m = V, .n = x->cols, .k = rows, .a = b->logits, .a_trans = true};
    g.lda = x->dt == DT_BF16 ? 2 * V : V, g.ab_dt = x->dt;
    g.b = (const char *)x->data + n0 * x->ld * bytes, g.ldb = x->ld;
    g.c = dw->data, g.ldc = dw->ld, g.c_dt = DT_F32;
    g.accumulate = n0 > 0 || op_accumulates(c, 1);
    gemm_run(c->run->dev, &g, b->gemm);
}

static void head_ce_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1];
    int64_t N = x->rows, V = w->rows, chunk = op_head_chunk_rows(c->attr, N, V);
    bool want_dx = c->attr->head.with_grad && c->out[2].data;
    bool want_dw = c->attr->head.with_grad && c->din[1].data, grad = want_dx || want_dw;
    head_buffers b = {.logits = c->ws};
    b.dx = (float *)((char *)c->ws + align64(chunk * V * 4));
    b.gemm = (char *)b.dx + (x->dt == DT_BF16 ? align64(chunk * x->cols * 4) : 0);
    for (int64_t n0 = 0; n0 < N; n0 += chunk) {
        int64_t rows = N - n0 < chunk ? N - n0 : chunk, bytes = x->dt == DT_BF16 ? 2 : 4;
        gemm_args g = {.m = rows, .n = V, .k = x->cols, .lda = x->ld, .ab_dt = x->dt};
        g.a = (const char *)x->data + n0 * x->ld * bytes;
        g.b = w->data, g.ldb = w->ld, g.b_trans = true;
        g.c = b.logits, g.ldc = V, g.c_dt = DT_F32;
        gemm_run(c->run->dev, &g, b.gemm);
#pragma omp parallel for num_threads(loop_threads(c, rows *V)) schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            if (x->dt == DT_BF16)
                head_row(c, n0 + r, b.logits + r * V, grad, DT_BF16);
            else
                head_row(c, n0 + r, b.logits + r * V, grad, DT_F32);
        }
        if (want_dx) head_dx(c, &b, n0, rows);
        if (want_dw) head_dw(c, &b, n0, rows);
    }
}

static void head_ce_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t N = io->in[0].rows, C = io->in[0].cols, V = io->in[1].rows;
    int64_t chunk = op_head_chunk_rows(io->attr, N, V);
    dtype dt = io->in[0].dt;
    ws[0] = align64(chunk * V * 4) + (dt == DT_BF16 ? align64(chunk * C * 4) : 0) +
            gemm_bytes(dev_threads(io->dev), chunk, V, C, dt);
}

const op_impl CPU_FN(cpu_head_ce_f32) = {head_ce_fwd, NULL, NULL, head_ce_workspace};
const op_impl CPU_FN(cpu_head_ce_bf16) = {head_ce_fwd, NULL, NULL, head_ce_workspace};
