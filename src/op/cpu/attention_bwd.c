/* Attention, backward: probabilities are made again from lse, block by block.
 *
 *   P = m exp(S - lse);  dV += P^T dO;  dP = dO V^T;  dS = exp(S - lse) (m dP - delta) scale;
 *   dQ += dS K;  dK += dS^T Q;  delta = rowsum(dO O)
 *
 * A task is one kv head of one sequence: it owns the rows of dK and dV and walks the query heads of
 * its group and their blocks in order, so nothing is shared and every sum has one order. Workspace
 * per thread: Tk (3 D + 2 Dv) floats and blocks. FLOPs 2 (3 D + 2 Dv) per visible pair. */
#include "op/cpu/attention.h"
#include "op/cpu/attention_parts.h"

typedef struct bwd_buffers {
    float *k, *v, *kt;      /* panels [keys/R][D][R], [keys/R][Dv][R], [D/R][keys][R] */
    float *dk, *dv;         /* [keys, Dp], [keys, Dvp] */
    float *q, *go;          /* [D, Q], [Dv, Q]: queries (scaled) and dO, packed for S^T and dP^T */
    float *q_rows, *g_rows; /* [Dp/Q][Q][Q], [Dvp/Q][Q][Q]: the same, packed for dK and dV */
    float *p, *ds;          /* [ATT_KEYS, Q] */
    float *dq, *turned;     /* [Dr, Q], [Q, D] */
    float *p_rows, *ds_rows, *ds_keys; /* [ATT_KEYS, Q] in pairs of queries, queries, keys */
} bwd_buffers;

enum { BWD_PARTS = 16 };

static int64_t bwd_layout(const op_attr *at, float *base, bwd_buffers *b) {
    int64_t D = at->attention.D, Dv = at->attention.Dv, Dr = att_round(D, ATT_R);
    int64_t Dp = att_round(D, ATT_Q), Dvp = att_round(Dv, ATT_Q);
    int64_t Tk = att_round(at->attention.Tk, ATT_R);
    int64_t pairs = V_DOT_BF16 * ATT_KEYS * ATT_Q / 2;
    int64_t sizes[BWD_PARTS] = {Tk * D,
                                Tk * Dv,
                                Tk * Dr,
                                Tk * Dp,
                                Tk * Dvp,
                                D * ATT_Q,
                                Dv * ATT_Q,
                                Dp * ATT_Q,
                                Dvp * ATT_Q,
                                ATT_KEYS * ATT_Q,
                                ATT_KEYS * ATT_Q,
                                Dr * ATT_Q,
                                Dr * ATT_Q,
                                pairs,
                                pairs,
                                pairs};
    float *part[BWD_PARTS];
    int64_t total = 0;
    for (int i = 0; i < BWD_PARTS; i++) {
        part[i] = base ? base + total : NULL;
        total += att_round(sizes[i], 16);
    }
    if (b)
        *b = (bwd_buffers){part[0],  part[1],  part[2],  part[3], part[4],  part[5],
                           part[6],  part[7],  part[8],  part[9], part[10], part[11],
                           part[12], part[13], part[14], part[15]};
    return total;
}

V_INLINE void pack_keys(const op_call *c, const bwd_buffers *b, int64_t seq, int64_t kv, dtype dt) {
    const op_attr *at = c->attr;
    const tensor *k = &c->in[1], *v = &c->in[2];
    int64_t D = at->attention.D, Dv = at->attention.Dv, Tk = at->attention.Tk, row = seq * Tk;
    bool pairs = pack_pairs(dt);
    pack_k_contiguous(b->k, ATT_R, att_at(k, row, kv * D, dt), k->ld, Tk, D, dt, pairs);
    pack_k_contiguous(b->v, ATT_R, att_at(v, row, kv * Dv, dt), v->ld, Tk, Dv, dt, pairs);
    att_pack_over_keys(b->kt, k, row, kv * D, Tk, D, att_round(Tk, ATT_R), dt);
}

/* [Q queries, cols] in panels of ATT_Q columns; queries that do not exist are zero. */
V_INLINE void pack_query_rows(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                              int64_t cols, dtype dt) {
    int64_t units = att_units(ATT_Q, dt), used = att_units(rows, dt);
    for (int64_t d = 0; d < cols; d += ATT_Q) {
        float *panel = dst + d * units;
        pack_r_contiguous(panel, ATT_Q, att_at(t, row, col + d, dt), t->ld,
                          cols - d < ATT_Q ? cols - d : ATT_Q, rows, dt, pack_pairs(dt));
        for (int64_t i = used * ATT_Q; i < units * ATT_Q; i++) panel[i] = 0.0f;
    }
}

