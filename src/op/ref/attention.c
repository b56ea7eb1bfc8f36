/* Softmax attention, one query row or one key row at a time; nothing of size T^2 exists.
 *
 *   s_ij = scale q_i . k_j + bias_(p_i - j) over the visible keys, with softcap c: c tanh(s_ij / c);
 *   p_ij = exp(s_ij - lse_i);  o_i = sum_j m_ij p_ij v_j, m_ij = keep_ij / (1 - dropout), or 1
 *
 * Forward is the online softmax (Milakov & Gimelshein 2018): the running sum and output are
 * rescaled when the maximum grows. Backward makes p again from lse: dv_j = sum_i m_ij p_ij do_i;
 * dp_ij = m_ij do_i . v_j;  delta_i = do_i . o_i;  ds_ij = p_ij (dp_ij - delta_i), with softcap
 * times 1 - tanh^2;  dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i;  dbias_d = the sum of
 * ds_ij at distance d. dq is summed per query row, dk and dv per key row over the query heads of its
 * group, dbias per head. */
#include <string.h>

#include "op/dropout.h"
#include "op/ref/ref.h"

/* The visible keys of a query form one range [first, end). */
typedef struct key_range {
    int64_t first, end;
} key_range;

static key_range visible(const op_call *c, int64_t b, int64_t i) {
    const op_attr *at = c->attr;
    int64_t pos = i + (c->in[4].data ? int_at(&c->in[4], b) : 0);
    int64_t start = c->in[3].data ? int_at(&c->in[3], b * at->attention.Tq + i) : 0;
    key_range r = {start > 0 ? start : 0, at->attention.Tk};
    int64_t end = c->in[5].data ? int_at(&c->in[5], b * at->attention.Tq + i) : r.end;
    if (end < r.end) r.end = end;
    if (at->attention.causal && pos + 1 < r.end) r.end = pos + 1;
    if (at->attention.window > 0 && pos - at->attention.window + 1 > r.first)
        r.first = pos - at->attention.window + 1;
    return r;
}

/* m_ij: 0, or 1/(1-p). */
static ACC keep_factor(const op_call *c, dropout_draw *draw, int64_t b, int64_t h, int64_t i,
                       int64_t j) {
    float p = c->attr->attention.dropout;
    if (p <= 0) return 1;
    uint64_t counter = dropout_query_counter(c, b, h, i) + (uint64_t)j;
    return dropout_keeps(draw, counter) ? (ACC)(REAL)dropout_scale(p) : 0;
}

static STORE *q_head(const op_call *c, const tensor *t, int64_t b, int64_t i, int64_t h,
                     int64_t d) {
    return row_of(t, b * c->attr->attention.Tq + i) + h * d;
}
static STORE *k_head(const op_call *c, const tensor *t, int64_t b, int64_t j, int64_t k,
                     int64_t d) {
    return row_of(t, b * c->attr->attention.Tk + j) + k * d;
}
/* Where keys and values may be a cache: kv head k of one, in `piece` when it is narrower. */
static const STORE *cached_head(const op_call *c, const tensor *t, int64_t b, int64_t j, int64_t k,
                                int64_t d, STORE *piece) {
    if (!c->attr->attention.by_head) return k_head(c, t, b, j, k, d);
    int64_t row = (b * c->attr->attention.K + k) * c->attr->attention.Tk + j;
    if (t->dt == c->in[0].dt) return row_of(t, row);
    const uint16_t *narrow = (const uint16_t *)t->data + row * t->ld;
    for (int64_t i = 0; i < d; i++) piece[i] = store(f16_to_f32(narrow[i]));
    return piece;
}
static REAL *lse_of(const op_call *c, int64_t b, int64_t i, int64_t h) {
    return real_row_of(&c->out[1], b * c->attr->attention.H + h) + i;
}

/* The row of the bias for query i and key j. */
static int64_t bias_row(const op_call *c, int64_t b, int64_t i, int64_t j) {
    int64_t pos = i + (c->in[4].data ? int_at(&c->in[4], b) : 0);
    int64_t row = pos - j + c->attr->attention.bias_zero, last = c->in[6].rows - 1;
    return row < 0 ? 0 : row > last ? last : row;
}

