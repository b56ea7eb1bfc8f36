/* Packing for the register-blocked products: a panel of R rows (of A, or columns of B) is stored
 * k-major, panel[u * R + r], zero-padded in r. A unit u is one f32, or a pair of bf16 (k = 2u,
 * 2u+1) where the machine multiplies bf16 pairs. bf16 is widened to f32 where it does not, and f16
 * everywhere. */
#ifndef OP_CPU_PACK_H
#define OP_CPU_PACK_H

#include "op/cpu/simd.h"

/* Register tile: TILE_M rows, TILE_N = TILE_NV vectors of columns. Panels of A have PANEL_M rows, whole tiles. With
 * AVX-512 it is wide, since what limits it are loads: 10 for 24 multiply-adds, where a tile of 12 x 32 has 14. NEON takes
 * a factor from a lane of a register, so that it has 5 loads for 24. */
#if V_AVX512
enum { TILE_M = 6, TILE_NV = 4, PANEL_M = 12 };
#elif V_AVX2
enum { TILE_M = 4, TILE_NV = 3, PANEL_M = 4 };
#elif V_NEON
enum { TILE_M = 8, TILE_NV = 3, PANEL_M = 8 };
#else
enum { TILE_M = 4, TILE_NV = 2, PANEL_M = 4 };
#endif
enum { TILE_N = TILE_NV * VW };

typedef float pack_float __attribute__((aligned(2), may_alias)); /* or a pair of bf16 */
typedef float v4f_mem __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t v4h_mem __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t v4u __attribute__((vector_size(16)));

/* Whether a product of operands of this type runs on bf16 pairs here. */
V_INLINE bool pack_pairs(dtype dt) {
    return V_DOT_BF16 && dt == DT_BF16;
}
V_INLINE int64_t pack_units(int64_t k, bool pairs) {
    return pairs ? (k + 1) / 2 : k;
}

/* acc + a * b, of units. */
V_INLINE vf pack_multiply_add(float a, vf b, vf acc) {
#if V_DOT_BF16
    return _mm512_dpbf16_ps(acc, (__m512bh)v_set1(a), (__m512bh)b);
#else
    return v_fma(v_set1(a), b, acc);
#endif
}
/* The same into the register of the sum: where sums fill the registers, compilers that put it elsewhere, such as
 * where b was, run out of them. */
V_INLINE vf pack_multiply_into(float a, vf b, vf acc) {
#if V_AVX512 && !V_DOT_BF16
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(v_set1(a)), "v"(b));
    return acc;
#else
    return pack_multiply_add(a, b, acc);
#endif
}

/* Holds b in a register, where compilers would load it again for each sum. Where pack_multiply_into is assembly it stays
 * there anyway, and keeping it costs copies. */
V_INLINE vf pack_keep(vf b) {
    return V_AVX512 && !V_DOT_BF16 ? b : v_keep(b);
}

/* The numbers of a unit in a panel of A, by which rows of B are multiplied: in memory, or in lanes of registers where a
 * multiply-add takes one of these. */
#if V_NEON
typedef struct pack_factors {
    vf of[(PANEL_M + VW - 1) / VW];
} pack_factors;
V_INLINE pack_factors pack_load_factors(const float *unit, int rows) {
    pack_factors f;
#pragma GCC unroll 4
    for (int i = 0; i < rows; i += VW) f.of[i / VW] = v_keep(v_load(unit + i));
    return f;
}
V_INLINE float pack_factor(pack_factors f, int i) {
    return f.of[i / VW][i % VW];
}
#else
typedef const float *pack_factors;
V_INLINE pack_factors pack_load_factors(const float *unit, int rows) {
    (void)rows;
    return unit;
}
V_INLINE float pack_factor(pack_factors f, int i) {
    return f[i];
}
#endif

/* Four units of one row, k contiguous. */
V_INLINE v4f pack_load4(const void *src, int64_t i, dtype dt, bool pairs) {
    if (dt == DT_F32) return *(const v4f_mem *)((const float *)src + i);
    if (pairs) return *(const v4f_mem *)((const uint16_t *)src + i);
    const uint16_t *h = (const uint16_t *)src + i;
    if (dt == DT_F16) {
#if V_AVX512 || V_AVX2
        return _mm_cvtph_ps(_mm_loadl_epi64((const void *)h));
#else
        return (v4f){f16_to_f32(h[0]), f16_to_f32(h[1]), f16_to_f32(h[2]), f16_to_f32(h[3])};
#endif
    }
    v4u w = __builtin_convertvector(*(const v4h_mem *)h, v4u);
    return (v4f)(w << 16);
}

