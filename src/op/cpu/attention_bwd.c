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
#include "op/cpu/parts.h"

typedef struct bwd_buffers {
    /* With tiles K and V are as attention_amx.h says, and dQ is [Dp, Q]. */
    float *k, *v;           /* panels [keys/PANEL][D][PANEL]: left operands of S^T, dP^T */
    float *k_rows;          /* [D/Q][keys][Q]: right operand of dQ */
    float *dkv;             /* dK [keys, Dp], dV [keys, Dvp] of a task */
    float *q, *go;          /* [D, Q], [Dv, Q]: queries and dO, right operands of S^T and dP^T */
    float *q_rows, *g_rows; /* [D/Q][Q][Q], [Dv/Q][Q][Q]: the same for dK and dV */
    float *s, *dp;          /* [ATT_KEYS, Q]; without pairs P and dS replace them */
    float *p_rows, *ds_rows, *ds_keys; /* P, dS in pairs of queries; dS in pairs of keys */
    float *keep;                       /* dropout factors [ATT_KEYS, Q], or NULL */
    float *dq;                         /* [Q, Dp] */
    const float *line;                 /* of the bias of a head (attention_bias.h), or NULL */
    float *line_grad;                  /* its gradient, or NULL */
    att_fetch fetch;                   /* while a block is computed */
} bwd_buffers;

/* A task and the one after it; no queries: none is known. */
typedef struct bwd_plan {
    att_task task, next;
} bwd_plan;

/* Vectors that are differentiated together: those that share a vector of bf16. */
enum { TOGETHER = V_DOT_BF16 ? 2 : 1 };
enum { BWD_PARTS = 15, BWD_TASKS = 6, FETCH_STEPS = 4 * ATT_TILES };

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
    return att_round(at->attention.Tk, ATT_PANEL) *
           (att_round(at->attention.D, VW) + att_round(at->attention.Dv, VW));
}

static int64_t bwd_layout(const op_attr *at, float *base, bwd_buffers *b) {
    int64_t D = at->attention.D, Dv = at->attention.Dv, block = att_block_keys(at) * ATT_Q;
    int64_t pairs = V_DOT_BF16 * block / 2;
    int64_t Dr = att_round(D, ATT_Q), Dvr = att_round(Dv, ATT_Q);
    int64_t Tk = att_round(at->attention.Tk, ATT_PANEL);
    int64_t keep = at->attention.dropout > 0.0f ? block : 0;
    int64_t grads = bwd_parts(at) == 1 ? grad_floats(at) : 0;
    int64_t sizes[BWD_PARTS] = {Tk * att_left_floats(D),
                                Tk * att_left_floats(Dv),
                                Tk * att_turned_floats(D),
                                grads,
                                att_right_floats(D),
                                att_right_floats(Dv),
                                Dr * ATT_Q,
                                Dvr * ATT_Q,
                                block,
                                block,
                                pairs,
                                pairs,
                                pairs,
                                keep,
                                att_result_floats(D)};
    float *part[BWD_PARTS];
    int64_t total = 0;
    for (int i = 0; i < BWD_PARTS; i++) {
        part[i] = base ? base + total : NULL;
        total += att_round(sizes[i], 16);
    }
    if (b) {
        *b = (bwd_buffers){.k = part[0],
                           .v = part[1],
                           .k_rows = part[2],
                           .dkv = part[3],
                           .q = part[4],
                           .go = part[5],
                           .q_rows = part[6],
                           .g_rows = part[7],
                           .s = part[8],
                           .dp = part[9],
                           .p_rows = part[10],
                           .ds_rows = part[11],
                           .ds_keys = part[12],
                           .keep = part[13],
                           .dq = part[14]};
        if (!V_DOT_BF16) b->p_rows = b->s, b->ds_rows = b->ds_keys = b->dp;
        if (!keep) b->keep = NULL;
    }
    return total;
}

V_INLINE void pack_keys(const op_call *c, const bwd_buffers *b, int64_t seq, int64_t kv) {
    const op_attr *at = c->attr;
    const tensor *k = &c->in[1], *v = &c->in[2];
    int64_t D = at->attention.D, Dv = at->attention.Dv, Tk = at->attention.Tk, row = seq * Tk;
    att_pack_left(b->k, k, row, kv * D, Tk, D);
    att_pack_left(b->v, v, row, kv * Dv, Tk, Dv);
    att_pack_turned(b->k_rows, k, row, kv * D, Tk, D, b->q);
}

