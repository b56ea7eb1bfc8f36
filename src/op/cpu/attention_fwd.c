/* Attention, forward: online softmax over blocks of keys (Milakov & Gimelshein 2018; Dao et al.
 * 2022). A task is one kv head of one sequence and a span of queries; it packs the keys and values
 * that the span sees once, for all query heads of the group. Blocks that nobody sees are skipped.
 *
 * Workspace per thread: Tk (D + Dv) floats and blocks. FLOPs 2 (D + Dv) per visible pair. Every
 * query is computed alone in a fixed order of keys. */
#include "op/cpu/attention.h"
#include "op/cpu/attention_parts.h"

enum { SPAN = 16 * ATT_Q }; /* queries per task */

typedef struct fwd_buffers {
    float *k, *v;        /* K panels [keys/R][D][R]; V^T panels [Dv/R][keys][R] */
    float *q, *s, *p;    /* [D, Q], [ATT_KEYS, Q], the same in pairs of keys */
    float *o, *t;        /* [Dv, Q], turned output */
    int64_t first, keys; /* keys that are packed */
} fwd_buffers;

enum { FWD_PARTS = 7 };

/* Sizes in floats; with base NULL only counts. */
static int64_t fwd_layout(const op_attr *at, float *base, fwd_buffers *b) {
    int64_t D = at->attention.D, Dv = at->attention.Dv;
    int64_t Tk = att_round(at->attention.Tk, ATT_R) + ATT_R, Dr = att_round(Dv, ATT_R);
    int64_t sizes[FWD_PARTS] = {
        Tk * D,     Tk * Dr,   D * ATT_Q, ATT_KEYS * ATT_Q, V_DOT_BF16 * ATT_KEYS * ATT_Q / 2,
        Dr * ATT_Q, Dr * ATT_Q};
    int64_t total = 0;
    float *part[FWD_PARTS];
    for (int i = 0; i < FWD_PARTS; i++) {
        part[i] = base ? base + total : NULL;
        total += att_round(sizes[i], 16);
    }
    if (b) *b = (fwd_buffers){part[0], part[1], part[2], part[3], part[4], part[5], part[6], 0, 0};
    return total;
}

V_INLINE void pack_span(const op_call *c, fwd_buffers *b, int64_t seq, int64_t kv, int64_t first,
                        int64_t end, dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dv = at->attention.Dv, row = seq * at->attention.Tk + first;
    b->first = first;
    b->keys = att_round(end - first, ATT_R);
    pack_k_contiguous(b->k, ATT_R, att_at(&c->in[1], row, kv * D, dt), c->in[1].ld, end - first, D,
                      dt, pack_pairs(dt));
    att_pack_over_keys(b->v, &c->in[2], row, kv * Dv, end - first, Dv, b->keys, dt);
}

/* s = exp(s - max) with the running maximum and sum; rescales o when the maximum grows. */
V_INLINE void soften(float *s, int64_t n, float *o, int64_t Dr, vf *max, vf *sum) {
    for (int q = 0; q < ATT_NV; q++) {
        vf m = max[q];
        for (int64_t j = 0; j < n; j++) m = v_max(m, v_load(s + j * ATT_Q + q * VW));
        /* A lane that has seen no key keeps m = -inf; it must not meet inf - inf. */
        vf safe = v_select(m == v_set1(-INFINITY), v_zero(), m);
        vf shrink = v_exp(max[q] - safe), total = sum[q] * shrink;
        for (int64_t j = 0; j < n; j++) {
            vf p = v_exp(v_load(s + j * ATT_Q + q * VW) - safe);
            v_store(s + j * ATT_Q + q * VW, p);
            total += p;
        }
        for (int64_t d = 0; d < Dr; d++)
            v_store(o + d * ATT_Q + q * VW, v_load(o + d * ATT_Q + q * VW) * shrink);
        max[q] = m, sum[q] = total;
    }
}

V_INLINE void finish_queries(const op_call *c, const att_view *v, const fwd_buffers *b, int64_t h,
                             const vf *max, const vf *sum, dtype dt) {
    const op_attr *at = c->attr;
    int64_t Dv = at->attention.Dv;
    float lse[ATT_Q];
    for (int q = 0; q < ATT_NV; q++) {
        vi none = sum[q] == v_zero();
        vf inv = v_select(none, v_zero(), 1.0f / sum[q]);
        for (int64_t d = 0; d < Dv; d++)
            v_store(b->o + d * ATT_Q + q * VW, v_load(b->o + d * ATT_Q + q * VW) * inv);
        for (int i = 0; i < VW; i++)
            lse[q * VW + i] = none[i] ? -INFINITY : max[q][i] + logf(sum[q][i]);
    }
    att_store_queries(&c->out[0], v->b * at->attention.Tq + v->q0, h * Dv, v->rows, Dv, b->o, b->t,
                      false, dt);
    float *to = (float *)c->out[1].data + (v->b * at->attention.H + h) * c->out[1].ld + v->q0;
    for (int64_t i = 0; i < v->rows; i++) to[i] = lse[i];
}

