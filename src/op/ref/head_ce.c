/* HEAD_CE, HEAD_NLL and HEAD_DISTILL: language-model head and cross-entropy, some rows of logits at a time.
 *
 *   logits = x w^T + bias, with softcap c: c tanh(logits / c)
 *   lse = log sum_v exp(logits_v);  nll = lse - logits[target]
 *   objective of HEAD_CE = s sum_n (nll + z lse^2), s = run->grad_scale * weight
 *   dlogits_v = s ((1 + 2 z lse) softmax_v - [v = target]), with softcap times 1 - (logits_v / c)^2
 *   dx = dlogits w;  dw = dlogits^T x;  dbias = column sums of dlogits
 *
 * HEAD_DISTILL, with p and q the softmax of the teacher's and of these logits over T:
 *   nll = (1-w) (lse - logits[target]) + w T^2 sum_v p_v log(p_v / q_v)
 *   dlogits_v = s ((1-w + 2 z lse) softmax_v - (1-w) [v = target] + w T (q_v - p_v))
 *
 * For HEAD_NLL z = 0, and s of a row is the gradient of its nll. Workspace: the logits of one
 * chunk, then overwritten by dlogits; behind them the teacher's, where it names its tokens. */
#include "op/head.h"
#include "op/ref/ref.h"

/* What a row has of its teacher. */
typedef struct lesson {
    const REAL *teacher;
    ACC w, T;       /* attr.distill, attr.temperature; w 0: no teacher */
    ACC lse, lse_q; /* of the teacher's logits and of these, over T */
    ACC kl;
} lesson;

static ACC lse_over(const REAL *x, int64_t V, ACC T) {
    ACC max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < V; v++) max = (ACC)x[v] > max ? (ACC)x[v] : max;
    for (int64_t v = 0; v < V; v++) sum += (ACC)r_exp((REAL)(((ACC)x[v] - max) / T));
    return max / T + log(sum);
}

static ACC prob_over(ACC x, ACC lse, ACC T) {
    return (ACC)r_exp((REAL)(x / T - lse));
}

/* What the teacher says of all tokens of row n; `whole` is the room where it names some. */
static const REAL *teacher_row(const head *h, int64_t n, REAL *whole) {
    const REAL *known = real_row_of(h->teacher, n);
    const tensor *tokens = &h->c->in[5];
    int64_t V = h->c->in[1].rows;
    if (!tokens->data) return known;
    for (int64_t v = 0; v < V; v++) whole[v] = -(REAL)INFINITY;
    for (int64_t i = 0; i < tokens->cols; i++) {
        int32_t v = ((const int32_t *)tokens->data)[n * tokens->ld + i];
        CHECK(v >= 0 && v < V, "head: token %d is outside the vocabulary of %lld", v, (long long)V);
        whole[v] = known[i];
    }
    return whole;
}

static lesson take_lesson(const head *h, int64_t n, const REAL *logits, int64_t V) {
    if (!h->teacher) return (lesson){0};
    REAL *ws = h->c->ws;
    int64_t chunk = op_head_chunk_rows(h->c->attr, h->c->in[0].rows, V) * V;
    lesson l = {.teacher = teacher_row(h, n, ws + chunk + (logits - ws)),
                .w = h->c->attr->head.distill,
                .T = h->c->attr->head.temperature};
    l.lse = lse_over(l.teacher, V, l.T);
    l.lse_q = lse_over(logits, V, l.T);
    for (int64_t v = 0; v < V; v++) {
        ACC p = prob_over(l.teacher[v], l.lse, l.T);
        if (p > 0) l.kl += p * ((ACC)(l.teacher[v] - logits[v]) / l.T - l.lse + l.lse_q);
    }
    return l;
}

/* d (w T^2 KL) / d logits_v */
static ACC taught(const lesson *l, int64_t v, ACC logit) {
    if (!l->teacher) return 0;
    return l->w * l->T *
           (prob_over(logit, l->lse_q, l->T) - prob_over(l->teacher[v], l->lse, l->T));
}

static ACC grad_of_row(const head *h, int64_t n) {
    if (int_at(&h->c->in[2], n) < 0) return 0;
    if (h->dnll) return (ACC)*real_row_of(h->dnll, n);
    return (ACC)h->c->run->grad_scale * (ACC)h->c->attr->head.weight;
}