V_INLINE void pack_block(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t h) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, row = v->b * at->attention.Tq + v->q0;
    att_pack_right(b->q, &c->in[0], row, h * D, v->rows, D);
    att_pack_right(b->go, &c->dout[0], row, h * Dv, v->rows, Dv);
    att_pack_rows(b->q_rows, &c->in[0], row, h * D, v->rows, D, ATT_Q);
    att_pack_rows(b->g_rows, &c->dout[0], row, h * Dv, v->rows, Dv, ATT_Q);
}

/* What backward knows of each query of a block: -lse in units of log 2, and sum_d dO O. */
typedef struct bwd_state {
    float minus_lse[ATT_Q], delta[ATT_Q];
    float per_cap; /* 1 / softcap, of scores in units of log 2; 0: none */
    float scale;   /* with which the scores of a block are still to be multiplied */
} bwd_state;

/* lanes[r] = the sum over d of dO O, in parts: one per lane. */
V_INLINE void multiply_rows_as(const tensor *go, const tensor *o, int64_t row, int64_t col,
                               int64_t rows, int64_t cols, float *lanes, dtype dt) {
    for (int64_t r = 0; r < rows; r++) {
        vf s = v_zero();
        FOR_VECTORS(cols, d, n)
        s = v_fma(row_get(go, row + r, col + d, n, dt), row_get(o, row + r, col + d, n, dt), s);
        v_store(lanes + r * VW, s);
    }
}
ATT_TILE multiply_rows(const tensor *go, const tensor *o, int64_t row, int64_t col, int64_t rows,
                       int64_t cols, float *lanes) {
    WITH_DTYPE(go->dt, multiply_rows_as, go, o, row, col, rows, cols, lanes);
}

V_INLINE void look_back(const op_call *c, const att_view *v, int64_t h, bwd_state *st) {
    const op_attr *at = c->attr;
    int64_t Dv = at->attention.Dv, row = v->b * at->attention.Tq + v->q0;
    const float *lse =
        (const float *)c->out[1].data + (v->b * at->attention.H + h) * c->out[1].ld + v->q0;
    float lanes[ATT_Q * VW] = {0}, turned[VW * ATT_Q], cap = at->attention.softcap;
    st->per_cap = cap > 0.0f ? ATT_LN2 / cap : 0.0f;
    multiply_rows(&c->dout[0], &c->out[0], row, h * Dv, v->rows, Dv, lanes);
    /* Lanes without a query get the probability 0, whatever the bias is. */
    for (int64_t r = 0; r < ATT_Q; r++)
        st->minus_lse[r] = r < v->rows ? lse[r] * -ATT_LOG2E : -1e30f;
    /* Turned, the lanes of all queries are summed at once. */
    pack_transposed(turned, ATT_Q, lanes, VW, ATT_Q, VW, DT_F32);
    for (int q = 0; q < ATT_Q; q += VW) {
        vf s = v_load(turned + q);
        for (int i = 1; i < VW; i++) s += v_load(turned + i * ATT_Q + q);
        v_store(st->delta + q, s);
    }
}

/* The same of a vector of them. */
typedef struct bwd_lanes {
    vf minus_lse, delta, per_cap, scale;
} bwd_lanes;

typedef struct grad_pair {
    vf p, ds;
} grad_pair;

/* P and dS of vector q and key j of a block. What is not seen is 0, whatever its score: infinite or NaN scores
 * must not leave a trace. */
V_INLINE grad_pair differentiate(const att_view *v, const bwd_buffers *b, const bwd_lanes *l,
                                 int64_t j0, int64_t j, int q, bool masked, bool drop, bool cap) {
    int64_t at = j * ATT_Q + q * VW;
    vf s = v_load(b->s + at), p = att_exp2(v_fma(s, l->scale, l->minus_lse), V_DOT_BF16);
    vf dp = v_load(b->dp + at), keep = drop ? v_load(b->keep + at) : v_zero();
    if (drop) dp *= keep;
    grad_pair g = {p, p * (dp - l->delta)};
    if (cap) g.ds *= 1.0f - (s * l->per_cap) * (s * l->per_cap);
    if (drop) g.p *= keep;
    if (masked) {
        vi seen = att_sees(v, q, j0 + j);
        g.p = v_select(seen, g.p, v_zero());
        g.ds = v_select(seen, g.ds, v_zero());
    }
    return g;
}