static ACC bias_of(const op_call *c, int64_t b, int64_t i, int64_t j, int64_t h) {
    return c->in[6].data ? load(row_of(&c->in[6], bias_row(c, b, i, j))[h]) : 0;
}

static ACC cap_score(const op_call *c, ACC s) {
    ACC cap = c->attr->attention.softcap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

static void attend(const op_call *c, int64_t b, int64_t i, int64_t h) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv;
    int64_t k = h * at->attention.K / at->attention.H;
    const STORE *q = q_head(c, &c->in[0], b, i, h, D);
    STORE *o = q_head(c, &c->out[0], b, i, h, Dv);
    dropout_draw draw = dropout_open(c->run, at->attention.dropout, at->attention.stream);
    ACC acc[OP_MAX_HEAD_DIM] = {0}, sum = 0;
    STORE piece[OP_MAX_HEAD_DIM];
    REAL max = -INFINITY;
    key_range keys = visible(c, b, i);
    for (int64_t j = keys.first; j < keys.end; j++) {
        ACC qk = dot(q, cached_head(c, &c->in[1], b, j, k, D, piece), D);
        REAL s = (REAL)cap_score(c, (ACC)at->attention.scale * qk + bias_of(c, b, i, j, h));
        if (s > max) {
            ACC shrink = r_exp(max - s);
            sum *= shrink;
            for (int64_t d = 0; d < Dv; d++) acc[d] *= shrink;
            max = s;
        }
        ACC p = r_exp(s - max);
        sum += p;
        axpy(acc, p * keep_factor(c, &draw, b, h, i, j),
             cached_head(c, &c->in[2], b, j, k, Dv, piece), Dv);
    }
    for (int64_t d = 0; d < Dv; d++) o[d] = store(sum == 0 ? 0 : acc[d] / sum);
    *lse_of(c, b, i, h) = sum == 0 ? -(REAL)INFINITY : (REAL)((ACC)max + log(sum));
}

static void attention_fwd(const op_call *c) {
    const op_attr *at = c->attr;
    PARALLEL_FOR_3
    for (int64_t b = 0; b < at->attention.B; b++)
        for (int64_t h = 0; h < at->attention.H; h++)
            for (int64_t i = 0; i < at->attention.Tq; i++) attend(c, b, i, h);
}

/* What one (query, key) pair contributes: m p and ds. */
typedef struct pair_grad {
    ACC mp, ds;
} pair_grad;

static pair_grad grad_of_pair(const op_call *c, dropout_draw *draw, int64_t b, int64_t h, int64_t i,
                              int64_t j, ACC delta) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv;
    int64_t k = h * at->attention.K / at->attention.H;
    ACC qk = dot(q_head(c, &c->in[0], b, i, h, D), k_head(c, &c->in[1], b, j, k, D), D);
    ACC s = cap_score(c, (ACC)at->attention.scale * qk + bias_of(c, b, i, j, h));
    ACC p = r_exp((REAL)(s - (ACC)*lse_of(c, b, i, h)));
    ACC t = at->attention.softcap > 0 ? s / (ACC)at->attention.softcap : 0;
    ACC m = keep_factor(c, draw, b, h, i, j);
    ACC dp = m * dot(q_head(c, &c->dout[0], b, i, h, Dv), k_head(c, &c->in[2], b, j, k, Dv), Dv);
    return (pair_grad){m * p, p * (dp - delta) * (1 - t * t)};
}

static ACC delta_of(const op_call *c, int64_t b, int64_t i, int64_t h) {
    int64_t Dv = c->attr->attention.Dv;
    return dot(q_head(c, &c->dout[0], b, i, h, Dv), q_head(c, &c->out[0], b, i, h, Dv), Dv);
}

