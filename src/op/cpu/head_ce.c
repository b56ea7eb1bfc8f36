/* HEAD_CE, HEAD_NLL and HEAD_DISTILL: the head of a language model, a chunk of rows at a time.
 *
 *   logits = x w^T + bias (f32), capped;  lse, nll;  logits become dlogits in place;
 *   dx = dlogits w;  dw += dlogits^T x;  dbias += column sums of dlogits
 *
 * Without softcap the sum of exponentials leaves them in place of the logits, and dlogits is a
 * multiple. With softcap the logits stay, because its slope is made from them, and the exponentials
 * are computed twice. So are those of HEAD_DISTILL, whose formulas are in ref/head_ce.c: of these logits, of
 * these over the temperature, and of the teacher's.
 *
 * In bf16 and f16 storage dlogits is rounded over its own logits, so that all three products run on
 * operands of that format. FLOPs 6 N V C with gradients: HEAD_CE in its forward pass, HEAD_NLL in its
 * backward pass, 2 N V C without. Workspace: the logits of one chunk, one chunk of dx in f32, and
 * the products' own. */
#include <math.h>

#include "op/cpu/parts.h"
#include "op/cpu/head_rows.h"
#include "op/cpu/ops.h"
#include "op/head.h"

static float *f32_at(const tensor *t, int64_t n) {
    return (float *)t->data + n * t->ld;
}

