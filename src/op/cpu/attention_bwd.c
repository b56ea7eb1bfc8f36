/* Attention, backward: probabilities are made again from lse, block by block.
 *
 *   P = m exp(S - lse);  dV += P^T dO;  dP = dO V^T;  dS = exp(S - lse) (m dP - delta);
 *   dQ += dS K;  dK += dS^T Q;  delta = rowsum(dO O);  dQ and dK are scaled when they are stored
 *   with softcap c: dS (1 - (S / c)^2)
 *
 * A task is one kv head of one sequence with its query heads, or, where these are few tasks, with
 * some of its query heads. It walks blocks of queries and heads in order and owns a dK and a dV;
 * the parts of a kv head are added in order. So every sum has one order, whatever the threads.
 * Workspace: per thread Tk (3 D + 2 Dv) floats and blocks; with parts dK and dV per task instead.
 * FLOPs 2 (3 D + 2 Dv) per visible pair. */
#include "op/cpu/attention.h"
#include "op/cpu/attention_parts.h"

typedef struct bwd_buffers {
    float *k, *v;           /* panels [keys/R][D][R], [keys/R][Dv][R]: left operands of S^T, dP^T */
    float *k_rows;          /* [D/Q][keys][Q]: right operand of dQ */
    float *dkv;             /* dK [keys, Dp], dV [keys, Dvp] of a task */
    float *q, *go;          /* [D, Q], [Dv, Q]: queries and dO, right operands of S^T and dP^T */
    float *q_rows, *g_rows; /* [D/Q][Q][Q], [Dv/Q][Q][Q]: the same for dK and dV */
    float *s, *dp;          /* [ATT_KEYS, Q]; without pairs P and dS replace them */
    float *p_rows, *ds_rows, *ds_keys; /* P, dS in pairs of queries; dS in pairs of keys */
    float *keep;                       /* dropout factors [ATT_KEYS, Q], or NULL */
    float *dq;                         /* [Q, Dp] */
} bwd_buffers;

enum { BWD_PARTS = 15, BWD_TASKS = 6 };

/* Tasks per kv head: a divisor of its query heads that makes BWD_TASKS tasks, or all of them. It
 * follows from the shape alone, not from the threads. Few tasks keep few threads evenly busy, but
 * parts take 3 % longer at T = 2048. */
static int64_t bwd_parts(const op_attr *at) {
    int64_t kv_heads = (int64_t)at->attention.B * at->attention.K, parts = 1;
    int64_t group = at->attention.H / at->attention.K;
    while (parts < group && (group % parts != 0 || kv_heads * parts < BWD_TASKS)) parts++;
    return parts;
}

/* Floats of dK and dV of a task. */
static int64_t grad_floats(const op_attr *at) {
    return att_round(at->attention.Tk, ATT_R) *
           (att_round(at->attention.D, VW) + att_round(at->attention.Dv, VW));
}

static int64_t bwd_layout(const op_attr *at, dtype dt, float *base, bwd_buffers *b) {
    int64_t D = at->attention.D, Dv = at->attention.Dv, block = ATT_KEYS * ATT_Q;
    int64_t Dp = att_round(D, VW), pairs = V_DOT_BF16 * block / 2;
    int64_t Dr = att_round(D, ATT_Q), Dvr = att_round(Dv, ATT_Q);
    int64_t Tk = att_round(at->attention.Tk, ATT_R);
    int64_t keep = at->attention.dropout > 0.0f ? block : 0;
    int64_t grads = bwd_parts(at) == 1 ? grad_floats(at) : 0;
    int64_t sizes[BWD_PARTS] = {Tk * D,     Tk * Dv,    Tk * Dr,     grads, D * ATT_Q,
                                Dv * ATT_Q, Dr * ATT_Q, Dvr * ATT_Q, block, block,
                                pairs,      pairs,      pairs,       keep,  ATT_Q * Dp};
    float *part[BWD_PARTS];
    int64_t total = 0;
    for (int i = 0; i < BWD_PARTS; i++) {
        part[i] = base ? base + total : NULL;
        total += att_round(sizes[i], 16);
    }
    if (b) {
        *b = (bwd_buffers){part[0],  part[1],  part[2],  part[3],  part[4],
                           part[5],  part[6],  part[7],  part[8],  part[9],
                           part[10], part[11], part[12], part[13], part[14]};
        if (!pack_pairs(dt)) b->p_rows = b->s, b->ds_rows = b->ds_keys = b->dp;
        if (!keep) b->keep = NULL;
    }
    return total;
}

