/* HEAD_CE: the head of a language model, a chunk of rows at a time.
 *
 *   logits = x w^T + bias (f32), capped;  lse, nll;  logits become dlogits in place;
 *   dx = dlogits w;  dw += dlogits^T x;  dbias += column sums of dlogits
 *
 * Without softcap the sum of exponentials leaves them in place of the logits, and dlogits is a
 * multiple. With softcap the logits stay, because its slope is made from them, and the exponentials
 * are computed twice.
 *
 * In bf16 storage dlogits is rounded to bf16 over its own logits, so that all three products run on
 * bf16 operands. FLOPs 6 N V C with gradients. Workspace: the logits of one chunk, one chunk of dx
 * in f32, and the products' own. */
#include <math.h>

#include "op/cpu/gemm_tile.h"
#include "op/cpu/head_rows.h"
#include "op/cpu/ops.h"

/* Row n. */
V_INLINE void head_row(const op_call *c, int64_t n, float *logits, bool grad, dtype dt) {
    int64_t V = c->in[1].rows;
    int32_t target = ((const int32_t *)c->in[2].data)[n * c->in[2].ld];
    CHECK(target < V, "head_ce: target %d is outside the vocabulary of %lld", target, (long long)V);
    float cap = c->attr->head.softcap;
    if (cap > 0.0f) row_cap(logits, V, cap);
    float at_target = target >= 0 ? logits[target] : 0.0f, max = row_max(logits, V);
    float sum = cap > 0.0f ? row_exp(logits, V, max, true) : row_exp(logits, V, max, false);
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
    float d_target;
    if (cap > 0.0f) {
        d_target = uncap(v_set1(at_target), max, scale, s, 1.0f / cap)[0];
        row_uncap(logits, logits, V, max, scale, 1.0f / cap, dt);
    } else {
        d_target = logits[target] * scale - s;
        row_scale(logits, logits, V, scale, dt);
    }
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

/* Columns [j0, j0 + n) of dbias, over the rows of a chunk in order. */
V_INLINE void add_bias_columns(const op_call *c, const float *dlogits, int64_t rows, int64_t j0,
                               int64_t n, bool add, dtype dt) {
    int64_t V = c->din[3].cols, ld = dt == DT_BF16 ? 2 * V : V;
    float *db = (float *)c->din[3].data + j0;
    for (int64_t j = 0; j < n && !add; j++) db[j] = 0.0f;
    for (int64_t r = 0; r < rows; r++) {
        FOR_VECTORS(n, j, left) {
            vf d = get_upto(dlogits, r * ld + j0 + j, left, dt);
            put_upto(db, j, d + get_upto(db, j, left, DT_F32), left, DT_F32);
        }
    }
}

static void head_dbias(const op_call *c, const head_buffers *b, int64_t n0, int64_t rows) {
    enum { COLUMNS = 512 }; /* per task: their sums stay in cache */
    int64_t V = c->din[3].cols;
    bool add = n0 > 0 || op_accumulates(c, 3);
#pragma omp parallel for num_threads(loop_threads(c, rows *V)) schedule(static)
    for (int64_t j = 0; j < V; j += COLUMNS) {
        int64_t n = V - j < COLUMNS ? V - j : COLUMNS;
        WITH_DTYPE(c->in[0].dt, add_bias_columns, c, b->logits, rows, j, n, add);
    }
}

static void head_ce_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1];
    int64_t N = x->rows, V = w->rows, chunk = op_head_chunk_rows(c->attr, N, V);
    bool want_dx = c->attr->head.with_grad && c->out[2].data;
    bool want_dw = c->attr->head.with_grad && c->din[1].data;
    bool want_db = c->attr->head.with_grad && c->din[3].data, grad = want_dx || want_dw || want_db;
    head_buffers b = {.logits = c->ws};
    b.dx = (float *)((char *)c->ws + align64(chunk * V * 4));
    b.gemm = (char *)b.dx + (x->dt == DT_BF16 ? align64(chunk * x->cols * 4) : 0);
    for (int64_t n0 = 0; n0 < N; n0 += chunk) {
        int64_t rows = N - n0 < chunk ? N - n0 : chunk, bytes = x->dt == DT_BF16 ? 2 : 4;
        gemm_args g = {.m = rows, .n = V, .k = x->cols, .lda = x->ld, .ab_dt = x->dt};
        g.a = (const char *)x->data + n0 * x->ld * bytes;
        g.b = w->data, g.ldb = w->ld, g.b_trans = true;
        g.c = b.logits, g.ldc = V, g.c_dt = DT_F32, g.bias = c->in[3].data;
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
        if (want_db) head_dbias(c, &b, n0, rows);
    }
}

static void head_ce_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t N = io->in[0].rows, C = io->in[0].cols, V = io->in[1].rows;
    int64_t chunk = op_head_chunk_rows(io->attr, N, V);
    dtype dt = io->in[0].dt;
    ws[0] = align64(chunk * V * 4) + (dt == DT_BF16 ? align64(chunk * C * 4) : 0) +
            gemm_bytes(dev_threads(io->dev), chunk, V, C, dt);
}

const op_impl CPU_FN(cpu_head_ce) = {head_ce_fwd, NULL, NULL, head_ce_workspace};
