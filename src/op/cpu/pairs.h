/* Vectors whose lanes are pairs of 16-bit numbers, for products in integers (stored_dot.c); of AVX2 and AVX-512, with VNNI where a
 * variant has it. */
#ifndef OP_CPU_PAIRS_H
#define OP_CPU_PAIRS_H

#include "op/cpu/simd.h"

typedef int16_t vw __attribute__((vector_size(V_BYTES)));

/* sum + the two products of each lane. Sums are made in the order of the calls: compilers know that any order gives the same, and
 * would make all products of a tile first, which no registers hold. */
V_INLINE vi v_add_pairs(vi sum, vi a, vi b) {
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif V_AVX512
    sum += (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#else
    sum += (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
    return (vi)v_keep((vf)sum);
}

/* The nearest whole numbers; of NaN, and of what is too large, the least there is. */
V_INLINE vi v_round_int(vf v) {
#if V_AVX512
    return (vi)_mm512_cvtps_epi32(v);
#else
    return (vi)_mm256_cvtps_epi32(v);
#endif
}

/* VW numbers in 16 bits, the nearest that there are: of every four in a row the two in the middle change places, so that a pair is
 * numbers k and k + 2. */
V_INLINE void v_store_pairs(int32_t *p, vi v) {
#if V_AVX512
    __m256i words = _mm512_cvtsepi32_epi16(_mm512_shuffle_epi32((__m512i)v, 0xd8));
    _mm256_storeu_si256((void *)p, words);
#else
    __m256i mixed = _mm256_shuffle_epi32((__m256i)v, 0xd8);
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(mixed, mixed), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(words));
#endif
}

/* The f16 in the low half of each lane. */
V_INLINE vf v_low_f16(vi v) {
#if V_AVX512
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)v));
#else
    __m256i low = (__m256i)(v & 0xffff);
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(words));
#endif
}

/* 16 bytes from each of VW places, `step` apart: lane i of out[j] has the j-th four of those of place i. */
V_INLINE void v_load_fours(const uint8_t *p, int64_t step, vi out[4]) {
    /* Lane q of 128 bits of v[i] is place 4 q + i, so that each lane is turned within itself. */
#if V_AVX512
    __m512i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m128i part[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            part[q] = _mm_loadu_si128((const void *)(p + 4 * q * step + i * step));
        __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1);
        __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(part[2]), part[3], 1);
        v[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    __m512i ab0 = _mm512_unpacklo_epi32(v[0], v[1]), cd0 = _mm512_unpacklo_epi32(v[2], v[3]);
    __m512i ab2 = _mm512_unpackhi_epi32(v[0], v[1]), cd2 = _mm512_unpackhi_epi32(v[2], v[3]);
    out[0] = (vi)_mm512_unpacklo_epi64(ab0, cd0), out[1] = (vi)_mm512_unpackhi_epi64(ab0, cd0);
    out[2] = (vi)_mm512_unpacklo_epi64(ab2, cd2), out[3] = (vi)_mm512_unpackhi_epi64(ab2, cd2);
#else
    __m256i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_loadu2_m128i((const void *)(p + 4 * step + i * step),
                                   (const void *)(p + i * step));
    __m256i ab0 = _mm256_unpacklo_epi32(v[0], v[1]), cd0 = _mm256_unpacklo_epi32(v[2], v[3]);
    __m256i ab2 = _mm256_unpackhi_epi32(v[0], v[1]), cd2 = _mm256_unpackhi_epi32(v[2], v[3]);
    out[0] = (vi)_mm256_unpacklo_epi64(ab0, cd0), out[1] = (vi)_mm256_unpackhi_epi64(ab0, cd0);
    out[2] = (vi)_mm256_unpacklo_epi64(ab2, cd2), out[3] = (vi)_mm256_unpackhi_epi64(ab2, cd2);
#endif
}

#endif
