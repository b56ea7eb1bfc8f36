/* Products in integers (stored_dot.c) of weights of 8 bits without a sign, four in a lane (a quad), and of numbers of 16 bits; of
 * AVX2 and AVX-512, with VNNI where a variant has it.
 *
 * Each quad of such numbers is two parts of 32 bits. VNNI multiplies bytes, four at a time: the parts are the upper and the lower
 * bytes. Else pairs of 16 bits are multiplied: the parts are numbers 0 and 2, and numbers 1 and 3. Sums are whole, so that both ways
 * give the same. */
#ifndef OP_CPU_QUADS_H
#define OP_CPU_QUADS_H

#include "op/cpu/simd.h"

#ifdef __AVX512VNNI__
#define V_VNNI 1
#else
#define V_VNNI 0
#endif

/* Parts that a quad of weights has: with VNNI both parts of numbers are multiplied with the same bytes. */
enum { QUAD_PARTS = V_VNNI ? 1 : 2 };

/* The largest magnitude of a number: 256 * 127 + 127, so that the upper byte of a rounded one fits. */
enum { QUAD_LIMIT = 32639 };

typedef uint16_t vw __attribute__((vector_size(V_BYTES)));

/* Part 0 or 1 of quads of weights. */
V_INLINE vi v_quad_part(vi quads, int part) {
    if (V_VNNI) return quads;
    return part ? (vi)((vw)quads >> 8) : quads & 0x00ff00ff;
}

/* sum + the products of part x of a quad of numbers with that part of weights. Sums are made in the order of the calls: compilers
 * know that any order gives the same, and would make all products of a tile first, which no registers hold. */
V_INLINE vi v_add_part(vi sum, vi weights, vi x) {
#if V_VNNI
    return (vi)v_keep((vf)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)x));
#elif V_AVX512
    return (vi)v_keep((vf)(sum + (vi)_mm512_madd_epi16((__m512i)weights, (__m512i)x)));
#else
    return (vi)v_keep((vf)(sum + (vi)_mm256_madd_epi16((__m256i)weights, (__m256i)x)));
#endif
}

/* What the sum of products of first parts counts. */
V_INLINE vi v_first_parts(vi sum) {
    return V_VNNI ? sum << 8 : sum;
}

/* The nearest whole numbers. */
V_INLINE vi v_round_int(vf v) {
#if V_AVX512
    return (vi)_mm512_cvtps_epi32(v);
#else
    return (vi)_mm256_cvtps_epi32(v);
#endif
}

/* VW numbers as quads, of each its two parts. */
V_INLINE void v_store_quads(int32_t *p, vi v) {
#if V_VNNI
    __m128i upper = _mm512_cvtepi32_epi8((__m512i)((v + 128) >> 8));
    __m128i lower = _mm512_cvtepi32_epi8((__m512i)v); /* with a sign */
    _mm_storeu_si128((void *)p, _mm_unpacklo_epi32(upper, lower));
    _mm_storeu_si128((void *)(p + 4), _mm_unpackhi_epi32(upper, lower));
#elif V_AVX512
    __m256i words = _mm512_cvtepi32_epi16(_mm512_shuffle_epi32((__m512i)v, 0xd8));
    _mm256_storeu_si256((void *)p, words);
#else
    __m256i mixed = _mm256_shuffle_epi32((__m256i)v, 0xd8);
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(mixed, mixed), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(words));
#endif
}

/* (bits & mask) | more */
V_INLINE vi v_and_or(vi bits, int32_t mask, vi more) {
#if V_AVX512
    return (vi)_mm512_ternarylogic_epi32((__m512i)bits, _mm512_set1_epi32(mask), (__m512i)more,
                                         0xea);
#else
    return (bits & mask) | more;
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
