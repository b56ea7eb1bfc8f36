/* ACT: y = act(x); dx = dy act'(x). GATED: y = act(gate) up; dgate = dy up act'(gate),
 * dup = dy act(gate). One body: x is the gate, and without `up` it is 1.
 * LINEAR_DGELU: dx = (dy w) act'(x). */
#include "op/ref/ref.h"

#define GELU_C ((REAL)0.79788456080286535588) /* sqrt(2/pi) */
#define INV_SQRT2 ((REAL)0.70710678118654752440)
#define INV_SQRT_2PI ((REAL)0.39894228040143267794)

/* c: the constant of ACT_SOFTCAP and ACT_CLAMP. */
static REAL act_value(act_kind kind, REAL x, REAL c) {
    const REAL one = 1, half = (REAL)0.5, cubic = (REAL)0.044715;
    switch (kind) {
        case ACT_GELU_TANH: return half * x * (one + r_tanh(GELU_C * (x + cubic * x * x * x)));
        case ACT_GELU_EXACT: return half * x * (one + r_erf(x * INV_SQRT2));
        case ACT_SILU: return x / (one + r_exp(-x));
        case ACT_RELU: return x < 0 ? 0 : x; /* NaN stays */
        case ACT_RELU2: return x < 0 ? 0 : x * x;
        case ACT_SIGMOID: return one / (one + r_exp(-x));
        case ACT_SOFTCAP: return c * r_tanh(x / c);
        case ACT_CLAMP: return x < -c ? -c : x > c ? c : x;
    }
    return x;
}

static REAL act_slope(act_kind kind, REAL x, REAL c) {
    const REAL one = 1, half = (REAL)0.5, cubic = (REAL)0.044715;
    switch (kind) {
        case ACT_GELU_TANH: {
            REAL t = r_tanh(GELU_C * (x + cubic * x * x * x));
            return half * (one + t) + half * x * (one - t * t) * GELU_C * (one + 3 * cubic * x * x);
        }
        case ACT_GELU_EXACT:
            return half * (one + r_erf(x * INV_SQRT2)) + x * INV_SQRT_2PI * r_exp(-half * x * x);
        case ACT_SILU: {
            REAL s = one / (one + r_exp(-x));
            return s * (one + x * (one - s));
        }
        case ACT_RELU: return x > 0 ? one : 0;
        case ACT_RELU2: return x > 0 ? 2 * x : 0;
        case ACT_SIGMOID: {
            REAL s = one / (one + r_exp(-x));
            return s * (one - s);
        }
        case ACT_SOFTCAP: {
            REAL t = r_tanh(x / c);
            return one - t * t;
        }
        case ACT_CLAMP: return x < -c || x > c ? 0 : one;
    }
    return one;
}

static void forward(const op_call *c) {
    const tensor *x = &c->in[0], *up = &c->in[1], *y = &c->out[0];
    act_kind kind = c->attr->act.kind;
    REAL limit = c->attr->act.c;
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t i = 0; i < y->cols; i++) {
            REAL v = act_value(kind, load(row_of(x, n)[i]), limit);
            row_of(y, n)[i] = store(up->data ? v * load(row_of(up, n)[i]) : v);
        }
    }
}

static void backward(const op_call *c) {
    const tensor *x = &c->in[0], *up = &c->in[1], *dy = &c->dout[0];
    const tensor *dx = &c->din[0], *dup = &c->din[1];
    act_kind kind = c->attr->act.kind;
    REAL limit = c->attr->act.c;
    bool add_x = op_accumulates(c, 0), add_up = op_accumulates(c, 1);
    PARALLEL_FOR
    for (int64_t n = 0; n < dy->rows; n++) {
        for (int64_t i = 0; i < dy->cols; i++) {
            REAL v = load(row_of(x, n)[i]), d = load(row_of(dy, n)[i]);
            REAL u = up->data ? load(row_of(up, n)[i]) : 1;
            if (dx->data) put(row_of(dx, n) + i, d * u * act_slope(kind, v, limit), add_x);
            if (dup->data) put(row_of(dup, n) + i, d * act_value(kind, v, limit), add_up);
        }
    }
}

static void linear_dgelu(const op_call *c) {
    const tensor *dy = &c->in[0], *w = &c->in[1], *x = &c->in[2], *dx = &c->out[0];
    PARALLEL_FOR_2
    for (int64_t n = 0; n < dx->rows; n++) {
        for (int64_t b = 0; b < blocks_of(dx->cols); b++) {
            int64_t first = b * BLOCK, len = block_len(dx->cols, first);
            ACC acc[BLOCK];
            sum_given(acc, dy, w, n, first, len);
            for (int64_t i = first; i < first + len; i++)
                row_of(dx, n)[i] = store((REAL)acc[i - first] *
                                         act_slope(ACT_GELU_TANH, load(row_of(x, n)[i]), 0));
        }
    }
}

const op_impl REF_IMPL(ACT) = {forward, backward, NULL, NULL};
const op_impl REF_IMPL(GATED) = {forward, backward, NULL, NULL};
const op_impl REF_IMPL(LINEAR_DGELU) = {linear_dgelu, NULL, NULL, NULL};
