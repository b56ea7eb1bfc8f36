/* Attention of a single query per sequence, as generation asks for it: keys and values are read
 * once, as they lie in the cache, without packing. A task is one query head. Workspace per thread:
 * one score per key. FLOPs 2 (D + Dv) per visible key, bound by memory. */
#include "op/cpu/attention.h"
#include "op/cpu/attention_parts.h"

/* q . k of one key. */
V_INLINE float score_of(const op_call *c, int64_t q_at, int64_t k_at, dtype dt) {
    int64_t D = c->attr->attention.D, d = 0;
    const void *q = c->in[0].data, *k = c->in[1].data;
    vf s = v_zero();
    for (; d + VW <= D; d += VW) s = v_fma(v_get(q, q_at + d, dt), v_get(k, k_at + d, dt), s);
    if (d < D) s = v_fma(v_get_n(q, q_at + d, D - d, dt), v_get_n(k, k_at + d, D - d, dt), s);
    return v_sum(s);
}

/* Scores from the arguments of softcap; returns the largest. */
V_INLINE float cap_row(float *s, int64_t n, float cap) {
    float max = -INFINITY;
    FOR_VECTORS(n, j, left)
    put_upto(s, j, cap * v_tanh(get_upto(s, j, left, DT_F32)), left, DT_F32);
    for (int64_t j = 0; j < n; j++) max = s[j] > max ? s[j] : max;
    return max;
}

/* s = exp(s - max) over n scores; returns the sum. */
V_INLINE float soften_row(float *s, int64_t n, float max) {
    vf sum = v_zero();
    for (int64_t j = 0; j < n; j += VW) {
        int64_t left = n - j;
        if (left >= VW) {
            vf e = v_exp(v_load(s + j) - max);
            v_store(s + j, e);
            sum += e;
        } else {
            v_put_n(s, j, v_exp(v_get_n(s, j, left, DT_F32) - max), left, DT_F32);
            sum += v_get_n(s, j, left, DT_F32);
        }
    }
    return v_sum(sum);
}

/* Rows of one head lie rows of all heads apart, which the machine does not foresee. */
enum { AHEAD = 24, LINE_BYTES = 64 }; /* keys */
V_INLINE void fetch_ahead(const void *base, int64_t at, int64_t n, dtype dt) {
    const char *from = (const char *)base + at * (dt == DT_BF16 ? 2 : 4);
    for (int64_t i = 0; i < n * (dt == DT_BF16 ? 2 : 4); i += LINE_BYTES)
        __builtin_prefetch(from + i);
}

/* Columns [d, d + WIDE VW) of the same: a value's columns are read in one piece. */
enum { WIDE = 4 };
V_INLINE void mix_wide(const op_call *c, const float *s, int64_t n, int64_t v_at, int64_t o_at,
                       float inv, dtype dt) {
    int64_t ld = c->in[2].ld;
    vf acc[WIDE] = {{0}};
    for (int64_t j = 0; j < n; j++) {
        vf weight = v_set1(s[j]);
        if (j + AHEAD < n) fetch_ahead(c->in[2].data, v_at + (j + AHEAD) * ld, WIDE * VW, dt);
#pragma GCC unroll 4
        for (int q = 0; q < WIDE; q++)
            acc[q] = v_fma(weight, v_get(c->in[2].data, v_at + j * ld + q * VW, dt), acc[q]);
    }
    for (int q = 0; q < WIDE; q++) v_put(c->out[0].data, o_at + q * VW, acc[q] * inv, dt);
}

/* o[0 .. Dv) = sum over keys of s v, times inv. */
V_INLINE void mix_values(const op_call *c, const float *s, int64_t n, int64_t v_at, int64_t o_at,
                         float inv, dtype dt) {
    int64_t Dv = c->attr->attention.Dv, ld = c->in[2].ld, d = 0;
    const void *v = c->in[2].data;
    for (; d + WIDE * VW <= Dv; d += WIDE * VW) mix_wide(c, s, n, v_at + d, o_at + d, inv, dt);
    for (; d < Dv; d += VW) {
        vf acc = v_zero();
        int64_t left = Dv - d;
        for (int64_t j = 0; j < n; j++) {
            int64_t at = v_at + j * ld + d;
            acc =
                v_fma(v_set1(s[j]), left >= VW ? v_get(v, at, dt) : v_get_n(v, at, left, dt), acc);
        }
        if (left >= VW)
            v_put(c->out[0].data, o_at + d, acc * inv, dt);
        else
            v_put_n(c->out[0].data, o_at + d, acc * inv, left, dt);
    }
}

V_INLINE void attend_one(const op_call *c, int64_t b, int64_t h, float *s, dtype dt) {
    const op_attr *at = c->attr;
    int64_t kv = h * at->attention.K / at->attention.H, Tk = at->attention.Tk;
    att_view v = att_look(c, b, 0);
    int64_t low = v.low[0], n = v.high[0] - low, row = b * Tk + low;
    int64_t k_at = row * c->in[1].ld + kv * at->attention.D;
    float max = -INFINITY, cap = at->attention.softcap;
    float scale = cap > 0.0f ? at->attention.scale / cap : at->attention.scale;
    for (int64_t j = 0; j < n; j++) {
        if (j + AHEAD < n)
            fetch_ahead(c->in[1].data, k_at + (j + AHEAD) * c->in[1].ld, at->attention.D, dt);
        s[j] =
            scale * score_of(c, b * c->in[0].ld + h * at->attention.D, k_at + j * c->in[1].ld, dt);
        max = s[j] > max ? s[j] : max;
    }
    if (cap > 0.0f) max = cap_row(s, n, cap);
    float sum = n > 0 ? soften_row(s, n, max) : 0.0f;
    mix_values(c, s, n, row * c->in[2].ld + kv * at->attention.Dv,
               b * c->out[0].ld + h * at->attention.Dv, n > 0 ? 1.0f / sum : 0.0f, dt);
    ((float *)c->out[1].data)[(b * at->attention.H + h) * c->out[1].ld] =
        n > 0 ? max + logf(sum) : -INFINITY;
}

static void attention_one(const op_call *c, int64_t stride, dtype dt) {
    int64_t H = c->attr->attention.H;
#pragma omp parallel for num_threads(att_threads(c)) schedule(static)
    for (int64_t t = 0; t < c->attr->attention.B * H; t++)
        WITH_DTYPE(dt, attend_one, c, t / H, t % H, (float *)c->ws + omp_get_thread_num() * stride);
}

void CPU_FN(attention_one_f32)(const op_call *c) {
    attention_one(c, CPU_FN(attention_fwd_floats)(c->attr), DT_F32);
}
void CPU_FN(attention_one_bf16)(const op_call *c) {
    attention_one(c, CPU_FN(attention_fwd_floats)(c->attr), DT_BF16);
}
