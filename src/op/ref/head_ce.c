/* Language-model head and cross-entropy, some rows of logits at a time.
 *
 *   logits = x w^T + bias, with softcap c: c tanh(logits / c)
 *   lse = log sum_v exp(logits_v);  nll = lse - logits[target]
 *   objective = s sum_n (nll + z lse^2), s = run->grad_scale
 *   dlogits_v = s ((1 + 2 z lse) softmax_v - [v = target]), with softcap times 1 - (logits_v / c)^2
 *   dx = dlogits w;  dw = dlogits^T x;  dbias = column sums of dlogits
 *
 * Workspace: the logits of one chunk, then overwritten by dlogits. */
#include "op/ref/ref.h"

/* Fills row n's logits, lse and nll; turns the logits into dlogits when grad. */
static void head_row(const op_call *c, int64_t n, REAL *logits, bool grad) {
    const tensor *x = &c->in[0], *w = &c->in[1];
    int64_t V = w->rows;
    ACC cap = c->attr->head.softcap;
    int32_t target = int_at(&c->in[2], n);
    CHECK(target < V, "head_ce: target %d is outside the vocabulary of %lld", target, (long long)V);
    REAL max = -INFINITY;
    for (int64_t v = 0; v < V; v++) {
        ACC a = dot(row_of(x, n), row_of(w, v), x->cols);
        if (c->in[3].data) a += (ACC)real_row_of(&c->in[3], 0)[v];
        logits[v] = (REAL)(cap > 0 ? cap * tanh(a / cap) : a);
        max = logits[v] > max ? logits[v] : max;
    }
    ACC sum = 0;
    for (int64_t v = 0; v < V; v++) sum += (ACC)r_exp(logits[v] - max);
    ACC lse = (ACC)max + log(sum);
    *real_row_of(&c->out[0], n) = target < 0 ? 0 : (REAL)(lse - (ACC)logits[target]);
    *real_row_of(&c->out[1], n) = (REAL)lse;
    if (!grad) return;
    ACC s = target < 0 ? 0 : (ACC)c->run->grad_scale;
    ACC scale = s * (1 + 2 * (ACC)c->attr->head.z_loss * lse);
    for (int64_t v = 0; v < V; v++) {
        ACC t = cap > 0 ? (ACC)logits[v] / cap : 0;
        ACC d = scale * (ACC)r_exp((REAL)((ACC)logits[v] - lse)) - (v == target ? s : 0);
        logits[v] = (REAL)(d * (1 - t * t));
    }
}

/* dx[n,i] = sum_v dlogits[n,v] w[v,i] */
static void head_dx(const op_call *c, int64_t n, const REAL *dlogits) {
    const tensor *w = &c->in[1], *dx = &c->out[2];
    for (int64_t b = 0; b < blocks_of(dx->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dx->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t v = 0; v < w->rows; v++) axpy(acc, dlogits[v], row_of(w, v) + first, len);
        for (int64_t i = 0; i < len; i++) put(row_of(dx, n) + first + i, acc[i], false);
    }
}

/* dw[v,i] += sum over the chunk's rows of dlogits[n,v] x[n,i] */
static void head_dw(const op_call *c, int64_t v, int64_t n0, int64_t rows, const REAL *dlogits) {
    const tensor *x = &c->in[0], *dw = &c->din[1];
    bool add = n0 > 0 || op_accumulates(c, 1);
    for (int64_t b = 0; b < blocks_of(dw->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dw->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t r = 0; r < rows; r++)
            axpy(acc, dlogits[r * dw->rows + v], row_of(x, n0 + r) + first, len);
        for (int64_t i = 0; i < len; i++) put_real(real_row_of(dw, v) + first + i, acc[i], add);
    }
}

static void head_dbias(const op_call *c, int64_t v, int64_t n0, int64_t rows, const REAL *dlogits) {
    ACC sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += dlogits[r * c->in[1].rows + v];
    put_real(real_row_of(&c->din[3], 0) + v, sum, n0 > 0 || op_accumulates(c, 3));
}

static void head_ce_fwd(const op_call *c) {
    int64_t N = c->in[0].rows, V = c->in[1].rows;
    int64_t chunk = op_head_chunk_rows(c->attr, N, V);
    bool want_dx = c->attr->head.with_grad && c->out[2].data;
    bool want_dw = c->attr->head.with_grad && c->din[1].data;
    bool want_db = c->attr->head.with_grad && c->din[3].data;
    REAL *logits = c->ws;
    int threads = ref_threads(c);
    for (int64_t n0 = 0; n0 < N; n0 += chunk) {
        int64_t rows = N - n0 < chunk ? N - n0 : chunk;
        PARALLEL_FOR
        for (int64_t r = 0; r < rows; r++) {
            head_row(c, n0 + r, logits + r * V, want_dx || want_dw || want_db);
            if (want_dx) head_dx(c, n0 + r, logits + r * V);
        }
        if (!want_dw && !want_db) continue;
        PARALLEL_FOR
        for (int64_t v = 0; v < V; v++) {
            if (want_dw) head_dw(c, v, n0, rows, logits);
            if (want_db) head_dbias(c, v, n0, rows, logits);
        }
    }
}

static void head_ce_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t N = io->in[0].rows, V = io->in[1].rows;
    ws[0] = op_head_chunk_rows(io->attr, N, V) * V * (int64_t)sizeof(REAL);
}

const op_impl REF_IMPL(HEAD_CE) = {head_ce_fwd, NULL, NULL, head_ce_workspace};
