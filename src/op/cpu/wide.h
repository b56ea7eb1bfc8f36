/* Lanes of 64 bits beside the floats of op/cpu/simd.h: a vector of VW floats is two vectors of
 * VQ_LANES = VW / 2 wide lanes. Conversions between floats and the fixed point of op/fixed.h have
 * the same bits on every instruction set: AVX-512 has instructions for them, elsewhere doubles do
 * it.
 */
#ifndef OP_CPU_WIDE_H
#define OP_CPU_WIDE_H

#include "op/cpu/simd.h"
#include "op/fixed.h"

typedef uint64_t vq __attribute__((vector_size(V_BYTES)));
typedef int64_t vs __attribute__((vector_size(V_BYTES)));
typedef double vd __attribute__((vector_size(V_BYTES)));
typedef float vf_half __attribute__((vector_size(V_BYTES / 2)));
typedef int32_t vi_half __attribute__((vector_size(V_BYTES / 2)));
typedef vs vs_mem __attribute__((aligned(8), may_alias));
enum { VQ_LANES = V_BYTES / 8 };

V_INLINE vs vs_load(const int64_t *p) {
    return *(const vs_mem *)p;
}
V_INLINE void vs_store(int64_t *p, vs v) {
    *(vs_mem *)p = v;
}

/* Products of the low halves of the lanes. */
V_INLINE vq vq_multiply_low(vq a, vq b) {
#if V_AVX512
    return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif V_AVX2
    return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* x * 2^FIXED_GRAD_BITS to the nearest integer, ties to even; |x| <= 2^12. */
V_INLINE vs fixed_from_float(vf_half x) {
    x *= (float)(INT64_C(1) << FIXED_GRAD_BITS); /* exact */
#if V_AVX512
    return (vs)_mm512_cvt_roundps_epi64((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    /* Adding 1.5 * 2^52 leaves an integer in the low bits. Where the upper half is not 0, x has no
     * bits after the point, and what is left for the lower half is exact. */
    const double shift = 0x1.8p52;
    const uint64_t bits = 0x4338000000000000u;
    vd v = __builtin_convertvector(x, vd);
    vd high = v * 0x1p-32 + shift;
    vd low = (v - (high - shift) * 0x1p32) + shift;
    return (vs)((((vq)high - bits) << 32) + ((vq)low - bits));
#endif
}

/* The nearest float to x * 2^-FIXED_GRAD_BITS, ties to even. */
V_INLINE vf_half float_from_fixed(vs x) {
    const float unit = 1.0f / (float)(INT64_C(1) << FIXED_GRAD_BITS);
#if V_AVX512
    __m256 r = _mm512_cvt_roundepi64_ps((__m512i)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return (vf_half)r * unit;
#else
    /* What does not fit into a double is rounded to odd first, which a rounding to float later
     * cannot tell from the exact value. Then the halves join without rounding. */
    vs beyond = (x >= (INT64_C(1) << 53)) | (x <= -(INT64_C(1) << 53));
    vs odd = ((x & 1023) != 0) & 1024;
    x = (x & ~(beyond & 1023)) | (beyond & odd);
    const vd shift = (vd){0} + (0x1p84 + 0x1p63 + 0x1p52);
    vd high = (vd)((vq)x >> 32 ^ 0x4530000080000000u) - shift;
    vd low = (vd)(((vq)x & 0xffffffffu) | 0x4330000000000000u);
    return __builtin_convertvector(high + low, vf_half) * unit;
#endif
}

#endif
