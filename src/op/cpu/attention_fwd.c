/* Attention, forward: online softmax over blocks of keys (Milakov & Gimelshein 2018; Dao et al.
 * 2022). A task is one kv head of one sequence and a span of queries; it packs the keys and values
 * that the span sees once, for all query heads of the group. Blocks that nobody sees are skipped.
 *
 * Workspace per thread: Tk (D + Dv) floats and blocks. FLOPs 2 (D + Dv) per visible pair. Every
 * query is computed alone in a fixed order of keys. */
#include "op/cpu/attention.h"
#include "op/cpu/parts.h"
#include "op/cpu/ops.h"

/* Blocks of queries of a task, and queries. */
enum { SPAN_BLOCKS = ATT_Q >= 64 ? 8 : 16, SPAN = SPAN_BLOCKS * ATT_Q };

typedef struct fwd_buffers {
    float *k, *v;        /* K [keys/PANEL][D][PANEL]; V [Dv/Q][keys][Q]; or attention_amx.h */
    float *q, *s;        /* [D, Q], [ATT_KEYS, Q] */
    float *p;            /* s in pairs of keys, where the machine multiplies them; else s */
    float *keep;         /* dropout factors [ATT_KEYS, Q], or NULL */
    float *o;            /* [Q, Dvp]; with tiles [Dvp, Q] */
    const float *lines;  /* of the bias (attention_bias.h), or NULL */
    int64_t first, keys; /* keys that are packed */
    att_fetch fetch;     /* while a block is computed */
} fwd_buffers;

/* What a block of queries knows of the keys it has met; per query, scores in units of log 2. */
typedef struct fwd_state {
    float max[ATT_Q], sum[ATT_Q];
} fwd_state;

/* A task, the one after it (no queries: none is known), and the keys that this one sees. */
typedef struct fwd_plan {
    att_task task, next;
    int64_t first, end;
} fwd_plan;

enum { FWD_PARTS = 7 };

/* Sizes in floats; with base NULL only counts. */
static int64_t fwd_layout(const op_attr *at, float *base, fwd_buffers *b) {
    int64_t D = at->attention.D, Dv = at->attention.Dv, block = att_block_keys(at) * ATT_Q;
    int64_t Tk = att_round(at->attention.Tk, ATT_PANEL) + ATT_PANEL;
    int64_t sizes[FWD_PARTS] = {Tk * att_left_floats(D),
                                Tk * att_turned_floats(Dv),
                                att_right_floats(att_max(D, V_AMX ? Dv : 0)),
                                block,
                                V_DOT_BF16 * block / 2,
                                at->attention.dropout > 0.0f ? block : 0,
                                att_result_floats(Dv)};
    int64_t total = 0;
    float *part[FWD_PARTS];
    for (int i = 0; i < FWD_PARTS; i++) {
        part[i] = base ? base + total : NULL;
        total += att_round(sizes[i], 16);
    }
    if (b) {
        *b = (fwd_buffers){.k = part[0],
                           .v = part[1],
                           .q = part[2],
                           .s = part[3],
                           .p = part[4],
                           .keep = part[5],
                           .o = part[6]};
        if (!V_DOT_BF16) b->p = b->s;
        if (!sizes[5]) b->keep = NULL;
    }
    return total;
}

V_INLINE void pack_span(const op_call *c, fwd_buffers *b, int64_t seq, int64_t kv, int64_t first,
                        int64_t end) {
    int64_t D = c->attr->attention.D, Dv = c->attr->attention.Dv, n = end - first;
    att_place at = att_place_of(c->attr, seq, kv);
    b->first = first;
    b->keys = att_round(n, ATT_PANEL);
    att_pack_left(b->k, &c->in[1], at.row + first, at.head * D, n, D);
    att_pack_turned(b->v, &c->in[2], at.row + first, at.head * Dv, n, Dv, b->q);
}

/* Hides keys [j0 + from, j0 + to) from the lanes of vector q that do not see them. */
V_INLINE void hide(const att_view *v, int q, float *s, int64_t j0, int64_t from, int64_t to) {
    for (int64_t j = from; j < to; j++) {
        float *at = s + j * ATT_Q;
        v_store(at, v_select(att_sees(v, q, j0 + j), v_load(at), v_set1(-INFINITY)));
    }
}

