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

#endif