/* Unit u (which holds k = k0 + u, or the pair from k0 + 2u) of an operand; beyond k_end: zero. */
V_INLINE float pack_unit(const void *src, int64_t at, int64_t step, int64_t left, dtype dt,
                         bool pairs) {
    if (dt == DT_F32) return ((const float *)src)[at];
    if (dt == DT_F16) return f16_to_f32(((const uint16_t *)src)[at]);
    const uint16_t *h = (const uint16_t *)src + at;
    if (!pairs) return bf16_to_f32(h[0]);
    uint32_t u = h[0] | (left > 1 ? (uint32_t)h[step] << 16 : 0u);
    float f;
    memcpy(&f, &u, 4);
    return f;
}

#if V_AVX512
/* The first `lanes` quarters of a vector; a whole panel row of R = 8, 12 or 16 floats. */
V_INLINE void pack_store(float *dst, __m512 v, int lanes) {
    if (lanes == 4) {
        _mm512_storeu_ps(dst, v);
        return;
    }
    if (lanes >= 2) _mm256_storeu_ps(dst, _mm512_castps512_ps256(v));
    if (lanes == 1) _mm_storeu_ps(dst, _mm512_castps512_ps128(v));
    if (lanes == 3) _mm_storeu_ps(dst + 8, _mm512_extractf32x4_ps(v, 2));
}

/* The first twelve floats of four vectors, one after another. Parts of vectors would cross lines. */
V_INLINE void pack_store_twelves(float *dst, const __m512 v[4]) {
    const __m512i last =
        _mm512_setr_epi32(8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27);
    _mm512_storeu_ps(dst, _mm512_mask_shuffle_f32x4(v[0], 0xf000, v[1], v[1], 0));
    _mm512_storeu_ps(dst + 16, _mm512_shuffle_f32x4(v[1], v[2], _MM_SHUFFLE(1, 0, 2, 1)));
    _mm512_storeu_ps(dst + 32, _mm512_permutex2var_ps(v[2], last, v[3]));
}

/* Row i of each quarter: rows i, 4 + i, 8 + i, ... `ld` apart. */
V_INLINE __m512 pack_gather(const float *src, int64_t ld, int i, int lanes) {
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(src + i * ld));
    if (lanes > 1) v = _mm512_insertf32x4(v, _mm_loadu_ps(src + (4 + i) * ld), 1);
    if (lanes > 2) v = _mm512_insertf32x4(v, _mm_loadu_ps(src + (8 + i) * ld), 2);
    if (lanes > 3) v = _mm512_insertf32x4(v, _mm_loadu_ps(src + (12 + i) * ld), 3);
    return v;
}

/* 4 * lanes rows of 32-bit words, `ld` apart, to four vectors of a word each. The quarters are transposed
 * inside themselves, so no shuffle crosses them. */
V_INLINE void pack_words(const float *src, int64_t ld, int lanes, __m512 v[4]) {
    __m512 a = pack_gather(src, ld, 0, lanes), b = pack_gather(src, ld, 1, lanes);
    __m512 c = pack_gather(src, ld, 2, lanes), d = pack_gather(src, ld, 3, lanes);
    __m512d ab0 = (__m512d)_mm512_unpacklo_ps(a, b), ab1 = (__m512d)_mm512_unpackhi_ps(a, b);
    __m512d cd0 = (__m512d)_mm512_unpacklo_ps(c, d), cd1 = (__m512d)_mm512_unpackhi_ps(c, d);
    v[0] = (__m512)_mm512_unpacklo_pd(ab0, cd0), v[1] = (__m512)_mm512_unpackhi_pd(ab0, cd0);
    v[2] = (__m512)_mm512_unpacklo_pd(ab1, cd1), v[3] = (__m512)_mm512_unpackhi_pd(ab1, cd1);
}

/* Four units, of which a panel has R in a row. */
V_INLINE void pack_four(float *dst, int R, const __m512 v[4], int lanes) {
    if (R == 12 && lanes == 3) {
        pack_store_twelves(dst, v);
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) pack_store(dst + i * R, v[i], lanes);
}

/* One of the two 16-bit numbers of each word: the low half is the first. */
V_INLINE __m512 pack_half(__m512 words, bool second, dtype dt) {
    __m512i w = (__m512i)words;
    if (dt == DT_F16)
        return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(second ? _mm512_srli_epi32(w, 16) : w));
    return (__m512)(second ? _mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000))
                           : _mm512_slli_epi32(w, 16));
}

/* Rows of f32, or of bf16 of which a unit takes two: units [0, whole). */
V_INLINE void pack_quarters(float *dst, int R, const float *src, int64_t ld, int64_t whole,
                            int lanes) {
    for (int64_t u = 0; u < whole; u += 4) {
        __m512 v[4];
        pack_words(src + u, ld, lanes, v);
        pack_four(dst + u * R, R, v, lanes);
    }
}