/* delta[r] = sum_d dO O of query r. */
V_INLINE void query_deltas(const op_call *c, const att_view *v, int64_t h, float *delta, dtype dt) {
    int64_t Dv = c->attr->attention.Dv, row = v->b * c->attr->attention.Tq + v->q0;
    const tensor *go = &c->dout[0], *o = &c->out[0];
    for (int64_t r = 0; r < ATT_Q; r++) {
        vf s = v_zero();
        int64_t a = (row + r) * go->ld + h * Dv, b = (row + r) * o->ld + h * Dv;
        for (int64_t d = 0; r < v->rows && d < Dv; d += VW) {
            int64_t n = Dv - d;
            if (n >= VW)
                s = v_fma(v_get(go->data, a + d, dt), v_get(o->data, b + d, dt), s);
            else
                s = v_fma(v_get_n(go->data, a + d, n, dt), v_get_n(o->data, b + d, n, dt), s);
        }
        delta[r] = v_sum(s);
    }
}

/* In: p = scores, ds = dO V^T. Out: p = m exp(s - lse), ds = its gradient. */
static void differentiate(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t h,
                          const float *lse, const float *delta, int64_t j0, int64_t n) {
    float scale = c->attr->attention.scale;
    bool drop = c->attr->attention.dropout > 0.0f;
    for (int q = 0; q < ATT_NV; q++) {
        vf l = v_load(lse + q * VW);
        for (int64_t j = 0; j < n; j++) {
            float *p = b->p + j * ATT_Q + q * VW;
            v_store(p, v_exp(v_load(p) - l));
        }
    }
    att_mask(v, b->p, j0, n, 0.0f);
    if (drop) att_drop(c, v, h, b->ds, j0, n);
    for (int q = 0; q < ATT_NV; q++) {
        vf dl = v_load(delta + q * VW);
        for (int64_t j = 0; j < n; j++) {
            float *ds = b->ds + j * ATT_Q + q * VW;
            v_store(ds, v_load(b->p + j * ATT_Q + q * VW) * (v_load(ds) - dl) * scale);
        }
    }
    if (drop) att_drop(c, v, h, b->p, j0, n);
    /* Where nothing is seen, infinite or NaN scores must not leave a trace. */
    att_mask(v, b->ds, j0, n, 0.0f);
}

V_INLINE void backward_block(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t h,
                             dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, Dr = att_round(D, ATT_R);
    int64_t Dp = att_round(D, ATT_Q), Dvp = att_round(Dv, ATT_Q);
    int64_t padded = att_round(at->attention.Tk, ATT_R), row = v->b * at->attention.Tq + v->q0;
    int64_t Du = att_units(D, dt), Dvu = att_units(Dv, dt), Qu = att_units(ATT_Q, dt);
    float lse[ATT_Q], delta[ATT_Q];
    const float *from =
        (const float *)c->out[1].data + (v->b * at->attention.H + h) * c->out[1].ld + v->q0;
    for (int64_t i = 0; i < ATT_Q; i++) lse[i] = i < v->rows ? from[i] : 0.0f;
    query_deltas(c, v, h, delta, dt);
    memset(b->dq, 0, (size_t)(Dr * ATT_Q) * sizeof(float));
    att_pack_queries(b->q, &c->in[0], row, h * D, v->rows, D, dt);
    att_pack_queries(b->go, &c->dout[0], row, h * Dv, v->rows, Dv, dt);
    pack_query_rows(b->q_rows, &c->in[0], row, h * D, v->rows, D, dt);
    pack_query_rows(b->g_rows, &c->dout[0], row, h * Dv, v->rows, Dv, dt);
    for (int64_t j0 = v->first; j0 < v->end; j0 += ATT_KEYS) {
        int64_t n = v->end - j0 < ATT_KEYS ? att_round(v->end - j0, ATT_R) : ATT_KEYS;
        for (int64_t j = 0; j < n; j += ATT_R) {
            att_tile_new(Du, b->k + (j0 + j) * Du, b->q, b->p + j * ATT_Q, at->attention.scale, dt);
            att_tile_new(Dvu, b->v + (j0 + j) * Dvu, b->go, b->ds + j * ATT_Q, 1.0f, dt);
        }
        differentiate(c, v, b, h, lse, delta, j0, n);
        const float *ds = att_pair_keys(b->ds_keys, b->ds, n, dt);
        for (int64_t d = 0; d < Dr; d += ATT_R)
            att_tile_add(att_units(n, dt),
                         b->kt + d * att_units(padded, dt) + att_units(j0, dt) * ATT_R, ds,
                         b->dq + d * ATT_Q, dt);
        const float *p_rows = att_pair_queries(b->p_rows, b->p, n, dt);
        const float *ds_rows = att_pair_queries(b->ds_rows, b->ds, n, dt);
        for (int64_t j = 0; j < n; j += ATT_R) {
            for (int64_t d = 0; d < Dvp; d += ATT_Q)
                att_tile_rows(p_rows + j * Qu, b->g_rows + d * Qu, b->dv + (j0 + j) * Dvp + d, Dvp,
                              dt);
            for (int64_t d = 0; d < Dp; d += ATT_Q)
                att_tile_rows(ds_rows + j * Qu, b->q_rows + d * Qu, b->dk + (j0 + j) * Dp + d, Dp,
                              dt);
        }
    }
    if (c->din[0].data)
        att_store_queries(&c->din[0], row, h * D, v->rows, D, b->dq, b->turned,
                          op_accumulates(c, 0), dt);
}

