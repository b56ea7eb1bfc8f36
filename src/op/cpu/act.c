/* ACT and GATED: y = act(x), y = act(gate) * up, and their gradients. Bandwidth-bound: 2 or 3
 * (back: 3 or 5) elements per result. */
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"
#include "op/cpu/vmath.h"

/* act(x), and act'(x) in *slope. */
V_INLINE vf activate(act_kind kind, vf x, vf *slope) {
    switch (kind) {
        case ACT_SILU: {
            vf s = v_logistic(x);
            *slope = s * (1.0f + x * (1.0f - s));
            return x * s;
        }
        case ACT_GELU_TANH: {
            const float k = 0.7978845608f, cubic = 0.044715f; /* sqrt(2/pi) */
            vf sq = x * x, t = v_tanh(k * x * (1.0f + cubic * sq));
            *slope = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * k * (1.0f + 3.0f * cubic * sq);
            return 0.5f * x * (1.0f + t);
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
    }
    __builtin_unreachable();
}

V_INLINE void act_forward(const op_call *c, act_kind kind, dtype dt) {
    const tensor *x = &c->in[0], *up = &c->in[1], *y = &c->out[0];
    bool gated = up->data;
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) {
        FOR_VECTORS(y->cols, j, n) {
            vf slope, v = activate(kind, row_get(x, i, j, n, dt), &slope);
            if (gated) v *= row_get(up, i, j, n, dt);
            row_put(y, i, j, v, n, false, dt);
        }
    }
}

V_INLINE void act_backward(const op_call *c, act_kind kind, dtype dt) {
    const tensor *x = &c->in[0], *up = &c->in[1], *dy = &c->dout[0];
    const tensor *dx = &c->din[0], *dup = &c->din[1];
    bool gated = up->data, add_x = op_accumulates(c, 0), add_up = op_accumulates(c, 1);
#pragma omp parallel for num_threads(loop_threads(c, dy->rows * dy->cols)) schedule(static)
    for (int64_t i = 0; i < dy->rows; i++) {
        FOR_VECTORS(dy->cols, j, n) {
            vf slope, v = activate(kind, row_get(x, i, j, n, dt), &slope);
            vf d = row_get(dy, i, j, n, dt), u = v_set1(1.0f);
            if (gated) u = row_get(up, i, j, n, dt);
            if (dx->data) row_put(dx, i, j, d * u * slope, n, add_x, dt);
            if (gated && dup->data) row_put(dup, i, j, d * v, n, add_up, dt);
        }
    }
}

/* One specialised loop per activation and storage type. */
#define ACT_SWITCH(call, dt)                                                                       \
    switch (c->attr->act.kind) {                                                                   \
        case ACT_GELU_TANH: call(c, ACT_GELU_TANH, dt); break;                                     \
        case ACT_GELU_EXACT: call(c, ACT_GELU_EXACT, dt); break;                                   \
        case ACT_SILU: call(c, ACT_SILU, dt); break;                                               \
        case ACT_RELU: call(c, ACT_RELU, dt); break;                                               \
        case ACT_RELU2: call(c, ACT_RELU2, dt); break;                                             \
    }

static void act_fwd_f32(const op_call *c) {
    ACT_SWITCH(act_forward, DT_F32)
}
static void act_fwd_bf16(const op_call *c) {
    ACT_SWITCH(act_forward, DT_BF16)
}
static void act_bwd_f32(const op_call *c) {
    ACT_SWITCH(act_backward, DT_F32)
}
static void act_bwd_bf16(const op_call *c) {
    ACT_SWITCH(act_backward, DT_BF16)
}

const op_impl CPU_FN(cpu_act_f32) = {act_fwd_f32, act_bwd_f32, NULL, NULL};
const op_impl CPU_FN(cpu_act_bf16) = {act_fwd_bf16, act_bwd_bf16, NULL, NULL};
const op_impl CPU_FN(cpu_gated_f32) = {act_fwd_f32, act_bwd_f32, NULL, NULL};
const op_impl CPU_FN(cpu_gated_bf16) = {act_fwd_bf16, act_bwd_bf16, NULL, NULL};
