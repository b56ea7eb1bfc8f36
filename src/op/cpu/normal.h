/* The normals of base/rng.h, many at a time with the same bits: integer arithmetic only,
 * apart from a conversion to double that is exact by construction and serves as a table of
 * logarithms. Needs AVX2. */
#ifndef OP_CPU_NORMAL_H
#define OP_CPU_NORMAL_H

#include "base/rng_normal_table.h"
#include "op/cpu/philox.h"

#define V_NORMALS (V_BYTES >= 32)
#if V_NORMALS

/* u, below 2^63, as a double: rounded down, so that its exponent is the place of u's leading one
 * and the bits after it are u's. */
V_INLINE vq double_bits(vq u) {
#if V_AVX512
    return (vq)_mm512_cvt_roundepu64_pd((__m512i)u, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
    /* What does not fit into 53 bits goes first; then the halves join without rounding. */
    u &= ~((vq)((vs)u >= (int64_t)1 << 53) & 1023u);
    vd high = (vd)(u >> 32 | 0x4530000000000000u) - 0x1.00000001p84;
    vd low = (vd)((u & 0xffffffffu) | 0x4330000000000000u);
    return (vq)(high + low);
#endif
}

/* rng_normal_from_bits without the sign; in the low halves. */
V_INLINE vq normal_magnitudes(vq bits) {
    enum { MIN_EXP = RNG_NORMAL_MIN_EXP, SUB_BITS = RNG_NORMAL_SUB_BITS };
    enum { FRACTION_BITS = RNG_NORMAL_FRACTION_BITS, MANTISSA_BITS = 52, BIAS = 1023 };
    vq d = double_bits((bits & INT64_MAX) | 1u << MIN_EXP);
    vq knot = (d >> (MANTISSA_BITS - SUB_BITS)) - ((BIAS + MIN_EXP) << SUB_BITS);
    vq fraction = (d >> (MANTISSA_BITS - SUB_BITS - FRACTION_BITS)) & ((1u << FRACTION_BITS) - 1);
    vq pair; /* the knot and the next, which is lower */
    for (int i = 0; i < VQ_LANES; i++) {
        uint64_t two;
        memcpy(&two, &RNG_NORMAL_Q24[knot[i]], sizeof two);
        pair[i] = two;
    }
    return pair - (vq_multiply_low(pair - (pair >> 32), fraction) >> FRACTION_BITS);
}

/* Elements 2 i and 2 i + 1 come from lane i of `even` and `odd`. */
V_INLINE vi normals_from_bits(vq even, vq odd) {
    const vq low = (vq){0} + 0xffffffffu;
    vi q = (vi)((normal_magnitudes(even) & low) | normal_magnitudes(odd) << 32);
    vi sign = (vi)(even >> 32 | (odd & ~low)) >> 31;
    return (q ^ sign) - sign;
}

enum { NORMALS = PHILOX_GROUPS * VW };

/* out[i] = (float)(scale * normal(first + i)) for NORMALS elements; first is even. */
V_INLINE void normals_store(rng_key key, uint64_t first, double scale, float *out) {
    vq even[PHILOX_GROUPS], odd[PHILOX_GROUPS];
    philox_blocks(key, first >> 1, even, odd);
    for (int g = 0; g < PHILOX_GROUPS; g++) {
        vi q = normals_from_bits(even[g], odd[g]);
        vi_half half[2];
        memcpy(half, &q, sizeof half);
        for (int i = 0; i < 2; i++) {
            vd x = __builtin_convertvector(half[i], vd) * scale;
            vf_half rounded = __builtin_convertvector(x, vf_half);
            memcpy(out + g * VW + i * VW / 2, &rounded, sizeof rounded);
        }
    }
}

#endif
#endif
