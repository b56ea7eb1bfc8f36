#ifndef OP_EXP_BELOW_H
#define OP_EXP_BELOW_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define EXP_BELOW_FN static __device__ __forceinline__
#define EXP_BELOW_MUL(a, b)                                                                        \
    __fmul_rn(a, b) /* never joined with a sum: the bits of the C compiler */
#else
#define EXP_BELOW_FN static inline
#define EXP_BELOW_MUL(a, b) ((a) * (b))
#endif

/* e^x for -87 < x <= 0 to a few units in the last place, in a form that becomes vectors: 2^n times
 * a polynomial for the rest, |rest| <= ln(2) / 2. */
EXP_BELOW_FN float exp_below(float x) {
    float n = (float)(int32_t)(EXP_BELOW_MUL(x, 1.44269504f) - 0.5f);
    float r = (x - EXP_BELOW_MUL(n, 0.693359375f)) + EXP_BELOW_MUL(n, 2.12194440e-4f);
    float p = 1.98756915e-4f;
    p = EXP_BELOW_MUL(p, r) + 1.39819995e-3f;
    p = EXP_BELOW_MUL(p, r) + 8.33345190e-3f;
    p = EXP_BELOW_MUL(p, r) + 4.16657962e-2f;
    p = EXP_BELOW_MUL(p, r) + 1.66666655e-1f;
    p = EXP_BELOW_MUL(p, r) + 5.00000000e-1f;
    p = EXP_BELOW_MUL(EXP_BELOW_MUL(p, r), r) + r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return EXP_BELOW_MUL(p, scale);
}

#endif
