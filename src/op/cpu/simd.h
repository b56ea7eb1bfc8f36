/* Vectors of floats of the width of the instruction set this file is compiled for: 16 (AVX-512),
 * 8 (AVX2) or 4 lanes (NEON of ARM, and what has none of these). GCC vector extensions carry the arithmetic; intrinsics stand only where the
 * compilers miss the instruction. bf16 and f16 are storage formats: loads widen, stores round to
 * nearest even and keep NaN.
 *
 * Multiply-add is fused where the machine can. Sums over lanes have one fixed order. */
#ifndef OP_CPU_SIMD_H
#define OP_CPU_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define V_AVX512 1
enum { VW = 16 };
#elif defined(__AVX2__) && defined(__FMA__)
#define V_AVX2 1
enum { VW = 8 };
#else
enum { VW = 4 };
#endif

#ifndef V_AVX512
#define V_AVX512 0
#endif
#ifndef V_AVX2
#define V_AVX2 0
#endif
/* ARM in 64 bits: 4 lanes, and twice the registers of AVX2. */
#ifdef __aarch64__
#define V_NEON 1
#else
#define V_NEON 0
#endif
/* Whether the machine multiplies pairs of bf16: then bf16 is all that this variant multiplies. */
#ifdef CPU_ONLY_BF16
#define V_DOT_BF16 1
#else
#define V_DOT_BF16 0
#endif

/* Whether the machine multiplies tiles of bf16, too. */
#ifdef CPU_ONLY_AMX
#define V_AMX 1
#else
#define V_AMX 0
#endif

#define V_INLINE static inline __attribute__((always_inline, unused))

#if V_AVX512
#define V_BYTES 64
#elif V_AVX2
#define V_BYTES 32
#else
#define V_BYTES 16
#endif
typedef float vf __attribute__((vector_size(V_BYTES)));
typedef int32_t vi __attribute__((vector_size(V_BYTES)));
typedef uint32_t vu __attribute__((vector_size(V_BYTES)));
typedef float vf_mem __attribute__((vector_size(V_BYTES), aligned(4), may_alias));
typedef int32_t vi_mem __attribute__((vector_size(V_BYTES), aligned(4), may_alias));
typedef uint16_t vh_mem __attribute__((vector_size(V_BYTES / 2), aligned(2), may_alias));

V_INLINE vf v_load(const float *p) {
    return *(const vf_mem *)p;
}
V_INLINE void v_store(float *p, vf v) {
    *(vf_mem *)p = v;
}
V_INLINE vi v_load_i(const int32_t *p) {
    return *(const vi_mem *)p;
}
V_INLINE vf v_zero(void) {
    return (vf){0};
}
V_INLINE vf v_set1(float x) {
    return x - (vf){0};
}
V_INLINE vi v_set1_i(int32_t x) {
    return x + (vi){0};
}