/* The gradient of the bias is dS, summed by distance. */
V_INLINE void add_to_line(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t key,
                          int q, vf ds) {
    int64_t first = att_query_position(c, v->b, v->q0);
    float *to = b->line_grad + att_line_at(c, first + q * VW, key);
    v_store(to, v_load(to) + ds);
}

#if V_DOT_BF16
/* Of two keys' rows of TOGETHER vectors, the pairs of keys of the first vector, or of the second. */
V_INLINE __m512i pair_rows(__m512i key, __m512i next, int second) {
    static const uint16_t order[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                       37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                       11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i from = _mm512_add_epi16(_mm512_loadu_si512(order), _mm512_set1_epi16(second ? 16 : 0));
    return _mm512_permutex2var_epi16(key, from, next);
}
#endif

/* P and dS of two keys, j and the next, and TOGETHER vectors, as operands of the three products they enter. */
V_INLINE void put_two(const bwd_buffers *b, int64_t j, int q, grad_pair g[2][TOGETHER]) {
#if V_DOT_BF16
    __m512i ds[2];
    for (int i = 0; i < 2; i++) {
        int64_t at = ((j + i) * ATT_Q + q * VW) / 2;
        ds[i] = att_round_two(g[i][0].ds, g[i][1].ds);
        _mm512_storeu_si512(b->p_rows + at, att_round_two(g[i][0].p, g[i][1].p));
        _mm512_storeu_si512(b->ds_rows + at, ds[i]);
    }
    for (int k = 0; k < TOGETHER; k++)
        _mm512_storeu_si512(b->ds_keys + j / 2 * ATT_Q + (q + k) * VW, pair_rows(ds[0], ds[1], k));
#else
    for (int i = 0; i < 2; i++) {
        v_store(b->s + (j + i) * ATT_Q + q * VW, g[i][0].p);
        v_store(b->dp + (j + i) * ATT_Q + q * VW, g[i][0].ds);
    }
#endif
}

/* Keys [j0 + from, j0 + to) of TOGETHER vectors from q on; in fours. */
V_INLINE void differentiate_keys_as(const op_call *c, const att_view *v, const bwd_buffers *b,
                                    const bwd_state *st, int64_t j0, int64_t from, int64_t to,
                                    int q, bool masked, bool drop, bool cap, bool bias) {
    bwd_lanes lanes[TOGETHER];
    for (int k = 0; k < TOGETHER; k++)
        lanes[k] =
            (bwd_lanes){v_load(st->minus_lse + (q + k) * VW), v_load(st->delta + (q + k) * VW),
                        v_set1(st->per_cap), v_set1(st->scale)};
    for (int64_t j = from; j < to; j += 4) {
        grad_pair g[4][TOGETHER];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int k = 0; k < TOGETHER; k++) {
                g[i][k] = differentiate(v, b, &lanes[k], j0, j + i, q + k, masked, drop, cap);
                if (bias && q + k < v->vecs) add_to_line(c, v, b, j0 + j + i, q + k, g[i][k].ds);
            }
        put_two(b, j, q, g);
        put_two(b, j + 2, q, g + 2);
    }
}

/* Twice: with every case decided as it comes, and for what nearly all keys are, where none occurs. */
ATT_TILE differentiate_keys(const op_call *c, const att_view *v, const bwd_buffers *b,
                            const bwd_state *st, int64_t j0, int64_t from, int64_t to, int q,
                            bool masked) {
    bool drop = b->keep != NULL, cap = st->per_cap > 0.0f, bias = b->line_grad != NULL;
    const bwd_buffers own = *b; /* its members stay in registers, whatever is written */
    if (masked || drop || cap || bias)
        differentiate_keys_as(c, v, &own, st, j0, from, to, q, masked, drop, cap, bias);
    else
        differentiate_keys_as(c, v, &own, st, j0, from, to, q, false, false, false, false);
}

V_INLINE void differentiate_block(const op_call *c, const att_view *v, const bwd_buffers *b,
                                  const bwd_state *st, int64_t j0, int64_t n) {
    for (int q = 0; q < v->vecs; q += TOGETHER) {
        att_border seen = att_border_of(v, q, TOGETHER, j0, n);
        int64_t open = att_min(att_round(seen.from, 4), seen.keys);
        int64_t close = att_max(open, att_min(seen.to, seen.keys) / 4 * 4);
        differentiate_keys(c, v, b, st, j0, 0, open, q, true);
        differentiate_keys(c, v, b, st, j0, open, close, q, false);
        differentiate_keys(c, v, b, st, j0, close, seen.keys, q, true);
    }
}