/* Rows of 16-bit numbers that are widened, two in a word: units [0, whole). */
V_INLINE void pack_halves(float *dst, int R, const float *src, int64_t ld, int64_t whole, int lanes,
                          dtype dt) {
    for (int64_t u = 0; u < whole; u += 8) {
        __m512 w[4], v[2][4];
        pack_words(src + u / 2, ld, lanes, w);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) v[i / 4][i % 4] = pack_half(w[i / 2], i % 2, dt);
        pack_four(dst + u * R, R, v[0], lanes);
        pack_four(dst + (u + 4) * R, R, v[1], lanes);
    }
}

/* The first `whole` units of 4 * lanes rows. */
V_INLINE void pack_rows_at_once(float *dst, int R, const void *src, int64_t ld, int64_t whole,
                                int lanes, dtype dt, bool pairs) {
    if (dt == DT_F32 || pairs)
        pack_quarters(dst, R, src, pairs ? ld / 2 : ld, whole, lanes);
    else
        pack_halves(dst, R, src, ld / 2, whole, lanes, dt);
}
#endif

/* Four rows, any type; units [0, whole). */
V_INLINE void pack_quarter(float *dst, int R, const void *src, int64_t at, int64_t ld,
                           int64_t whole, dtype dt, bool pairs) {
    for (int64_t u = 0; u < whole; u += 4, at += pairs ? 8 : 4) {
        v4f a = pack_load4(src, at, dt, pairs), b = pack_load4(src, at + ld, dt, pairs);
        v4f c = pack_load4(src, at + 2 * ld, dt, pairs),
            d = pack_load4(src, at + 3 * ld, dt, pairs);
        v4f ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        v4f ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        v4f cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        v4f cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        float *o = dst + u * R;
        *(v4f_mem *)o = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
        *(v4f_mem *)(o + R) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
        *(v4f_mem *)(o + 2 * R) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
        *(v4f_mem *)(o + 3 * R) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
    }
}

/* Rows [r, r + 4 * lanes) of a panel as far as whole vectors go. */
V_INLINE int pack_lanes(int R, int64_t r, int64_t rows, int64_t ld, dtype dt) {
    if (!V_AVX512 || (dt != DT_F32 && ld % 2)) return 1;
    if (r + 16 <= rows) return 4;
    if (R == 12 && r + 12 <= rows) return 3;
    return r + 8 <= rows ? 2 : 1;
}

/* One panel; element (r, k) at src[r * ld + k]. */
V_INLINE void pack_transposed(float *dst, int R, const void *src, int64_t ld, int64_t rows,
                              int64_t k, dtype dt) {
    bool pairs = pack_pairs(dt);
    int64_t per = pairs ? 2 : 1, units = pack_units(k, pairs), r = 0;
    for (int lanes; r + 4 <= rows; r += 4 * lanes) {
        lanes = pack_lanes(R, r, rows, ld, dt);
        int64_t step = lanes > 1 && dt != DT_F32 && !pairs ? 8 : 4, whole = k / per / step * step;
#if V_AVX512
        const char *from = (const char *)src + r * ld * v_element_bytes(dt);
        if (lanes == 4)
            pack_rows_at_once(dst + r, R, from, ld, whole, 4, dt, pairs);
        else if (lanes == 3)
            pack_rows_at_once(dst + r, R, from, ld, whole, 3, dt, pairs);
        else if (lanes == 2)
            pack_rows_at_once(dst + r, R, from, ld, whole, 2, dt, pairs);
        else
#endif
            pack_quarter(dst + r, R, src, r * ld, ld, whole, dt, pairs);
        for (int64_t u = whole; u < units; u++)
            for (int64_t i = r; i < r + 4 * lanes; i++)
                dst[u * R + i] = pack_unit(src, i * ld + u * per, 1, k - u * per, dt, pairs);
    }
    for (; r < rows; r++)
        for (int64_t u = 0; u < units; u++)
            dst[u * R + r] = pack_unit(src, r * ld + u * per, 1, k - u * per, dt, pairs);
    /* Rows that are missing, a vector at a time where a whole one is: one by one they take longer than all others. */
    for (int n; r < R; r += n) {
        n = r % VW || R - r < VW ? 1 : VW;
        for (int64_t u = 0; u < units; u++) {
            if (n == 1)
                dst[u * R + r] = 0.0f;
            else
                v_store(dst + u * R + r, v_zero());
        }
    }
}