/* Lanes of a where mask is all ones, of b where it is zero. */
V_INLINE vf v_select(vi mask, vf a, vf b) {
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

V_INLINE vf v_fma(vf a, vf b, vf c) {
#if V_AVX512
    return _mm512_fmadd_ps(a, b, c);
#elif V_AVX2
    return _mm256_fmadd_ps(a, b, c);
#elif V_NEON
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

/* Holds a value in a register: without it compilers load the same operand again at every use. */
V_INLINE vf v_keep(vf a) {
#if V_AVX512
    __asm__("" : "+v"(a));
#elif defined(__SSE2__)
    __asm__("" : "+x"(a));
#elif V_NEON
    __asm__("" : "+w"(a));
#endif
    return a;
}

/* When a lane of a is NaN the result is that of b. */
V_INLINE vf v_max(vf a, vf b) {
#if V_AVX512
    return _mm512_max_ps(a, b);
#elif V_AVX2
    return _mm256_max_ps(a, b);
#else
    return v_select(a > b, a, b);
#endif
}
V_INLINE vf v_min(vf a, vf b) {
#if V_AVX512
    return _mm512_min_ps(a, b);
#elif V_AVX2
    return _mm256_min_ps(a, b);
#else
    return v_select(a < b, a, b);
#endif
}
V_INLINE vf v_abs(vf a) {
    return (vf)((vi)a & 0x7fffffff);
}
V_INLINE vf v_sqrt(vf a) {
#if V_AVX512
    return _mm512_sqrt_ps(a);
#elif V_AVX2
    return _mm256_sqrt_ps(a);
#elif defined(__SSE2__)
    return _mm_sqrt_ps(a);
#elif V_NEON
    return vsqrtq_f32(a);
#else
    for (int i = 0; i < VW; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

V_INLINE vf v_load_bf16(const uint16_t *p) {
#if V_AVX512
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return (vf)_mm512_slli_epi32(w, 16);
#elif V_AVX2
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return (vf)_mm256_slli_epi32(w, 16);
#else
    return (vf)(__builtin_convertvector(*(const vh_mem *)p, vu) << 16);
#endif
}

/* The bf16 nearest to each lane, in the low half of a lane. */
V_INLINE vu v_round_bf16(vf v) {
    vu u = (vu)v;
    vu rounded = u + 0x7fffu + ((u >> 16) & 1u);
    vu nan = u | 0x400000u;
    vi is_nan = v != v;
    return (((vu)is_nan & nan) | (~(vu)is_nan & rounded)) >> 16;
}
V_INLINE void v_store_bf16(uint16_t *p, vf v) {
    vu r = v_round_bf16(v);
#if V_AVX512
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16((__m512i)r));
#elif V_AVX2
    __m256i q = _mm256_packus_epi32((__m256i)r, (__m256i)r);
    q = _mm256_permute4x64_epi64(q, 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(q));
#else
    *(vh_mem *)p = __builtin_convertvector(r, vh_mem);
#endif
}

/* VW numbers of f16, at any address. */
V_INLINE vf v_load_f16(const uint8_t *p) {
#if V_AVX512
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif V_AVX2
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#elif V_NEON
    float16x4_t h;
    memcpy(&h, p, sizeof(h));
    return vcvt_f32_f16(h);
#else
    uint16_t h[VW];
    vf v = v_zero();
    memcpy(h, p, sizeof(h));
    for (int i = 0; i < VW; i++) v[i] = f16_to_f32(h[i]);
    return v;
#endif
}

/* The f16 nearest to each lane: infinity from 65520 on. */
V_INLINE void v_store_f16(uint16_t *p, vf v) {
#if V_AVX512
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif V_AVX2
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif V_NEON
    float16x4_t h = vcvt_f16_f32(v);
    memcpy(p, &h, sizeof(h));
#else
    for (int i = 0; i < VW; i++) p[i] = f32_to_f16(v[i]);
#endif
}

/* In 16 bits as dt says, bf16 or f16. */
V_INLINE void v_store_16(uint16_t *p, vf v, dtype dt) {
    dt == DT_F16 ? v_store_f16(p, v) : v_store_bf16(p, v);
}

V_INLINE int64_t v_element_bytes(dtype dt) {
    return dt == DT_F32 ? 4 : 2;
}

/* Element i of an array of f32, bf16 or f16; dt is a constant where these are called. */
V_INLINE vf v_get(const void *p, int64_t i, dtype dt) {
    if (dt == DT_F16) return v_load_f16((const uint8_t *)p + 2 * i);
    return dt == DT_BF16 ? v_load_bf16((const uint16_t *)p + i) : v_load((const float *)p + i);
}
V_INLINE void v_put(void *p, int64_t i, vf v, dtype dt) {
    if (dt == DT_F16)
        v_store_f16((uint16_t *)p + i, v);
    else if (dt == DT_BF16)
#if V_DOT_BF16
        /* One instruction; it makes subnormal numbers 0, which v_store_bf16 keeps. */
        _mm256_storeu_si256((void *)((uint16_t *)p + i), (__m256i)_mm512_cvtneps_pbh(v));
#else
        v_store_bf16((uint16_t *)p + i, v);
#endif
    else
        v_store((float *)p + i, v);
}
V_INLINE float s_get(const void *p, int64_t i, dtype dt) {
    if (dt == DT_F16) return f16_to_f32(((const uint16_t *)p)[i]);
    return dt == DT_BF16 ? bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
V_INLINE void s_put(void *p, int64_t i, float v, dtype dt) {
    if (dt == DT_F16)
        ((uint16_t *)p)[i] = f32_to_f16(v);
    else if (dt == DT_BF16)
        ((uint16_t *)p)[i] = f32_to_bf16(v);
    else
        ((float *)p)[i] = v;
}

/* ---- the end of a row: n <= VW elements ---- */

#if V_AVX512
typedef __mmask16 v_lanes;
V_INLINE v_lanes v_first_lanes(int64_t n) {
    return (__mmask16)((1u << n) - 1);
}
V_INLINE vf v_load_f32_n(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(v_first_lanes(n), p);
}
V_INLINE void v_store_f32_n(float *p, vf v, int64_t n) {
    _mm512_mask_storeu_ps(p, v_first_lanes(n), v);
}
V_INLINE vf v_load_16_n(const uint16_t *p, int64_t n, dtype dt) {
    __m256i h = _mm256_maskz_loadu_epi16(v_first_lanes(n), p);
    if (dt == DT_F16) return _mm512_cvtph_ps(h);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}
V_INLINE void v_store_16_n(uint16_t *p, vf v, int64_t n, dtype dt) {
    __m256i h = dt == DT_F16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)
                             : _mm512_cvtepi32_epi16((__m512i)v_round_bf16(v));
    _mm256_mask_storeu_epi16(p, v_first_lanes(n), h);
}
#else
/* Functions of their own: inlined at each of the many ends of rows they would be most of the code. */
#define V_ROW_END __attribute__((noinline, unused)) static
V_ROW_END vf v_load_f32_n(const float *p, int64_t n) {
    float t[VW] = {0};
    for (int64_t j = 0; j < n; j++) t[j] = p[j];
    return v_load(t);
}
V_ROW_END void v_store_f32_n(float *p, vf v, int64_t n) {
    for (int64_t j = 0; j < n; j++) p[j] = v[j];
}
V_ROW_END vf v_load_16_n(const uint16_t *p, int64_t n, dtype dt) {
    uint16_t t[VW] = {0};
    for (int64_t j = 0; j < n; j++) t[j] = p[j];
    return dt == DT_F16 ? v_load_f16((const uint8_t *)t) : v_load_bf16(t);
}
V_ROW_END void v_store_16_n(uint16_t *p, vf v, int64_t n, dtype dt) {
    for (int64_t j = 0; j < n; j++) p[j] = dt == DT_F16 ? f32_to_f16(v[j]) : f32_to_bf16(v[j]);
}
#endif

/* The first n elements; other lanes are zero, other memory is untouched. */
V_INLINE vf v_get_n(const void *p, int64_t i, int64_t n, dtype dt) {
    if (dt == DT_F32) return v_load_f32_n((const float *)p + i, n);
    return v_load_16_n((const uint16_t *)p + i, n, dt);
}
V_INLINE void v_put_n(void *p, int64_t i, vf v, int64_t n, dtype dt) {
    if (dt == DT_F32)
        v_store_f32_n((float *)p + i, v, n);
    else
        v_store_16_n((uint16_t *)p + i, v, n, dt);
}

/* Tree sum and maximum over the lanes. */
V_INLINE float v_sum(vf v) {
#if defined(__SSE2__)
#if V_AVX512
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#elif V_AVX2
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
#else
    __m128 q = v;
#endif
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
#else
    float t[VW];
    v_store(t, v);
    for (int w = VW / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
#endif
}
typedef float v4f __attribute__((vector_size(16)));

/* Sums of four lanes that are four apart. */
V_INLINE v4f v_fold(vf v) {
#if V_AVX512
    __m256 half = _mm512_castps512_ps256(v) + _mm512_extractf32x8_ps(v, 1);
    return _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
#elif V_AVX2
    return _mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1);
#else
    return v;
#endif
}

/* The sums over the lanes of four vectors. */
V_INLINE v4f v_sum_each(const vf v[4]) {
    v4f a = v_fold(v[0]), b = v_fold(v[1]), c = v_fold(v[2]), d = v_fold(v[3]);
    v4f ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4f cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

#if V_AVX512
/* Lanes of u, then of v: those 8 apart are added; of two such results those 4 apart, then 2, then 1. */
V_INLINE vf v_halves(vf u, vf v) {
    return _mm512_shuffle_f32x4(u, v, 0x44) + _mm512_shuffle_f32x4(u, v, 0xee);
}
V_INLINE vf v_quarters(vf u, vf v) {
    return _mm512_shuffle_f32x4(u, v, 0x88) + _mm512_shuffle_f32x4(u, v, 0xdd);
}
V_INLINE vf v_eighths(vf u, vf v) {
    return (vf)_mm512_unpacklo_pd((__m512d)u, (__m512d)v) +
           (vf)_mm512_unpackhi_pd((__m512d)u, (__m512d)v);
}
V_INLINE vf v_lanes_of(vf u, vf v) {
    return _mm512_shuffle_ps(u, v, 0x88) + _mm512_shuffle_ps(u, v, 0xdd);
}
#endif

/* v_sum_each of four rows at once. */
V_INLINE void v_sum_rows(vf a[4][4], v4f sum[4]) {
#if V_AVX512
    vf x[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        x[q] = v_quarters(v_halves(a[0][q], a[1][q]), v_halves(a[2][q], a[3][q]));
    vf all = v_lanes_of(v_eighths(x[0], x[1]), v_eighths(x[2], x[3]));
    sum[0] = _mm512_castps512_ps128(all);
    sum[1] = _mm512_extractf32x4_ps(all, 1);
    sum[2] = _mm512_extractf32x4_ps(all, 2);
    sum[3] = _mm512_extractf32x4_ps(all, 3);
#else
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) sum[r] = v_sum_each(a[r]);
#endif
}

V_INLINE float v_hmax(vf v) {
#if V_AVX512 || V_AVX2
#if V_AVX512
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
    __m256 h = v;
#endif
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
#endif
    float m = v[0];
    for (int i = 1; i < VW; i++) m = v[i] > m ? v[i] : m;
    return m;
}

#endif