V_INLINE vf column_max(const float *s, int64_t n) {
    vf m[4];
    for (int i = 0; i < 4; i++) m[i] = v_set1(-INFINITY);
    for (int64_t j = 0; j < n; j += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) m[i] = v_max(m[i], v_load(s + (j + i) * ATT_Q));
    return v_max(v_max(m[0], m[1]), v_max(m[2], m[3]));
}

/* p = 2^(s scale - shift) (* keep) of vector q, as operand of P V; returns the sum of what precedes dropout. */
V_INLINE vf exponentiate(const fwd_buffers *b, int q, int64_t n, float scale, vf shift, bool drop) {
    const float *s = b->s + q * VW, *keep = drop ? b->keep + q * VW : NULL;
    float *to = b->p + q * VW;
    vf sum[2] = {v_zero(), v_zero()}, by = v_set1(scale);
    for (int64_t j = 0; j < n; j += 4) {
        vf p[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            p[i] = att_exp2(v_fma(v_load(s + (j + i) * ATT_Q), by, -shift), V_DOT_BF16);
            sum[i % 2] += p[i];
            if (drop) p[i] *= v_load(keep + (j + i) * ATT_Q);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 4; i += 2) {
            float *at = to + (V_DOT_BF16 ? (j + i) / 2 : j + i) * ATT_Q;
#if V_DOT_BF16
            _mm512_storeu_si512(at, att_pair(p[i], p[i + 1]));
#else
            v_store(at, p[i]);
            v_store(at + ATT_Q, p[i + 1]);
#endif
        }
    }
    return sum[0] + sum[1];
}

/* o times what stands in `by` for each query. */
V_INLINE void shrink(float *o, int64_t rows, int64_t Dvp, const float *by) {
#if V_AMX
    (void)rows;
    vf by0 = v_load(by), by1 = v_load(by + VW), one = v_set1(1.0f);
    if ((_mm512_cmpneq_ps_mask(by0, one) | _mm512_cmpneq_ps_mask(by1, one)) == 0) return;
    for (float *end = o + Dvp * ATT_Q; o < end; o += ATT_Q) {
        v_store(o, v_load(o) * by0);
        v_store(o + VW, v_load(o + VW) * by1);
    }
#else
    for (int64_t i = 0; i < rows; i++, o += Dvp)
        for (int64_t d = 0; by[i] != 1.0f && d < Dvp; d += VW)
            v_store(o + d, v_load(o + d) * by[i]);
#endif
}

/* Scores of vector q to probabilities, up to the maximum so far. Returns with what everything before is to be
 * multiplied, since the maximum grew. */
V_INLINE vf soften_vector(const fwd_buffers *b, fwd_state *st, int q, int64_t n, float scale) {
    vf before = v_load(st->max + q * VW);
    vf m = v_max(scale * column_max(b->s + q * VW, n), before);
    /* A lane that has seen no key keeps m = -inf; it must not meet inf - inf. */
    vf shift = v_select(m == v_set1(-INFINITY), v_zero(), m);
    vf less = att_exp2(before - shift, false);
    vf sum = b->keep ? exponentiate(b, q, n, scale, shift, true)
                     : exponentiate(b, q, n, scale, shift, false);
    v_store(st->max + q * VW, m);
    v_store(st->sum + q * VW, v_fma(v_load(st->sum + q * VW), less, sum));
    return less;
}

/* Scores of keys [j0, j0 + n) to probabilities; o shrinks where the maximum grew. */
V_INLINE void soften(const att_view *v, const fwd_buffers *b, fwd_state *st, int64_t j0, int64_t n,
                     float scale, int64_t Dvp) {
    float less[ATT_Q] = {0};
    for (int q = 0; q < v->vecs; q++) {
        att_border seen = att_border_of(v, q, 1, j0, n);
        hide(v, q, b->s + q * VW, j0, 0, seen.from);
        hide(v, q, b->s + q * VW, j0, seen.to, seen.keys);
        v_store(less + q * VW, soften_vector(b, st, q, seen.keys, scale));
    }
    if (j0 > v->first) shrink(b->o, v->rows, Dvp, less);
}