/* Fills row n's logits, lse and nll; turns the logits into dlogits where gradients are made. */
static void head_row(const head *h, int64_t n, REAL *logits) {
    const op_call *c = h->c;
    const tensor *x = &c->in[0], *w = &c->in[1];
    int64_t V = w->rows;
    ACC cap = c->attr->head.softcap;
    int32_t target = int_at(&c->in[2], n);
    CHECK(target < V, "head: target %d is outside the vocabulary of %lld", target, (long long)V);
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
    lesson l = take_lesson(h, n, logits, V);
    ACC nll = target < 0 ? 0 : (1 - l.w) * (lse - (ACC)logits[target]) + l.w * l.T * l.T * l.kl;
    if (c->out[0].data) *real_row_of(&c->out[0], n) = (REAL)nll;
    if (c->out[1].data) *real_row_of(&c->out[1], n) = (REAL)lse;
    if (!head_makes_gradients(h)) return;
    ACC s = grad_of_row(h, n);
    ACC scale = s * (1 - l.w + 2 * (ACC)c->attr->head.z_loss * lse);
    for (int64_t v = 0; v < V; v++) {
        ACC t = cap > 0 ? (ACC)logits[v] / cap : 0;
        ACC d =
            scale * (ACC)r_exp((REAL)((ACC)logits[v] - lse)) - (v == target ? s * (1 - l.w) : 0);
        d += s * taught(&l, v, logits[v]);
        logits[v] = (REAL)(d * (1 - t * t));
    }
}

/* dx[n,i] = sum_v dlogits[n,v] w[v,i] */
static void head_dx(const head *h, int64_t n, const REAL *dlogits) {
    const tensor *w = &h->c->in[1], *dx = &h->dx;
    for (int64_t b = 0; b < blocks_of(dx->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dx->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t v = 0; v < w->rows; v++) axpy(acc, dlogits[v], row_of(w, v) + first, len);
        for (int64_t i = 0; i < len; i++) put(row_of(dx, n) + first + i, acc[i], h->add_dx);
    }
}

/* dw[v,i] += sum over the chunk's rows of dlogits[n,v] x[n,i] */
static void head_dw(const head *h, int64_t v, int64_t n0, int64_t rows, const REAL *dlogits) {
    const tensor *x = &h->c->in[0], *dw = &h->dw;
    bool add = n0 > 0 || op_accumulates(h->c, 1);
    for (int64_t b = 0; b < blocks_of(dw->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dw->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t r = 0; r < rows; r++)
            axpy(acc, dlogits[r * dw->rows + v], row_of(x, n0 + r) + first, len);
        for (int64_t i = 0; i < len; i++) put_real(real_row_of(dw, v) + first + i, acc[i], add);
    }
}

static void head_dbias(const head *h, int64_t v, int64_t n0, int64_t rows, const REAL *dlogits) {
    ACC sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += dlogits[r * h->c->in[1].rows + v];
    put_real(real_row_of(&h->dbias, 0) + v, sum, n0 > 0 || op_accumulates(h->c, 3));
}

static void run_chunks(head h) {
    const op_call *c = h.c;
    int64_t N = c->in[0].rows, V = c->in[1].rows;
    int64_t chunk = op_head_chunk_rows(c->attr, N, V);
    REAL *logits = c->ws;
    for (int64_t n0 = 0; n0 < N; n0 += chunk) {
        int64_t rows = N - n0 < chunk ? N - n0 : chunk;
        PARALLEL_FOR
        for (int64_t r = 0; r < rows; r++) {
            head_row(&h, n0 + r, logits + r * V);
            if (h.dx.data) head_dx(&h, n0 + r, logits + r * V);
        }
        if (!h.dw.data && !h.dbias.data) continue;
        PARALLEL_FOR
        for (int64_t v = 0; v < V; v++) {
            if (h.dw.data) head_dw(&h, v, n0, rows, logits);
            if (h.dbias.data) head_dbias(&h, v, n0, rows, logits);
        }
    }
}

static void head_fwd(const op_call *c) {
    run_chunks(head_forward(c));
}

static void head_bwd(const op_call *c) {
    run_chunks(head_backward(c));
}

static void head_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t N = io->in[0].rows, V = io->in[1].rows;
    ws[0] = op_head_chunk_rows(io->attr, N, V) * V * (int64_t)sizeof(REAL);
    if (io->kind == OP_HEAD_NLL) ws[1] = ws[0];
    if (io->kind == OP_HEAD_DISTILL && io->in[5].rows) ws[0] *= 2;
}

const op_impl REF_IMPL(HEAD_CE) = {head_fwd, NULL, NULL, head_workspace};
const op_impl REF_IMPL(HEAD_DISTILL) = {head_fwd, NULL, NULL, head_workspace};
const op_impl REF_IMPL(HEAD_NLL) = {head_fwd, head_bwd, NULL, head_workspace};