V_INLINE void pack_keys(const op_call *c, const bwd_buffers *b, int64_t seq, int64_t kv, dtype dt) {
    const op_attr *at = c->attr;
    const tensor *k = &c->in[1], *v = &c->in[2];
    int64_t D = at->attention.D, Dv = at->attention.Dv, Tk = at->attention.Tk, row = seq * Tk;
    att_pack_keys(b->k, k, row, kv * D, Tk, D, dt);
    att_pack_keys(b->v, v, row, kv * Dv, Tk, Dv, dt);
    att_pack_rows(b->k_rows, k, row, kv * D, Tk, D, att_round(Tk, ATT_R), dt);
}

V_INLINE void pack_block(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t h,
                         dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, row = v->b * at->attention.Tq + v->q0;
    att_pack_queries(b->q, &c->in[0], row, h * D, v->rows, D, dt);
    att_pack_queries(b->go, &c->dout[0], row, h * Dv, v->rows, Dv, dt);
    att_pack_rows(b->q_rows, &c->in[0], row, h * D, v->rows, D, ATT_Q, dt);
    att_pack_rows(b->g_rows, &c->dout[0], row, h * Dv, v->rows, Dv, ATT_Q, dt);
}

/* What backward knows of each query of a block: lse in units of log 2, and sum_d dO O. */
typedef struct bwd_state {
    float lse[ATT_Q], delta[ATT_Q];
    float per_cap; /* 1 / softcap, of scores in units of log 2; 0: none */
} bwd_state;

V_INLINE void look_back(const op_call *c, const att_view *v, int64_t h, bwd_state *st, dtype dt) {
    const op_attr *at = c->attr;
    const tensor *go = &c->dout[0], *o = &c->out[0];
    int64_t Dv = at->attention.Dv, row = v->b * at->attention.Tq + v->q0;
    const float *lse =
        (const float *)c->out[1].data + (v->b * at->attention.H + h) * c->out[1].ld + v->q0;
    float lanes[ATT_Q * VW], turned[VW * ATT_Q], cap = at->attention.softcap;
    st->per_cap = cap > 0.0f ? ATT_LN2 / cap : 0.0f;
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
        v_store(lanes + r * VW, s);
        st->lse[r] = r < v->rows ? lse[r] * ATT_LOG2E : 0.0f;
    }
    /* Turned, the lanes of all queries are summed at once. */
    pack_transposed(turned, ATT_Q, lanes, VW, ATT_Q, VW, DT_F32, false);
    for (int q = 0; q < ATT_Q; q += VW) {
        vf s = v_load(turned + q);
        for (int i = 1; i < VW; i++) s += v_load(turned + i * ATT_Q + q);
        v_store(st->delta + q, s);
    }
}

typedef struct grad_pair {
    vf p, ds;
} grad_pair;

/* P and dS of key j and vector q. What is not seen is 0, whatever its score: infinite or NaN scores
 * must not leave a trace. */
V_INLINE grad_pair differentiate(const att_view *v, const bwd_buffers *b, const bwd_state *st,
                                 int64_t j0, int64_t j, int q, bool masked, bool drop, bool cap,
                                 dtype dt) {
    int64_t at = j * ATT_Q + q * VW;
    vf s = v_load(b->s + at), p = att_exp2(s - v_load(st->lse + q * VW), pack_pairs(dt));
    vf dp = v_load(b->dp + at), keep = drop ? v_load(b->keep + at) : v_zero();
    if (drop) dp *= keep;
    grad_pair g = {p, p * (dp - v_load(st->delta + q * VW))};
    if (cap) g.ds *= 1.0f - (s * st->per_cap) * (s * st->per_cap);
    if (drop) g.p *= keep;
    if (masked) {
        vi seen = att_sees(v, q, j0 + j);
        g.p = v_select(seen, g.p, v_zero());
        g.ds = v_select(seen, g.ds, v_zero());
    }
    return g;
}