/* Panels of rows whose k is contiguous. */
V_INLINE void pack_k_contiguous(float *dst, int R, const void *src, int64_t ld, int64_t rows,
                                int64_t k, dtype dt) {
    int64_t units = pack_units(k, pack_pairs(dt)), bytes = v_element_bytes(dt);
    for (int64_t r = 0; r < rows; r += R) {
        for (int64_t i = r + R; i < rows && i < r + 2 * R; i++)
            for (int64_t b = 0; b < k * bytes; b += 64)
                __builtin_prefetch((const char *)src + i * ld * bytes + b, 0, 2);
        pack_transposed(dst + r * units, R, (const char *)src + r * ld * bytes, ld,
                        rows - r < R ? rows - r : R, k, dt);
    }
}

#if V_AVX512
/* The first n units of one k (or pair of k), zero behind them. */
V_INLINE __m512 pack_row_vector(const void *src, int64_t at, int64_t ld, int64_t n, int64_t left,
                                dtype dt, bool pairs) {
    __mmask16 m = n >= 16 ? 0xffff : n > 0 ? (__mmask16)(0xffffu >> (16 - n)) : 0;
    if (dt == DT_F32) return _mm512_maskz_loadu_ps(m, (const float *)src + at);
    const uint16_t *h = (const uint16_t *)src + at;
    if (dt == DT_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, h));
    __m512i lo = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, h));
    if (!pairs) return (__m512)_mm512_slli_epi32(lo, 16);
    __m512i hi = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(left > 1 ? m : 0, h + ld));
    return (__m512)_mm512_or_si512(_mm512_slli_epi32(hi, 16), lo);
}
#endif

/* R units of one k (or pair of k) from r on; rows that do not exist are zero. */
V_INLINE void pack_row(float *dst, int R, const void *src, int64_t at, int64_t ld, int64_t rows,
                       int64_t left, dtype dt, bool pairs) {
#if V_AVX512
#pragma GCC unroll 4
    for (int r = 0; r < R; r += 16) {
        int width = R - r < 16 ? R - r : 16;
        int64_t n = rows - r < width ? rows - r : width;
        pack_store(dst + r, pack_row_vector(src, at + r, ld, n, left, dt, pairs), width / 4);
    }
    return;
#endif
    if (rows >= R && (left > 1 || !pairs)) {
#pragma GCC unroll 8
        for (int r = 0; r < R; r += 4) {
            if (dt != DT_BF16) {
                *(v4f_mem *)(dst + r) = pack_load4(src, at + r, dt, false);
                continue;
            }
            const uint16_t *h = (const uint16_t *)src + at + r;
            v4u lo = __builtin_convertvector(*(const v4h_mem *)h, v4u), u = lo << 16;
            if (pairs) u = lo | __builtin_convertvector(*(const v4h_mem *)(h + ld), v4u) << 16;
            *(v4f_mem *)(dst + r) = (v4f)u;
        }
        return;
    }
    for (int r = 0; r < R; r++)
        dst[r] = r < rows ? pack_unit(src, at + r, ld, left, dt, pairs) : 0.0f;
}

/* Units between which pack_r_contiguous changes panels: rows of src that are a power of two apart
 * share the ways of one cache set, so few of them are open at a time. */
enum { PACK_UNITS = 4, PACK_AHEAD = 12 }; /* and how many units before their use rows are fetched */

/* Element (r, k) at src[k * ld + r]. Several panels at once, so that a row of src is read in one
 * go; a panel is R * units(k) floats. */
V_INLINE void pack_r_contiguous(float *dst, int R, const void *src, int64_t ld, int64_t rows,
                                int64_t k, dtype dt) {
    bool pairs = pack_pairs(dt);
    int64_t per = pairs ? 2 : 1, units = pack_units(k, pairs), bytes = v_element_bytes(dt);
    for (int64_t u0 = 0; u0 < units; u0 += PACK_UNITS) {
        int64_t end = u0 + PACK_UNITS < units ? u0 + PACK_UNITS : units;
        if (u0 + PACK_AHEAD + PACK_UNITS <= units)
            for (int64_t i = per * (u0 + PACK_AHEAD); i < per * (end + PACK_AHEAD); i++)
                for (int64_t r = 0; r < rows; r += 64 / bytes)
                    __builtin_prefetch((const char *)src + (i * ld + r) * bytes);
        for (int64_t r = 0; r < rows; r += R) {
#if V_AVX512
            if (R == 12 && end - u0 == PACK_UNITS) {
                __m512 v[PACK_UNITS];
#pragma GCC unroll 4
                for (int64_t u = u0; u < u0 + PACK_UNITS; u++)
                    v[u - u0] = pack_row_vector(src, u * per * ld + r, ld, rows - r, k - u * per,
                                                dt, pairs);
                pack_store_twelves(dst + r * units + u0 * R, v);
                continue;
            }
#endif
            for (int64_t u = u0; u < end; u++)
                pack_row(dst + r * units + u * R, R, src, u * per * ld + r, ld, rows - r,
                         k - u * per, dt, pairs);
        }
    }
}

#endif