V_INLINE void finish_queries(const op_call *c, const att_view *v, const fwd_buffers *b, int64_t h,
                             const fwd_state *st) {
    const op_attr *at = c->attr;
    int64_t Dv = at->attention.Dv;
    float lse[ATT_Q], inv[ATT_Q];
    for (int q = 0; q < v->vecs * VW; q += VW) {
        vf sum = v_load(st->sum + q), max = v_load(st->max + q);
        vi none = sum == v_zero();
        v_store(inv + q, v_select(none, v_zero(), 1.0f / sum));
        v_store(lse + q, v_select(none, v_set1(-INFINITY), max * ATT_LN2 + v_log(sum)));
    }
    att_store_result(&c->out[0], v->b * at->attention.Tq + v->q0, h * Dv, v->rows, Dv, b->o, 1.0f,
                     inv, false);
    float *to = (float *)c->out[1].data + (v->b * at->attention.H + h) * c->out[1].ld + v->q0;
    memcpy(to, lse, (size_t)v->rows * sizeof(float));
}

/* o (+)= P V for keys [j0, j0 + n), each tile of queries as far as it sees; the first keys make o. */
V_INLINE void mix_values(const op_call *c, const att_view *v, const fwd_buffers *b, int64_t j0,
                         int64_t n) {
    int64_t Dv = c->attr->attention.Dv;
    bool add = j0 > v->first;
#if V_AMX
    amx_mix(b->v, j0 - b->first, Dv, b->p, b->o, n, add);
#else
    int64_t units = att_units(b->keys), at_unit = att_units(j0 - b->first);
    for (int64_t d = 0; d < Dv; d += ATT_Q)
        att_mix_panel(v, j0, n, b->p, b->v + d * units + at_unit * ATT_Q, b->o + d,
                      att_round(Dv, VW), add, att_vectors(Dv - d));
#endif
}

/* The keys that the next task sees, as far as its first and its last block of queries tell. */
V_INLINE void look_ahead(const op_call *c, fwd_plan *p) {
    const att_task *t = &p->next;
    p->first = p->end = 0;
    if (t->q0 >= t->q1) return;
    int64_t last = t->q0 + (t->q1 - t->q0 - 1) / ATT_Q * ATT_Q;
    p->first = att_look(c, t->b, t->q0).first;
    p->end = att_max(p->first, att_look(c, t->b, last).end);
}

/* Where the results of this block go, the queries that follow, and a share of the keys and values of
 * the next task. */
V_INLINE void fetch_for(const op_call *c, const att_view *v, fwd_buffers *b, const fwd_plan *p,
                        int64_t h) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, blocks = att_task_blocks(&p->task);
    int64_t block = att_task_block(&p->task, v->q0, h);
    att_block next = att_next(c, &p->task, &p->next, v->q0, h);
    att_place keys = att_place_of(at, p->next.b, p->next.kv);
    int64_t row = keys.row + p->first, rows = p->end - p->first;
    b->fetch = (att_fetch){.n = 0};
    att_fetch_rows(&b->fetch, &c->out[0], v->b * at->attention.Tq + v->q0, h * Dv, v->rows, Dv);
    att_fetch_rows(&b->fetch, &c->in[0], next.row, next.h * D, next.rows, D);
    att_fetch_share(&b->fetch, &c->in[1], row, keys.head * D, rows, D, block, blocks);
    att_fetch_share(&b->fetch, &c->in[2], row, keys.head * Dv, rows, Dv, block, blocks);
    att_fetch_in(&b->fetch, (v->end - v->first) / ATT_PANEL * ATT_TILES);
}

/* S of keys [j0, j0 + n), not scaled. */
V_INLINE void score_keys(const op_call *c, const att_view *v, fwd_buffers *b, int64_t j0,
                         int64_t n) {
    int64_t D = c->attr->attention.D;
    for (int64_t j = 0; j < n; j += ATT_PANEL)
        att_score_panel(v, &b->fetch, b->k, D, j0 - b->first + j, b->q, b->s + j * ATT_Q, j0 + j);
}