/* P and dS of keys [j0 + from, j0 + to), as operands of the three products they enter. */
V_INLINE void differentiate_keys(const att_view *v, const bwd_buffers *b, const bwd_state *st,
                                 int64_t j0, int64_t from, int64_t to, bool masked, bool drop,
                                 bool cap, dtype dt) {
    for (int64_t j = from; j < to; j += 2) {
        grad_pair g[2][ATT_NV];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
#pragma GCC unroll 4
            for (int q = 0; q < ATT_NV; q++) {
                g[i][q] = differentiate(v, b, st, j0, j + i, q, masked, drop, cap, dt);
                if (pack_pairs(dt)) continue;
                v_store(b->s + (j + i) * ATT_Q + q * VW, g[i][q].p);
                v_store(b->dp + (j + i) * ATT_Q + q * VW, g[i][q].ds);
            }
        }
#if V_DOT_BF16
        if (!pack_pairs(dt)) continue;
        __m512i ds[2];
        for (int i = 0; i < 2; i++) {
            int64_t at = (j + i) * ATT_Q / 2;
            ds[i] = att_round_row(g[i][0].ds, g[i][1].ds);
            _mm512_storeu_si512(b->p_rows + at, att_round_row(g[i][0].p, g[i][1].p));
            _mm512_storeu_si512(b->ds_rows + at, ds[i]);
        }
        att_pair_keys(b->ds_keys + j / 2 * ATT_Q, ds[0], ds[1]);
#endif
    }
}

V_INLINE void differentiate_block(const att_view *v, const bwd_buffers *b, const bwd_state *st,
                                  int64_t j0, int64_t n, bool drop, bool cap, dtype dt) {
    int64_t border[2];
    att_border(v, j0, n, border);
    /* In pairs of keys. */
    int64_t open = att_round(border[0], 2), close = att_max(open, border[1] / 2 * 2);
    differentiate_keys(v, b, st, j0, 0, open, true, drop, cap, dt);
    differentiate_keys(v, b, st, j0, open, close, false, drop, cap, dt);
    differentiate_keys(v, b, st, j0, close, n, true, drop, cap, dt);
}

V_INLINE void differentiate_scores(const att_view *v, const bwd_buffers *b, const bwd_state *st,
                                   int64_t j0, int64_t n, bool cap, dtype dt) {
    if (b->keep)
        differentiate_block(v, b, st, j0, n, true, cap, dt);
    else
        differentiate_block(v, b, st, j0, n, false, cap, dt);
}

/* A share of what the next block reads, and of where dQ of this one goes. */
V_INLINE void prefetch_share(const op_call *c, const att_view *v, int64_t h, int64_t part,
                             int64_t parts, dtype dt) {
    int64_t D = c->attr->attention.D, Dv = c->attr->attention.Dv;
    int64_t row = v->b * c->attr->attention.Tq + v->q0;
    att_block next = att_next(c, v, h);
    if (c->din[0].data) att_prefetch_share(&c->din[0], row, h * D, v->rows, D, part, parts, dt);
    att_prefetch_share(&c->in[0], next.row, next.h * D, next.rows, D, part, parts, dt);
    att_prefetch_share(&c->dout[0], next.row, next.h * Dv, next.rows, Dv, part, parts, dt);
    att_prefetch_share(&c->out[0], next.row, next.h * Dv, next.rows, Dv, part, parts, dt);
}