V_INLINE void store_keys(const op_call *c, int i, const float *x, int64_t ldx, int64_t row,
                         int64_t col, int64_t cols, dtype dt) {
    const tensor *t = &c->din[i];
    bool add = op_accumulates(c, i);
    if (!t->data) return;
    for (int64_t r = 0; r < c->attr->attention.Tk; r++) {
        for (int64_t d = 0; d < cols; d += VW) {
            int64_t at = (row + r) * t->ld + col + d, n = cols - d;
            vf v = v_load(x + r * ldx + d); /* rows of x are padded */
            if (n >= VW) {
                v_put(t->data, at, add ? v + v_get(t->data, at, dt) : v, dt);
            } else {
                if (add) v += v_get_n(t->data, at, n, dt);
                v_put_n(t->data, at, v, n, dt);
            }
        }
    }
}

V_INLINE void backward_head(const op_call *c, const bwd_buffers *b, int64_t seq, int64_t kv,
                            dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, Tk = at->attention.Tk;
    int64_t Dp = att_round(D, ATT_Q), Dvp = att_round(Dv, ATT_Q), padded = att_round(Tk, ATT_R);
    int64_t group = at->attention.H / at->attention.K;
    pack_keys(c, b, seq, kv, dt);
    memset(b->dk, 0, (size_t)(padded * Dp) * sizeof(float));
    memset(b->dv, 0, (size_t)(padded * Dvp) * sizeof(float));
    for (int64_t q = 0; q < at->attention.Tq; q += ATT_Q) {
        att_view v = att_look(c, seq, q);
        for (int64_t h = kv * group; h < (kv + 1) * group; h++) backward_block(c, &v, b, h, dt);
    }
    store_keys(c, 1, b->dk, Dp, seq * Tk, kv * D, D, dt);
    store_keys(c, 2, b->dv, Dvp, seq * Tk, kv * Dv, Dv, dt);
}

V_INLINE void attention_backward(const op_call *c, dtype dt) {
    const op_attr *at = c->attr;
    int64_t stride = bwd_layout(at, NULL, NULL), K = at->attention.K;
#pragma omp parallel for num_threads(att_threads(c)) schedule(dynamic)
    for (int64_t t = 0; t < at->attention.B * K; t++) {
        bwd_buffers b;
        bwd_layout(at, (float *)c->ws + omp_get_thread_num() * stride, &b);
        backward_head(c, &b, t / K, t % K, dt);
    }
}

void CPU_FN(attention_bwd_f32)(const op_call *c) {
    attention_backward(c, DT_F32);
}
void CPU_FN(attention_bwd_bf16)(const op_call *c) {
    attention_backward(c, DT_BF16);
}

int64_t CPU_FN(attention_bwd_floats)(const op_attr *at) {
    return bwd_layout(at, NULL, NULL);
}