/* Where dQ of this block goes, what the next one reads, and a share of the keys and values of the
 * next task and of where dK and dV of this one go. */
V_INLINE void fetch_for(const op_call *c, const att_view *v, bwd_buffers *b, const bwd_plan *p,
                        int64_t h) {
    const op_attr *at = c->attr;
    const att_task *t = &p->task;
    int64_t D = at->attention.D, Dv = at->attention.Dv, Tk = at->attention.Tk;
    int64_t block = att_task_block(t, v->q0, h);
    int64_t blocks = att_task_blocks(t), rows = p->next.q0 < p->next.q1 ? Tk : 0;
    att_block next = att_next(c, t, &p->next, v->q0, h);
    att_fetch *f = &b->fetch;
    *f = (att_fetch){.n = 0};
    att_fetch_rows(f, &c->din[0], v->b * at->attention.Tq + v->q0, h * D, v->rows, D);
    att_fetch_rows(f, &c->in[0], next.row, next.h * D, next.rows, D);
    att_fetch_rows(f, &c->dout[0], next.row, next.h * Dv, next.rows, Dv);
    att_fetch_rows(f, &c->out[0], next.row, next.h * Dv, next.rows, Dv);
    att_fetch_share(f, &c->in[1], p->next.b * Tk, p->next.kv * D, rows, D, block, blocks);
    att_fetch_share(f, &c->in[2], p->next.b * Tk, p->next.kv * Dv, rows, Dv, block, blocks);
    att_fetch_share(f, &c->din[1], t->b * Tk, t->kv * D, Tk, D, block, blocks);
    att_fetch_share(f, &c->din[2], t->b * Tk, t->kv * Dv, Tk, Dv, block, blocks);
    att_fetch_in(f, (v->end - v->first) / ATT_PANEL * FETCH_STEPS);
}

/* S, not scaled, and dP of keys [j0, j0 + n). */
V_INLINE void score_keys(const op_call *c, const att_view *v, bwd_buffers *b, int64_t j0,
                         int64_t n) {
    int64_t D = c->attr->attention.D, Dv = c->attr->attention.Dv;
    /* One after the other: the queries stay in the first-level cache, then dO. */
    for (int64_t j = 0; j < n; j += ATT_PANEL)
        att_score_panel(v, &b->fetch, b->k, D, j0 + j, b->q, b->s + j * ATT_Q, j0 + j);
    for (int64_t j = 0; j < n; j += ATT_PANEL)
        att_score_panel(v, &b->fetch, b->v, Dv, j0 + j, b->go, b->dp + j * ATT_Q, j0 + j);
}

/* dq (+)= dS K for keys [j0, j0 + n); the first keys make it. */
V_INLINE void add_dq(const op_call *c, const att_view *v, const bwd_buffers *b, int64_t j0,
                     int64_t n) {
    int64_t D = c->attr->attention.D;
    bool add = j0 > v->first;
#if V_AMX
    amx_mix(b->k_rows, j0, D, b->ds_keys, b->dq, n, add);
#else
    int64_t units = att_units(att_round(c->attr->attention.Tk, ATT_PANEL));
    for (int64_t d = 0; d < D; d += ATT_Q)
        att_mix_panel(v, j0, n, b->ds_keys, b->k_rows + d * units + att_units(j0) * ATT_Q,
                      b->dq + d, att_round(D, VW), add, att_vectors(D - d));
#endif
}

/* x [keys, cols] += a^T y over the queries that may see each panel of keys. */
V_INLINE void add_over_queries(const att_view *v, att_fetch *f, const float *a, const float *y,
                               float *x, int64_t cols, int64_t j0, int64_t n) {
    int64_t ldx = att_round(cols, VW);
#if V_AMX
    (void)v;
    for (int64_t j = 0; j < n; j += ATT_PANEL) {
        att_fetch_step(f);
        amx_gather(a + j * ATT_Q / 2, y, x + (j0 + j) * ldx, cols, ATT_PANEL);
    }
#else
    int64_t row = att_units(ATT_Q), end = att_units(v->rows);
    for (int64_t d = 0; d < cols; d += ATT_Q) {
        int nv = att_vectors(cols - d);
        for (int64_t j = 0; j < n; j += ATT_PANEL) {
            int64_t skip = att_units(att_skip(v, j0 + j) * VW);
            for (int r = 0, rows; r < ATT_PANEL; r += rows) {
                rows = att_rows(r, nv);
                att_fetch_step(f);
                att_gather(end - skip, a + (j + r) * row + skip, y + d * row + skip * ATT_Q,
                           x + (j0 + j + r) * ldx + d, ldx, rows, nv);
            }
        }
    }
#endif
}