static void query_grad(const op_call *c, int64_t b, int64_t i, int64_t h) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, k = h * at->attention.K / at->attention.H;
    dropout_draw draw = dropout_open(c->run, at->attention.dropout, at->attention.stream);
    ACC acc[OP_MAX_HEAD_DIM] = {0}, delta = delta_of(c, b, i, h);
    key_range keys = visible(c, b, i);
    for (int64_t j = keys.first; j < keys.end; j++) {
        ACC ds = grad_of_pair(c, &draw, b, h, i, j, delta).ds;
        axpy(acc, (ACC)at->attention.scale * ds, k_head(c, &c->in[1], b, j, k, D), D);
    }
    STORE *dq = q_head(c, &c->din[0], b, i, h, D);
    for (int64_t d = 0; d < D; d++) put(dq + d, acc[d], op_accumulates(c, 0));
}

static void key_grad(const op_call *c, int64_t b, int64_t j, int64_t k) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, group = at->attention.H / at->attention.K;
    dropout_draw draw = dropout_open(c->run, at->attention.dropout, at->attention.stream);
    ACC acc_k[OP_MAX_HEAD_DIM] = {0}, acc_v[OP_MAX_HEAD_DIM] = {0};
    for (int64_t h = k * group; h < (k + 1) * group; h++) {
        for (int64_t i = 0; i < at->attention.Tq; i++) {
            key_range keys = visible(c, b, i);
            if (j < keys.first || j >= keys.end) continue;
            pair_grad g = grad_of_pair(c, &draw, b, h, i, j, delta_of(c, b, i, h));
            axpy(acc_k, (ACC)at->attention.scale * g.ds, q_head(c, &c->in[0], b, i, h, D), D);
            axpy(acc_v, g.mp, q_head(c, &c->dout[0], b, i, h, Dv), Dv);
        }
    }
    for (int64_t d = 0; d < D && c->din[1].data; d++)
        put(k_head(c, &c->din[1], b, j, k, D) + d, acc_k[d], op_accumulates(c, 1));
    for (int64_t d = 0; d < Dv && c->din[2].data; d++)
        put(k_head(c, &c->din[2], b, j, k, Dv) + d, acc_v[d], op_accumulates(c, 2));
}

/* dbias of one head, in the order of sequences, queries and keys. */
static void bias_grad(const op_call *c, int64_t h, ACC *sum) {
    const op_attr *at = c->attr;
    dropout_draw draw = dropout_open(c->run, at->attention.dropout, at->attention.stream);
    for (int64_t b = 0; b < at->attention.B; b++)
        for (int64_t i = 0; i < at->attention.Tq; i++) {
            key_range keys = visible(c, b, i);
            ACC delta = delta_of(c, b, i, h);
            for (int64_t j = keys.first; j < keys.end; j++)
                sum[bias_row(c, b, i, j)] += grad_of_pair(c, &draw, b, h, i, j, delta).ds;
        }
    for (int64_t w = 0; w < c->in[6].rows; w++)
        put(row_of(&c->din[6], w) + h, sum[w], op_accumulates(c, 6));
}

static void bias_grads(const op_call *c) {
    int64_t H = c->attr->attention.H, W = c->in[6].rows;
    memset(c->ws, 0, (size_t)(H * W) * sizeof(ACC));
    PARALLEL_FOR
    for (int64_t h = 0; h < H; h++) bias_grad(c, h, (ACC *)c->ws + h * W);
}

static void attention_workspace(const op_infer *io, int64_t ws[3]) {
    if (!(io->want_grad & 1u << 6)) return;
    ws[1] = io->attr->attention.H * io->in[6].rows * (int64_t)sizeof(ACC);
}

static void attention_bwd(const op_call *c) {
    const op_attr *at = c->attr;
    if (c->din[6].data) bias_grads(c);
    if (c->din[0].data) {
        PARALLEL_FOR_3
        for (int64_t b = 0; b < at->attention.B; b++)
            for (int64_t h = 0; h < at->attention.H; h++)
                for (int64_t i = 0; i < at->attention.Tq; i++) query_grad(c, b, i, h);
    }
    if (!c->din[1].data && !c->din[2].data) return;
    PARALLEL_FOR_3
    for (int64_t b = 0; b < at->attention.B; b++)
        for (int64_t k = 0; k < at->attention.K; k++)
            for (int64_t j = 0; j < at->attention.Tk; j++) key_grad(c, b, j, k);
}

const op_impl REF_IMPL(ATTENTION) = {attention_fwd, attention_bwd, NULL, attention_workspace};
