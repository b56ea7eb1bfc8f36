/* Activation functions and their derivatives. */
#ifndef OP_REF_ACT_H
#define OP_REF_ACT_H

#include "op/ref/ref.h"

#define GELU_C ((REAL)0.79788456080286535588) /* sqrt(2/pi) */
#define INV_SQRT2 ((REAL)0.70710678118654752440)
#define INV_SQRT_2PI ((REAL)0.39894228040143267794)

/* c: the constant of ACT_SOFTCAP and ACT_CLAMP. */
static inline REAL act_value(act_kind kind, REAL x, REAL c) {
    const REAL one = 1, half = (REAL)0.5, cubic = (REAL)0.044715;
    switch (kind) {
        case ACT_GELU_TANH: return half * x * (one + r_tanh(GELU_C * (x + cubic * x * x * x)));
        case ACT_GELU_EXACT: return half * x * (one + r_erf(x * INV_SQRT2));
        case ACT_SILU: return x / (one + r_exp(-x));
        case ACT_RELU: return x > 0 ? x : 0;
        case ACT_RELU2: return x > 0 ? x * x : 0;
        case ACT_SOFTCAP: return c * r_tanh(x / c);
        case ACT_CLAMP: return x < -c ? -c : x > c ? c : x;
    }
    return x;
}

static inline REAL act_slope(act_kind kind, REAL x, REAL c) {
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
        case ACT_SOFTCAP: {
            REAL t = r_tanh(x / c);
            return one - t * t;
        }
        case ACT_CLAMP: return x < -c || x > c ? 0 : one;
    }
    return one;
}

#endif
