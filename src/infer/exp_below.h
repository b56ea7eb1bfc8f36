#ifndef INFER_EXP_BELOW_H
#define INFER_EXP_BELOW_H

#include <stdint.h>
#include <string.h>

/* e^x for -87 < x <= 0 to a few units in the last place, in a form that becomes vectors: 2^n times
 * a polynomial for the rest, |rest| <= ln(2) / 2. */
static inline float exp_below(float x) {
    float n = (float)(int32_t)(x * 1.44269504f - 0.5f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345190e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666655e-1f;
    p = p * r + 5.00000000e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#endif