V_INLINE void attend_block(const op_call *c, const att_view *v, fwd_buffers *b, const fwd_plan *p,
                           int64_t h) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dvp = att_round(at->attention.Dv, VW);
    const float *line = b->lines ? b->lines + h * att_line_floats(c->in[BIAS].rows) : NULL;
    fwd_state st;
    const float *sinks =
        c->in[ATTENTION_SINKS].data; /* a score before all others, whose value is 0 */
    for (int i = 0; i < ATT_Q; i++) {
        st.max[i] = sinks ? sinks[h] * ATT_LOG2E : -INFINITY;
        st.sum[i] = sinks ? 1.0f : 0.0f;
    }
    if (v->first >= v->end) memset(b->o, 0, (size_t)(ATT_Q * Dvp) * sizeof(float));
    fetch_for(c, v, b, p, h);
    att_pack_right(b->q, &c->in[0], v->b * at->attention.Tq + v->q0, h * D, v->rows, D);
    for (int64_t j0 = v->first; j0 < v->end; j0 += ATT_KEYS) {
        int64_t n = att_min(att_round(v->end - j0, ATT_PANEL), ATT_KEYS);
        score_keys(c, v, b, j0, n);
        float scale = att_cap_scores(c, v, line, b->s, j0, n);
        if (b->keep) att_draw(c, v, h, b->keep, j0, n);
        soften(v, b, &st, j0, n, scale, Dvp);
        mix_values(c, v, b, j0, n);
    }
    finish_queries(c, v, b, h, &st);
}

V_INLINE void attend_span(const op_call *c, fwd_buffers *b, const fwd_plan *p) {
    const att_task *t = &p->task;
    int64_t first = c->attr->attention.Tk, end = 0;
    att_view views[SPAN_BLOCKS], *v = views;
    for (int64_t q = t->q0; q < t->q1; q += ATT_Q, v++) {
        *v = att_look(c, t->b, q);
        first = att_min(v->first, first);
        end = att_max(v->end, end);
    }
    if (first < end) pack_span(c, b, t->b, t->kv, first, end);
    for (const att_view *each = views; each < v; each++)
        for (int64_t h = t->h0; h < t->h1; h++) attend_block(c, each, b, p, h);
}

/* Task t: a span of queries of a kv head. Late spans see the most keys, so they come first of all. */
V_INLINE att_task fwd_task(const op_attr *at, int64_t t) {
    int64_t Tq = at->attention.Tq, K = at->attention.K, heads = at->attention.B * K;
    int64_t spans = (Tq + SPAN - 1) / SPAN, group = at->attention.H / K;
    if (t >= heads * spans) return (att_task){0};
    int64_t b = t % heads / K, kv = t % K, q0 = (spans - 1 - t / heads) * SPAN;
    return (att_task){b, kv, kv * group, (kv + 1) * group, q0, att_min(q0 + SPAN, Tq)};
}

static void forward(const op_call *c) {
    const op_attr *at = c->attr;
    int64_t stride = fwd_layout(at, NULL, NULL), taken = 0;
    int64_t spans = (at->attention.Tq + SPAN - 1) / SPAN;
    int64_t tasks = at->attention.B * at->attention.K * spans;
    int threads = att_threads(at, call_threads(c));
    float *lines = c->in[BIAS].data ? (float *)c->ws + threads * stride : NULL;
    if (lines) att_make_lines(c, lines, att_bias_scale(at));
#pragma omp parallel num_threads(threads)
    {
        fwd_buffers b;
        fwd_layout(at, (float *)c->ws + omp_get_thread_num() * stride, &b);
        b.lines = lines;
        amx_begin();
        for (int64_t t = att_take(&taken), next; t < tasks;
             t = next < tasks ? next : att_take(&taken)) {
            next = att_take_early(&taken, tasks);
            fwd_plan p = {.task = fwd_task(at, t), .next = fwd_task(at, next)};
            look_ahead(c, &p);
            attend_span(c, &b, &p);
        }
        amx_end();
    }
}

/* ---- the op ---- */

static bool single_query(const op_attr *at) {
    return at->attention.Tq == 1 && at->attention.dropout == 0.0f;
}

static void attention_workspace(const op_infer *io, int64_t ws[3]) {
    int threads = dev_threads(io->dev);
    int64_t floats = single_query(io->attr)
                         ? CPU_FN(attention_one_floats)(io->attr)
                         : att_threads(io->attr, threads) * fwd_layout(io->attr, NULL, NULL);
    int64_t lines = io->attr->attention.H * att_line_floats(io->in[BIAS].rows);
    ws[0] = (floats + lines) * (int64_t)sizeof(float);
    lines += lines * io->attr->attention.B; /* those of the gradient */
    ws[1] = (CPU_FN(attention_bwd_floats)(io->attr, threads) + lines) * (int64_t)sizeof(float);
}

static void attention_fwd(const op_call *c) {
    single_query(c->attr) ? CPU_FN(attention_one)(c) : forward(c);
}

const op_impl CPU_FN(cpu_attention) = {attention_fwd, CPU_FN(attention_bwd), NULL,
                                       attention_workspace};
