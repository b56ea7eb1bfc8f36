/* What the heads do to a row of f32 logits: cap, softmax, gradient. */
#ifndef OP_CPU_HEAD_ROWS_H
#define OP_CPU_HEAD_ROWS_H

#include <math.h>
#include <string.h>

#include "op/cpu/rows.h"
#include "op/cpu/vmath.h"

V_INLINE float row_max(const float *x, int64_t cols) {
    vf m = v_set1(-INFINITY);
    int64_t j = 0;
    for (; j + VW <= cols; j += VW) m = v_max(m, v_load(x + j));
    float r = v_hmax(m);
    for (; j < cols; j++) r = x[j] > r ? x[j] : r;
    return r;
}

/* The sum of exp(x - max), which replaces x if `keep` is false. */
V_INLINE float row_exp(float *x, int64_t cols, float max, bool keep) {
    vf s = v_zero();
    double total = 0.0;
    int64_t j = 0, flush = 0;
    for (; j + VW <= cols; j += VW) {
        vf e = v_exp(v_load(x + j) - max);
        if (!keep) v_store(x + j, e);
        s += e;
        if (++flush == 256) total += (double)v_sum(s), s = v_zero(), flush = 0;
    }
    if (j < cols) {
        float tail[VW];
        v_store(tail, v_exp(v_get_n(x, j, cols - j, DT_F32) - max));
        s += v_get_n(tail, 0, cols - j, DT_F32);
        if (!keep) memcpy(x + j, tail, (size_t)(cols - j) * sizeof(float));
    }
    return (float)(total + (double)v_sum(s));
}

V_INLINE void row_cap(float *x, int64_t cols, float cap) {
    float per_cap = 1.0f / cap;
    FOR_VECTORS(cols, j, n) {
        vf t = v_tanh(get_upto(x, j, n, DT_F32) * per_cap);
        put_upto(x, j, cap * t, n, DT_F32);
    }
}

/* (exp(x - max) scale - minus) (1 - (x / cap)^2): the gradient where x is a capped logit. */
V_INLINE vf uncap(vf x, float max, float scale, float minus, float per_cap) {
    vf t = x * per_cap;
    return (v_exp(x - max) * scale - minus) * (1.0f - t * t);
}

/* to[j] = the gradient of all but the target; `to` may be the same memory with narrower elements.
 */
V_INLINE void row_uncap(void *to, const float *x, int64_t cols, float max, float scale,
                        float per_cap, dtype dt) {
    FOR_VECTORS(cols, j, n)
    put_upto(to, j, uncap(get_upto(x, j, n, DT_F32), max, scale, 0.0f, per_cap), n, dt);
}

/* to[j] = x[j] * by; `to` may be the same memory with narrower elements. */
V_INLINE void row_scale(void *to, const float *x, int64_t cols, float by, dtype dt) {
    FOR_VECTORS(cols, j, n) put_upto(to, j, get_upto(x, j, n, DT_F32) * by, n, dt);
}

/* Of a row of a student's logits x and its teacher's t, both over a temperature T (HEAD_DISTILL). */
typedef struct row_lesson {
    float max, max_t, per_T;
    double sum, sum_q, sum_t;      /* of exp(x - max), exp((x - max) / T), exp((t - max_t) / T) */
    float by, by_q, by_t, per_cap; /* what these are multiplied by in the gradient; 1 / softcap */
} row_lesson;

/* A token that is left out, at -inf, gives 0 wherever it is multiplied by its probability. */
V_INLINE vf row_below(vf t, float max) {
    return v_max(t - max, v_set1(-1e30f));
}

V_INLINE double row_first_lanes(vf x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n && i < VW; i++) sum += (double)x[i];
    return sum;
}

/* Fills the sums; returns KL(p, q). */
V_INLINE double row_compare(const float *x, const float *t, int64_t cols, row_lesson *l) {
    enum { FLUSH = 256 * VW };
    double apart = 0.0;
    for (int64_t j0 = 0; j0 < cols; j0 += FLUSH) {
        vf sum = v_zero(), sum_q = v_zero(), sum_t = v_zero(), sum_a = v_zero();
        int64_t end = cols - j0 < FLUSH ? cols : j0 + FLUSH;
        for (int64_t j = j0; j < end; j += VW) {
            vf a = get_upto(x, j, end - j, DT_F32) - l->max;
            vf b = row_below(get_upto(t, j, end - j, DT_F32), l->max_t), p = v_exp(b * l->per_T);
            vf e = v_exp(a), q = v_exp(a * l->per_T), d = p * (b - a);
            if (end - j < VW) {
                l->sum += row_first_lanes(e, end - j), l->sum_q += row_first_lanes(q, end - j);
                l->sum_t += row_first_lanes(p, end - j), apart += row_first_lanes(d, end - j);
            } else
                sum += e, sum_q += q, sum_t += p, sum_a += d;
        }
        l->sum += (double)v_sum(sum), l->sum_q += (double)v_sum(sum_q);
        l->sum_t += (double)v_sum(sum_t), apart += (double)v_sum(sum_a);
    }
    return apart * (double)l->per_T / l->sum_t - log(l->sum_t) + log(l->sum_q);
}

/* The gradient of logits x; minus: at the target. */
V_INLINE vf row_taught(vf x, vf t, float minus, const row_lesson *l) {
    vf a = x - l->max, b = row_below(t, l->max_t), u = x * l->per_cap;
    vf d = v_exp(a) * l->by + v_exp(a * l->per_T) * l->by_q - v_exp(b * l->per_T) * l->by_t;
    return (d - minus) * (1.0f - u * u);
}

#endif