V_INLINE void attend_block(const op_call *c, const att_view *v, const fwd_buffers *b, int64_t h,
                           dtype dt) {
    const op_attr *at = c->attr;
    int64_t D = at->attention.D, Dr = att_round(at->attention.Dv, ATT_R);
    vf max[ATT_NV], sum[ATT_NV];
    for (int q = 0; q < ATT_NV; q++) max[q] = v_set1(-INFINITY), sum[q] = v_zero();
    memset(b->o, 0, (size_t)(Dr * ATT_Q) * sizeof(float));
    att_pack_queries(b->q, &c->in[0], v->b * at->attention.Tq + v->q0, h * D, v->rows, D, dt);
    int64_t units = att_units(D, dt), v_units = att_units(b->keys, dt);
    for (int64_t j0 = v->first; j0 < v->end; j0 += ATT_KEYS) {
        int64_t n = v->end - j0 < ATT_KEYS ? att_round(v->end - j0, ATT_R) : ATT_KEYS;
        int64_t at_key = j0 - b->first;
        for (int64_t j = 0; j < n; j += ATT_R)
            att_tile_new(units, b->k + (at_key + j) * units, b->q, b->s + j * ATT_Q,
                         at->attention.scale, dt);
        att_mask(v, b->s, j0, n, -INFINITY);
        soften(b->s, n, b->o, Dr, max, sum);
        if (at->attention.dropout > 0.0f) att_drop(c, v, h, b->s, j0, n);
        const float *p = att_pair_keys(b->p, b->s, n, dt);
        for (int64_t d = 0; d < Dr; d += ATT_R)
            att_tile_add(att_units(n, dt), b->v + d * v_units + att_units(at_key, dt) * ATT_R, p,
                         b->o + d * ATT_Q, dt);
    }
    finish_queries(c, v, b, h, max, sum, dt);
}

V_INLINE void attend_span(const op_call *c, fwd_buffers *b, int64_t seq, int64_t kv, int64_t q0,
                          dtype dt) {
    const op_attr *at = c->attr;
    int64_t group = at->attention.H / at->attention.K, first = at->attention.Tk, end = 0;
    int64_t q_end = q0 + SPAN < at->attention.Tq ? q0 + SPAN : at->attention.Tq;
    for (int64_t q = q0; q < q_end; q += ATT_Q) {
        att_view v = att_look(c, seq, q);
        first = v.first < first ? v.first : first;
        end = v.end > end ? v.end : end;
    }
    if (first < end) pack_span(c, b, seq, kv, first, end, dt);
    for (int64_t q = q0; q < q_end; q += ATT_Q) {
        att_view v = att_look(c, seq, q);
        for (int64_t h = kv * group; h < (kv + 1) * group; h++) attend_block(c, &v, b, h, dt);
    }
}

V_INLINE void attention_forward(const op_call *c, dtype dt) {
    const op_attr *at = c->attr;
    int64_t spans = (at->attention.Tq + SPAN - 1) / SPAN, K = at->attention.K;
    int64_t stride = fwd_layout(at, NULL, NULL);
#pragma omp parallel for num_threads(att_threads(c)) schedule(dynamic)
    for (int64_t t = 0; t < at->attention.B * K * spans; t++) {
        fwd_buffers b;
        fwd_layout(at, (float *)c->ws + omp_get_thread_num() * stride, &b);
        /* Late spans see the most keys: first. */
        attend_span(c, &b, t / spans / K, t / spans % K, (spans - 1 - t % spans) * SPAN, dt);
    }
}

void CPU_FN(attention_fwd_f32)(const op_call *c) {
    attention_forward(c, DT_F32);
}
void CPU_FN(attention_fwd_bf16)(const op_call *c) {
    attention_forward(c, DT_BF16);
}

int64_t CPU_FN(attention_fwd_floats)(const op_attr *at) {
    return fwd_layout(at, NULL, NULL);
}