V_INLINE void backward_block(const op_call *c, const att_view *v, bwd_buffers *b, const bwd_plan *p,
                             int64_t h) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, Dp = att_round(D, VW);
    float *dv = b->dkv + att_round(at->attention.Tk, ATT_PANEL) * Dp;
    bwd_state st;
    look_back(c, v, h, &st);
    if (v->first >= v->end) memset(b->dq, 0, (size_t)(ATT_Q * Dp) * sizeof(float));
    pack_block(c, v, b, h);
    fetch_for(c, v, b, p, h);
    for (int64_t j0 = v->first; j0 < v->end; j0 += ATT_KEYS) {
        int64_t n = att_min(att_round(v->end - j0, ATT_PANEL), ATT_KEYS);
        score_keys(c, v, b, j0, n);
        st.scale = att_cap_scores(c, v, b->line, b->s, j0, n);
        if (b->keep) att_draw(c, v, h, b->keep, j0, n);
        differentiate_block(c, v, b, &st, j0, n);
        add_dq(c, v, b, j0, n);
        add_over_queries(v, &b->fetch, b->ds_rows, b->q_rows, b->dkv, D, j0, n);
        add_over_queries(v, &b->fetch, b->p_rows, b->g_rows, dv, Dv, j0, n);
    }
    if (c->din[0].data)
        att_store_result(&c->din[0], v->b * at->attention.Tq + v->q0, h * D, v->rows, D, b->dq,
                         at->attention.scale, NULL, op_accumulates(c, 0));
}

/* x[0..n) += the same of the other parts, in their order. */
V_INLINE void add_parts(float *x, int64_t n, int64_t parts, int64_t stride) {
    for (int64_t p = 1; p < parts; p++)
        for (int64_t i = 0; i < n; i += VW)
            v_store(x + i, v_load(x + i) + v_load(x + p * stride + i));
}

/* Stores rows [from, to) of dK and dV of a kv head, each the sum of its parts in order. */
static void store_keys(const op_call *c, int64_t seq, int64_t kv, int64_t from, int64_t to,
                       float *dkv, int64_t parts) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, stride = grad_floats(at), n = to - from;
    int64_t Dp = att_round(D, VW), Dvp = att_round(Dv, VW), row = seq * at->attention.Tk + from;
    float *dk = dkv + from * Dp,
          *dv = dkv + att_round(at->attention.Tk, ATT_PANEL) * Dp + from * Dvp;
    add_parts(dk, n * Dp, parts, stride);
    add_parts(dv, n * Dvp, parts, stride);
    if (c->din[1].data)
        att_store_rows(&c->din[1], row, kv * D, n, D, dk, at->attention.scale, NULL,
                       op_accumulates(c, 1));
    if (c->din[2].data)
        att_store_rows(&c->din[2], row, kv * Dv, n, Dv, dv, 1.0f, NULL, op_accumulates(c, 2));
}

/* The bias of a head, and where its gradient goes. */
static void choose_lines(const op_call *c, bwd_buffers *b, float *lines, int64_t seq, int64_t h) {
    int64_t H = c->attr->attention.H, floats = att_line_floats(c->in[BIAS].rows);
    if (!floats) return;
    b->line = lines + h * floats;
    if (c->din[BIAS].data) b->line_grad = lines + (H + seq * H + h) * floats;
}

/* Task t: one part of the query heads of a kv head. */
V_INLINE att_task bwd_task(const op_attr *at, int64_t t, int64_t parts) {
    int64_t K = at->attention.K, heads = at->attention.H / K / parts, kv = t / parts % K;
    if (t >= at->attention.B * K * parts) return (att_task){0};
    int64_t first = kv * heads * parts + t % parts * heads;
    return (att_task){t / parts / K, kv, first, first + heads, 0, at->attention.Tq};
}

/* lines: those of the bias, then those of its gradient. */
static void backward_part(const op_call *c, bwd_buffers *b, const bwd_plan *p, float *lines) {
    const op_attr *at = c->attr;
    const att_task *t = &p->task;
    pack_keys(c, b, t->b, t->kv);
    memset(b->dkv, 0, (size_t)grad_floats(at) * sizeof(float));
    for (int64_t q = 0; q < at->attention.Tq; q += ATT_Q) {
        att_view v = att_look(c, t->b, q);
        for (int64_t h = t->h0; h < t->h1; h++) {
            choose_lines(c, b, lines, t->b, h);
            backward_block(c, &v, b, p, h);
        }
    }
}