/* S and dP of keys [j0, j0 + n). */
V_INLINE void score_keys(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t h,
                         int64_t j0, int64_t n, dtype dt) {
    const op_attr *at = c->attr;
    int64_t Du = att_units(at->attention.D, dt), Dvu = att_units(at->attention.Dv, dt);
    float scale = att_score_scale(at);
    for (int64_t j = 0; j < n; j += ATT_R) {
        int skip = att_skip(v, j0 + j);
        int64_t to = j * ATT_Q + skip * VW;
        if (j0 == v->first) prefetch_share(c, v, h, j / ATT_R, n / ATT_R, dt);
        att_scores(Du, b->k + (j0 + j) * Du, b->q + skip * VW, b->s + to, scale, v->vecs - skip,
                   dt);
        att_scores(Dvu, b->v + (j0 + j) * Dvu, b->go + skip * VW, b->dp + to, 1.0f, v->vecs - skip,
                   dt);
    }
    if (at->attention.softcap > 0.0f) att_cap_scores(at, b->s, n);
}

/* dq += dS K for keys [j0, j0 + n), each tile of queries as far as it sees. */
V_INLINE void add_dq(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t j0,
                     int64_t n, dtype dt) {
    int64_t D = c->attr->attention.D, Dp = att_round(D, VW);
    int64_t units = att_units(att_round(c->attr->attention.Tk, ATT_R), dt);
    for (int64_t d = 0; d < D; d += ATT_Q) {
        const float *keys = b->k_rows + d * units + att_units(j0, dt) * ATT_Q;
        for (int64_t i = 0; i < v->rows; i += ATT_R) {
            int64_t seen = att_min(v->tile_end[i / ATT_R] - j0, n);
            if (seen > 0)
                att_mix(att_units(seen, dt), b->ds_keys + i, keys, b->dq + i * Dp + d, Dp,
                        att_vectors(D - d), dt);
        }
    }
}

/* x [keys, cols] += a^T y over the queries that may see each tile of keys. */
V_INLINE void add_over_queries(const att_view *v, const float *a, const float *y, float *x,
                               int64_t cols, int64_t j0, int64_t n, dtype dt) {
    int64_t row = att_units(ATT_Q, dt), ldx = att_round(cols, VW), end = att_units(v->rows, dt);
    for (int64_t j = 0; j < n; j += ATT_R) {
        int64_t skip = att_units(att_skip(v, j0 + j) * VW, dt);
        for (int64_t d = 0; d < cols; d += ATT_Q)
            att_gather(end - skip, a + j * row + skip, y + d * row + skip * ATT_Q,
                       x + (j0 + j) * ldx + d, ldx, att_vectors(cols - d), dt);
    }
}

V_INLINE void backward_block(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t h,
                             dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, Dp = att_round(D, VW);
    float *dv = b->dkv + att_round(at->attention.Tk, ATT_R) * Dp;
    bwd_state st;
    look_back(c, v, h, &st, dt);
    memset(b->dq, 0, (size_t)(ATT_Q * Dp) * sizeof(float));
    pack_block(c, v, b, h, dt);
    for (int64_t j0 = v->first; j0 < v->end; j0 += ATT_KEYS) {
        int64_t n = att_min(att_round(v->end - j0, ATT_R), ATT_KEYS);
        score_keys(c, v, b, h, j0, n, dt);
        if (b->keep) att_draw(c, v, h, b->keep, j0, n);
        if (st.per_cap > 0.0f)
            differentiate_scores(v, b, &st, j0, n, true, dt);
        else
            differentiate_scores(v, b, &st, j0, n, false, dt);
        add_dq(c, v, b, j0, n, dt);
        add_over_queries(v, b->ds_rows, b->q_rows, b->dkv, D, j0, n, dt);
        add_over_queries(v, b->p_rows, b->g_rows, dv, Dv, j0, n, dt);
    }
    if (!c->din[0].data) return;
    for (int64_t i = 0; i < v->rows; i++)
        att_store_row(&c->din[0], v->b * at->attention.Tq + v->q0 + i, h * D, D, b->dq + i * Dp,
                      at->attention.scale, op_accumulates(c, 0), dt);
}

