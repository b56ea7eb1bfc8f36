/* ACT and GATED: y = act(x), y = act(gate) * up, and their gradients. Bandwidth-bound: 2 or 3
 * (back: 3 or 5) elements per result. */
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"
#include "op/cpu/vmath.h"

/* To exponentiate a number takes as long as to read and write a few. */
enum { EXP = 4 };

/* act(x), and act'(x) in *slope; c: the constant of ACT_SOFTCAP and ACT_CLAMP. */
V_INLINE vf activate(act_kind kind, vf x, float c, vf *slope) {
    switch (kind) {
        case ACT_SILU: {
            vf s = v_logistic(x);
            *slope = s * v_fma(x, 1.0f - s, v_set1(1.0f));
            return x * s;
        }
        case ACT_GELU_TANH: {
            /* (1 + tanh(z)) / 2 = logistic(2 z) */
            const float k = 1.5957691216f, cubic = 0.044715f; /* 2 sqrt(2/pi) */
            vf sq = x * x, s = v_logistic(k * x * v_fma(sq, v_set1(cubic), v_set1(1.0f)));
            vf inner = k * x * v_fma(sq, v_set1(3.0f * cubic), v_set1(1.0f)); /* x z' */
            *slope = v_fma(s * (1.0f - s), inner, s);
            return x * s;
        }
        case ACT_GELU_EXACT: {
            vf phi = 0.5f * (1.0f + v_erf(x * 0.7071067812f));
            *slope = phi + x * v_exp(-0.5f * x * x) * 0.3989422804f; /* 1/sqrt(2 pi) */
            return x * phi;
        }
        case ACT_RELU:
            *slope = v_select(x > v_zero(), v_set1(1.0f), v_zero());
            return v_max(v_zero(), x);
        case ACT_RELU2: {
            vf r = v_max(v_zero(), x);
            *slope = 2.0f * r;
            return r * r;
        }
        case ACT_SIGMOID: {
            vf s = v_logistic(x);
            *slope = s * (1.0f - s);
            return s;
        }
        case ACT_SOFTCAP: {
            vf t = v_tanh(x / c);
            *slope = 1.0f - t * t;
            return c * t;
        }
        case ACT_CLAMP: /* NaN stays */
            *slope = v_select(v_abs(x) > v_set1(c), v_zero(), v_set1(1.0f));
            return v_min(v_set1(c), v_max(v_set1(-c), x));
    }
    __builtin_unreachable();
}

V_INLINE void forward_row(const op_call *c, int64_t i, act_kind kind, dtype dt) {
    const tensor *x = &c->in[0], *up = &c->in[1], *y = &c->out[0];
    bool gated = up->data;
    float limit = c->attr->act.c;
    FOR_VECTORS(y->cols, j, n) {
        vf slope, v = activate(kind, row_get(x, i, j, n, dt), limit, &slope);
        if (gated) v *= row_get(up, i, j, n, dt);
        row_put(y, i, j, v, n, false, dt);
    }
}

V_INLINE void backward_row(const op_call *c, int64_t i, act_kind kind, dtype dt) {
    const tensor *x = &c->in[0], *up = &c->in[1], *dy = &c->dout[0];
    const tensor *dx = &c->din[0], *dup = &c->din[1];
    bool gated = up->data, add_x = op_accumulates(c, 0), add_up = op_accumulates(c, 1);
    float limit = c->attr->act.c;
    FOR_VECTORS(dy->cols, j, n) {
        vf slope, v = activate(kind, row_get(x, i, j, n, dt), limit, &slope);
        vf d = row_get(dy, i, j, n, dt), u = v_set1(1.0f);
        if (gated) u = row_get(up, i, j, n, dt);
        if (dx->data) row_put(dx, i, j, d * u * slope, n, add_x, dt);
        if (gated && dup->data) row_put(dup, i, j, d * v, n, add_up, dt);
    }
}

/* One specialised loop per activation and storage type. */
#define ACT_SWITCH(row)                                                                            \
    switch (c->attr->act.kind) {                                                                   \
        case ACT_GELU_TANH: WITH_DTYPE(dt, row, c, i, ACT_GELU_TANH); break;                       \
        case ACT_GELU_EXACT: WITH_DTYPE(dt, row, c, i, ACT_GELU_EXACT); break;                     \
        case ACT_SILU: WITH_DTYPE(dt, row, c, i, ACT_SILU); break;                                 \
        case ACT_RELU: WITH_DTYPE(dt, row, c, i, ACT_RELU); break;                                 \
        case ACT_RELU2: WITH_DTYPE(dt, row, c, i, ACT_RELU2); break;                               \
        case ACT_SIGMOID: WITH_DTYPE(dt, row, c, i, ACT_SIGMOID); break;                           \
        case ACT_SOFTCAP: WITH_DTYPE(dt, row, c, i, ACT_SOFTCAP); break;                           \
        case ACT_CLAMP: WITH_DTYPE(dt, row, c, i, ACT_CLAMP); break;                               \
    }

static void act_forward(const op_call *c) {
    const tensor *y = &c->out[0];
    dtype dt = y->dt;
#pragma omp parallel for num_threads(loop_threads(c, EXP * y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) {
        for (int k = 0; k < 2; k++) row_prefetch(&c->in[k], i + 1);
        row_prefetch(y, i + 1);
        ACT_SWITCH(forward_row)
    }
}

static void act_backward(const op_call *c) {
    const tensor *dy = &c->dout[0];
    dtype dt = dy->dt;
#pragma omp parallel for num_threads(loop_threads(c, EXP * dy->rows * dy->cols)) schedule(static)
    for (int64_t i = 0; i < dy->rows; i++) {
        row_prefetch(dy, i + 1);
        for (int k = 0; k < 2; k++) {
            row_prefetch(&c->in[k], i + 1);
            row_prefetch(&c->din[k], i + 1);
        }
        ACT_SWITCH(backward_row)
    }
}

const op_impl CPU_FN(cpu_act) = {act_forward, act_backward, NULL, NULL};
const op_impl CPU_FN(cpu_gated) = {act_forward, act_backward, NULL, NULL};