/* A sink is a score whose dP is 0: of head h - sum exp(sink - lse) delta over all queries, in their order. */
V_INLINE double sink_grad(const op_call *c, int64_t h, dtype dt) {
    const op_attr *at = c->attr;
    int64_t Tq = at->attention.Tq, Dv = at->attention.Dv;
    float sink = ((const float *)c->in[ATTENTION_SINKS].data)[h];
    double sum = 0.0;
    for (int64_t n = 0; n < at->attention.B * Tq; n++) {
        const float *lse =
            (const float *)c->out[1].data + (n / Tq * at->attention.H + h) * c->out[1].ld + n % Tq;
        vf delta = v_zero();
        FOR_VECTORS(Dv, d, left)
        delta = v_fma(row_get(&c->dout[0], n, h * Dv + d, left, dt),
                      row_get(&c->out[0], n, h * Dv + d, left, dt), delta);
        sum -= (double)expf(sink - *lse) * (double)v_sum(delta);
    }
    return sum;
}

static void sink_grads(const op_call *c) {
    int64_t H = c->attr->attention.H;
    float *to = c->din[ATTENTION_SINKS].data;
    bool add = op_accumulates(c, ATTENTION_SINKS);
#pragma omp parallel for num_threads(loop_threads(c, c->out[0].rows * c->out[0].cols))             \
    schedule(static)
    for (int64_t h = 0; h < H; h++) {
        double sum = WITH_DTYPE(c->out[0].dt, sink_grad, c, h);
        to[h] = (float)(add ? (double)to[h] + sum : sum);
    }
}

void CPU_FN(attention_bwd)(const op_call *c) {
    enum { ROWS = 256 }; /* rows of keys that are stored at a time */
    const op_attr *at = c->attr;
    if (c->din[ATTENTION_SINKS].data) sink_grads(c);
    if (!c->din[0].data && !c->din[1].data && !c->din[2].data && !c->din[BIAS].data) return;
    int64_t stride = bwd_layout(at, NULL, NULL), K = at->attention.K, Tk = at->attention.Tk;
    int64_t parts = bwd_parts(at), heads = at->attention.B * K, blocks = (Tk + ROWS - 1) / ROWS;
    int64_t tasks = heads * parts, taken = 0;
    int threads = att_threads(at, call_threads(c));
    float *grads = (float *)c->ws + threads * stride;
    float *lines = (float *)c->ws + CPU_FN(attention_bwd_floats)(at, call_threads(c));
    int64_t W = c->in[BIAS].rows, line_floats = at->attention.H * att_line_floats(W);
    if (W) att_make_lines(c, lines, att_bias_scale(at));
    if (W) memset(lines + line_floats, 0, (size_t)(at->attention.B * line_floats) * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
        bwd_buffers b;
        bwd_layout(at, (float *)c->ws + omp_get_thread_num() * stride, &b);
        amx_begin();
        for (int64_t t = att_take(&taken), next; t < tasks;
             t = next < tasks ? next : att_take(&taken)) {
            next = att_take_early(&taken, tasks);
            bwd_plan p = {bwd_task(at, t, parts), bwd_task(at, next, parts)};
            if (parts > 1) b.dkv = grads + t * grad_floats(at);
            backward_part(c, &b, &p, lines);
            if (parts == 1) store_keys(c, p.task.b, p.task.kv, 0, Tk, b.dkv, 1);
        }
        amx_end();
    }
    if (c->din[BIAS].data) att_store_line_rows(c, lines + line_floats, 0, W);
    if (parts == 1) return;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < heads * blocks; t++) {
        int64_t head = t / blocks, from = t % blocks * ROWS;
        store_keys(c, head / K, head % K, from, att_min(from + ROWS, Tk),
                   grads + head * parts * grad_floats(at), parts);
    }
}

int64_t CPU_FN(attention_bwd_floats)(const op_attr *at, int threads) {
    int64_t parts = bwd_parts(at), tasks = at->attention.B * at->attention.K * parts;
    return att_threads(at, threads) * bwd_layout(at, NULL, NULL) +
           (parts > 1 ? tasks * grad_floats(at) : 0);
}