/* Stores rows [from, to) of dK and dV of a kv head, each the sum of its parts in order. */
V_INLINE void store_keys(const op_call *c, int64_t seq, int64_t kv, int64_t from, int64_t to,
                         float *dkv, int64_t parts, dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, stride = grad_floats(at);
    int64_t Dp = att_round(D, VW), Dvp = att_round(Dv, VW);
    int64_t dv_at = att_round(at->attention.Tk, ATT_R) * Dp, row = seq * at->attention.Tk;
    for (int64_t j = from; j < to; j++) {
        float *dk = dkv + j * Dp, *dv = dkv + dv_at + j * Dvp;
        for (int64_t p = 1; p < parts; p++) {
            for (int64_t d = 0; d < Dp; d++) dk[d] += dk[p * stride + d];
            for (int64_t d = 0; d < Dvp; d++) dv[d] += dv[p * stride + d];
        }
        if (c->din[1].data)
            att_store_row(&c->din[1], row + j, kv * D, D, dk, at->attention.scale,
                          op_accumulates(c, 1), dt);
        if (c->din[2].data)
            att_store_row(&c->din[2], row + j, kv * Dv, Dv, dv, 1.0f, op_accumulates(c, 2), dt);
    }
}

/* One part of the query heads of a kv head. */
V_INLINE void backward_part(const op_call *c, const bwd_buffers *b, int64_t seq, int64_t kv,
                            int64_t part, int64_t parts, dtype dt) {
    const op_attr *at = c->attr;
    int64_t group = at->attention.H / at->attention.K, heads = group / parts;
    int64_t first = kv * group + part * heads;
    pack_keys(c, b, seq, kv, dt);
    memset(b->dkv, 0, (size_t)grad_floats(at) * sizeof(float));
    for (int64_t q = 0; q < at->attention.Tq; q += ATT_Q) {
        att_view v = att_look(c, seq, q);
        v.h0 = first, v.h1 = first + heads;
        for (int64_t h = v.h0; h < v.h1; h++) backward_block(c, &v, b, h, dt);
    }
}

void CPU_FN(attention_bwd)(const op_call *c) {
    dtype dt = c->dout[0].dt;
    enum { ROWS = 256 }; /* rows of keys that are stored at a time */
    const op_attr *at = c->attr;
    int64_t stride = bwd_layout(at, dt, NULL, NULL), K = at->attention.K, Tk = at->attention.Tk;
    int64_t parts = bwd_parts(at), heads = at->attention.B * K, blocks = (Tk + ROWS - 1) / ROWS;
    float *grads = (float *)c->ws + call_threads(c) * stride;
#pragma omp parallel for num_threads(att_threads(c)) schedule(dynamic)
    for (int64_t t = 0; t < heads * parts; t++) {
        bwd_buffers b;
        bwd_layout(at, dt, (float *)c->ws + omp_get_thread_num() * stride, &b);
        if (parts > 1) b.dkv = grads + t * grad_floats(at);
        WITH_DTYPE(dt, backward_part, c, &b, t / parts / K, t / parts % K, t % parts, parts);
        if (parts == 1) WITH_DTYPE(dt, store_keys, c, t / K, t % K, 0, Tk, b.dkv, 1);
    }
    if (parts == 1) return;
#pragma omp parallel for num_threads(att_threads(c)) schedule(static)
    for (int64_t t = 0; t < heads * blocks; t++) {
        int64_t head = t / blocks, from = t % blocks * ROWS;
        WITH_DTYPE(dt, store_keys, c, head / K, head % K, from, att_min(from + ROWS, Tk),
                   grads + head * parts * grad_floats(at), parts);
    }
}

int64_t CPU_FN(attention_bwd_floats)(const op_attr *at, int threads) {
    int64_t parts = bwd_parts(at), tasks = at->attention.B * at->attention.K * parts;
    return threads * bwd_layout(at, DT_F32, NULL, NULL) + (parts > 1 ? tasks * grad_floats(at) : 0);
}