/* Row n. */
V_INLINE void head_row(const head *h, int64_t n, float *logits, bool grad, dtype dt) {
    const op_call *c = h->c;
    int64_t V = c->in[1].rows;
    int32_t target = ((const int32_t *)c->in[2].data)[n * c->in[2].ld];
    CHECK(target < V, "head: target %d is outside the vocabulary of %lld", target, (long long)V);
    float cap = c->attr->head.softcap;
    if (cap > 0.0f) row_cap(logits, V, cap);
    float at_target = target >= 0 ? logits[target] : 0.0f, max = row_max(logits, V);
    float sum = cap > 0.0f ? row_exp(logits, V, max, true) : row_exp(logits, V, max, false);
    double lse = (double)max + log((double)sum);
    float nll = target >= 0 ? (float)(lse - (double)at_target) : 0.0f;
    if (c->out[0].data) *f32_at(&c->out[0], n) = nll;
    if (c->out[1].data) *f32_at(&c->out[1], n) = (float)lse;
    if (!grad) return;
    if (target < 0) {
        memset(logits, 0, (size_t)(V * v_element_bytes(dt)));
        return;
    }
    float s = h->dnll ? *f32_at(h->dnll, n) : c->run->grad_scale * c->attr->head.weight;
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

/* What the teacher says of all tokens of row n; `whole` is the room where it names some. */
static const float *teacher_row(const head *h, int64_t n, float *whole) {
    const float *known = f32_at(h->teacher, n);
    const tensor *tokens = &h->c->in[5];
    int64_t V = h->c->in[1].rows;
    if (!tokens->data) return known;
    for (int64_t v = 0; v < V; v++) whole[v] = -INFINITY;
    const int32_t *id = (const int32_t *)tokens->data + n * tokens->ld;
    for (int64_t i = 0; i < tokens->cols; i++) {
        CHECK(id[i] >= 0 && id[i] < V, "head: token %d is outside the vocabulary of %lld", id[i],
              (long long)V);
        whole[id[i]] = known[i];
    }
    return whole;
}

/* Row n of a student. */
V_INLINE void distill_row(const head *h, int64_t n, float *logits, bool grad, dtype dt) {
    const op_call *c = h->c;
    int64_t V = c->in[1].rows;
    const float *teacher = teacher_row(h, n, h->whole + (logits - h->logits));
    int32_t target = ((const int32_t *)c->in[2].data)[n * c->in[2].ld];
    CHECK(target < V, "head: target %d is outside the vocabulary of %lld", target, (long long)V);
    float cap = c->attr->head.softcap, w = c->attr->head.distill, T = c->attr->head.temperature;
    if (cap > 0.0f) row_cap(logits, V, cap);
    row_lesson l = {.max = row_max(logits, V), .max_t = row_max(teacher, V), .per_T = 1.0f / T};
    double kl = row_compare(logits, teacher, V, &l), lse = (double)l.max + log(l.sum);
    float at_target = target >= 0 ? logits[target] : 0.0f;
    double loss = (1.0 - (double)w) * (lse - (double)at_target) + (double)(w * T * T) * kl;
    if (c->out[0].data) *f32_at(&c->out[0], n) = target >= 0 ? (float)loss : 0.0f;
    if (c->out[1].data) *f32_at(&c->out[1], n) = (float)lse;
    if (!grad) return;
    if (target < 0) {
        memset(logits, 0, (size_t)(V * v_element_bytes(dt)));
        return;
    }
    double s = (double)(c->run->grad_scale * c->attr->head.weight),
           z = (double)c->attr->head.z_loss;
    l.by = (float)(s * (1.0 - (double)w + 2.0 * z * lse) / l.sum);
    l.by_q = (float)(s * (double)(w * T) / l.sum_q);
    l.by_t = (float)(s * (double)(w * T) / l.sum_t);
    l.per_cap = cap > 0.0f ? 1.0f / cap : 0.0f;
    vf d = row_taught(v_set1(at_target), v_set1(teacher[target]), (float)s * (1.0f - w), &l);
    FOR_VECTORS(V, j, left)
    put_upto(
        logits, j,
        row_taught(get_upto(logits, j, left, DT_F32), get_upto(teacher, j, left, DT_F32), 0.0f, &l),
        left, dt);
    s_put(logits, target, d[0], dt);
}

static int64_t align64(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static int64_t gemm_bytes(dev *d, int64_t rows, int64_t V, int64_t C, dtype dt) {
    gemm_args g[] = {gemm_args_of(GEMM_FORWARD, rows, V, C, dt),
                     gemm_args_of(GEMM_BACKWARD_INPUT, rows, C, V, dt),
                     gemm_args_of(GEMM_BACKWARD_WEIGHT, V, C, rows, dt)};
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        g[i].c_dt = DT_F32;
        int64_t bytes = gemm_ws_bytes(d, &g[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Row n of dx from a row of f32. */
V_INLINE void put_dx_row(const head *h, int64_t n, const float *from, dtype dt) {
    tensor dx = h->dx;
    bool add = h->add_dx;
    FOR_VECTORS(dx.cols, j, left)
    row_put(&dx, n, j, get_upto(from, j, left, DT_F32), left, add, dt);
}

static void head_dx(const head *h, int64_t n0, int64_t rows) {
    const tensor *w = &h->c->in[1], *dx = &h->dx;
    bool direct = dx->dt == DT_F32;
    gemm_args g = {.m = rows, .n = w->cols, .k = w->rows, .a = h->logits, .ab_dt = dx->dt};
    g.lda = direct ? w->rows : 2 * w->rows;
    g.b = w->data, g.ldb = w->ld, g.c_dt = DT_F32;
    g.c = direct ? f32_at(dx, n0) : h->parts;
    g.ldc = direct ? dx->ld : dx->cols;
    g.accumulate = direct && h->add_dx;
    gemm_run(h->c->run->dev, &g, h->product);
    if (direct) return;
#pragma omp parallel for num_threads(loop_threads(h->c, rows * dx->cols)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        WITH_DTYPE(dx->dt, put_dx_row, h, n0 + r, h->parts + r * dx->cols);
}

static void head_dw(const head *h, int64_t n0, int64_t rows) {
    const tensor *x = &h->c->in[0], *dw = &h->dw;
    int64_t V = dw->rows, bytes = v_element_bytes(x->dt);
    gemm_args g = {.m = V, .n = x->cols, .k = rows, .a = h->logits, .a_trans = true};
    g.lda = x->dt == DT_F32 ? V : 2 * V, g.ab_dt = x->dt;
    g.b = (const char *)x->data + n0 * x->ld * bytes, g.ldb = x->ld;
    g.c = dw->data, g.ldc = dw->ld, g.c_dt = DT_F32;
    g.accumulate = n0 > 0 || op_accumulates(h->c, 1);
    gemm_run(h->c->run->dev, &g, h->product);
}

/* Columns [j0, j0 + n) of dbias, over the rows of a chunk in order. */
V_INLINE void add_bias_columns(const head *h, int64_t rows, int64_t j0, int64_t n, bool add,
                               dtype dt) {
    int64_t V = h->dbias.cols, ld = dt == DT_F32 ? V : 2 * V;
    const float *dlogits = h->logits;
    float *db = (float *)h->dbias.data + j0;
    for (int64_t j = 0; j < n && !add; j++) db[j] = 0.0f;
    for (int64_t r = 0; r < rows; r++) {
        FOR_VECTORS(n, j, left) {
            vf d = get_upto(dlogits, r * ld + j0 + j, left, dt);
            put_upto(db, j, d + get_upto(db, j, left, DT_F32), left, DT_F32);
        }
    }
}

static void head_dbias(const head *h, int64_t n0, int64_t rows) {
    enum { COLUMNS = 512 }; /* per task: their sums stay in cache */
    int64_t V = h->dbias.cols;
    bool add = n0 > 0 || op_accumulates(h->c, 3);
#pragma omp parallel for num_threads(loop_threads(h->c, rows *V)) schedule(static)
    for (int64_t j = 0; j < V; j += COLUMNS) {
        int64_t n = V - j < COLUMNS ? V - j : COLUMNS;
        WITH_DTYPE(h->c->in[0].dt, add_bias_columns, h, rows, j, n, add);
    }
}

static int64_t dx_chunk_bytes(const tensor *x, int64_t chunk) {
    return x->dt == DT_F32 ? 0 : align64(chunk * x->cols * 4);
}

static void make_logits(const head *h, int64_t n0, int64_t rows) {
    const tensor *x = &h->c->in[0], *w = &h->c->in[1];
    int64_t V = w->rows, bytes = v_element_bytes(x->dt);
    gemm_args g = {.m = rows, .n = V, .k = x->cols, .lda = x->ld, .ab_dt = x->dt};
    g.a = (const char *)x->data + n0 * x->ld * bytes;
    g.b = w->data, g.ldb = w->ld, g.b_trans = true;
    g.c = h->logits, g.ldc = V, g.c_dt = DT_F32, g.bias = h->c->in[3].data;
    gemm_run(h->c->run->dev, &g, h->product);
}

static void run_chunks(head h) {
    const op_call *c = h.c;
    const tensor *x = &c->in[0];
    int64_t N = x->rows, V = c->in[1].rows, chunk = op_head_chunk_rows(c->attr, N, V);
    bool grad = head_makes_gradients(&h);
    h.logits = c->ws;
    h.parts = (float *)((char *)c->ws + align64(chunk * V * 4));
    h.whole = (float *)((char *)h.parts + dx_chunk_bytes(x, chunk));
    h.product = (char *)h.whole + (head_names_tokens(&h) ? align64(chunk * V * 4) : 0);
    for (int64_t n0 = 0; n0 < N; n0 += chunk) {
        int64_t rows = N - n0 < chunk ? N - n0 : chunk;
        make_logits(&h, n0, rows);
#pragma omp parallel for num_threads(loop_threads(c, rows *V)) schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            if (h.teacher)
                WITH_DTYPE(x->dt, distill_row, &h, n0 + r, h.logits + r * V, grad);
            else
                WITH_DTYPE(x->dt, head_row, &h, n0 + r, h.logits + r * V, grad);
        }
        if (h.dx.data) head_dx(&h, n0, rows);
        if (h.dw.data) head_dw(&h, n0, rows);
        if (h.dbias.data) head_dbias(&h, n0, rows);
    }
}

static void head_fwd(const op_call *c) {
    run_chunks(head_forward(c));
}

static void head_bwd(const op_call *c) {
    run_chunks(head_backward(c));
}

static void head_workspace(const op_infer *io, int64_t ws[3]) {
    const tensor *x = &io->in[0];
    int64_t V = io->in[1].rows, chunk = op_head_chunk_rows(io->attr, x->rows, V);
    /* The last rows are fewer, for which oneDNN may want more. */
    int64_t bytes = gemm_bytes(io->dev, chunk, V, x->cols, x->dt);
    int64_t last = chunk > 0 ? gemm_bytes(io->dev, x->rows % chunk, V, x->cols, x->dt) : 0;
    ws[0] = align64(chunk * V * 4) + dx_chunk_bytes(x, chunk) + (last > bytes ? last : bytes);
    if (io->kind == OP_HEAD_DISTILL && io->in[5].rows) ws[0] += align64(chunk * V * 4);
    if (io->kind == OP_HEAD_NLL) ws[1] = ws[0];
}

const op_impl CPU_FN(cpu_head_ce) = {head_fwd, NULL, NULL, head_workspace};
const op_impl CPU_FN(cpu_head_distill) = {head_fwd, NULL, NULL, head_workspace};
const op_impl CPU_FN(cpu_head_nll) = {head_fwd, head_bwd, NULL, head_workspace};
