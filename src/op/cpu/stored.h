/* Weights in the formats of files (base/quant.h), decoded in registers: a chunk of 32 successive
 * elements of a row at a time. The numbers are those of quant_to_f32, bit for bit.
 *
 * Rows lie at any address. With AVX-512 the 16 values that 4 bits can have are one register, which
 * a permutation looks up; elsewhere integers are converted.
 *
 * Reading order: levels, chunk_of_* (one format each), stored_chunk, STORED_FORMATS. */
#ifndef OP_CPU_STORED_H
#define OP_CPU_STORED_H

#include "base/quant_blocks.h"
#include "op/cpu/simd.h"
#include "op/cpu/variant.h"

enum { CHUNK = 32, CHUNK_V = CHUNK / VW, HALF_V = CHUNK_V / 2 };

/* Every format that is decoded here. */
#define STORED_FORMATS(X)                                                                          \
    X(F16)                                                                                         \
    X(BF16)                                                                                        \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(Q8_0)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)

/* Elements of a block, at least a chunk: where plain numbers come in rows that are no multiple of
 * it, callers finish the row themselves. */
V_INLINE int64_t stored_block(dtype dt) {
    return dt == DT_Q4_K || dt == DT_Q5_K || dt == DT_Q6_K ? QUANT_K : CHUNK;
}

/* Bytes of a block of that many elements. */
V_INLINE int64_t stored_block_bytes(dtype dt) {
    switch (dt) {
        case DT_Q4_0: return sizeof(quant_q4_0);
        case DT_Q4_1: return sizeof(quant_q4_1);
        case DT_Q5_0: return sizeof(quant_q5_0);
        case DT_Q5_1: return sizeof(quant_q5_1);
        case DT_Q8_0: return sizeof(quant_q8_0);
        case DT_Q4_K: return sizeof(quant_q4_k);
        case DT_Q5_K: return sizeof(quant_q5_k);
        case DT_Q6_K: return sizeof(quant_q6_k);
        default: return 2 * CHUNK;
    }
}

/* ---- pieces ---- */

/* VW bytes as integers. */
V_INLINE vi v_load_u8(const uint8_t *p) {
#if V_AVX512
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
#elif V_AVX2
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
#else
    typedef uint8_t bytes __attribute__((vector_size(VW), aligned(1), may_alias));
    return __builtin_convertvector(*(const bytes *)p, vi);
#endif
}
V_INLINE vi v_load_i8(const int8_t *p) {
#if V_AVX512
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
#elif V_AVX2
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
#else
    typedef int8_t bytes __attribute__((vector_size(VW), aligned(1), may_alias));
    return __builtin_convertvector(*(const bytes *)p, vi);
#endif
}

/* VW numbers of f16. */
V_INLINE vf v_load_f16(const uint8_t *p) {
#if V_AVX512
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif V_AVX2
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
    vf v;
    for (int i = 0; i < VW; i++) v[i] = quant_get_f16(p + 2 * i);
    return v;
#endif
}

/* The same for bf16; unlike v_load_bf16, from any address. */
V_INLINE vf v_load_bf16_bytes(const uint8_t *p) {
    uint16_t h[VW];
    memcpy(h, p, sizeof(h));
    return v_load_bf16(h);
}

/* One f16 in all lanes. */
V_INLINE vf v_spread_f16(const uint8_t p[2]) {
    int16_t h;
    memcpy(&h, p, 2);
#if V_AVX512
    return _mm512_cvtph_ps(_mm256_set1_epi16(h));
#elif V_AVX2
    return _mm256_cvtph_ps(_mm_set1_epi16(h));
#else
    return v_set1(f16_to_f32((uint16_t)h));
#endif
}

/* Two successive f16, each in all lanes. */
V_INLINE void v_spread_f16_pair(const uint8_t p[4], vf *a, vf *b) {
#if V_AVX512
    int32_t both;
    memcpy(&both, p, 4);
    __m128 f = _mm_cvtph_ps(_mm_set1_epi32(both));
    *a = _mm512_broadcastss_ps(f);
    *b = _mm512_broadcastss_ps(_mm_movehdup_ps(f));
#else
    *a = v_spread_f16(p);
    *b = v_spread_f16(p + 2);
#endif
}

V_INLINE vf v_from_int(vi q) {
    return __builtin_convertvector(q, vf);
}
V_INLINE vf v_spread_int(int32_t q) {
    return v_from_int(v_set1_i(q));
}

/* What a number q of a few bits stands for: d (q - less) - m. */
typedef struct levels {
    vf d, m;
    int32_t less;
} levels;

V_INLINE vf level_of(vi q, const levels *l) {
    return v_from_int(q - l->less) * l->d - l->m; /* where m is a constant 0, this is the product */
}

/* Numbers of 4 bits: the low ones of each lane, whatever stands above them. */
typedef struct levels16 {
#if V_AVX512
    vf value;
#else
    levels rule;
#endif
} levels16;

V_INLINE levels16 levels16_of(vf d, vf m, int32_t less) {
    levels rule = {d, m, less};
#if V_AVX512
    const vi every = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (levels16){level_of(every, &rule)};
#else
    return (levels16){rule};
#endif
}

V_INLINE vf level16_of(vi q, const levels16 *l) {
#if V_AVX512
    return _mm512_permutexvar_ps((__m512i)q, l->value);
#else
    return level_of(q & 15, &l->rule);
#endif
}

/* 16 where bit i of `bits` is set, for lanes 0, 1, ...: the fifth bits. */
V_INLINE vi fifth_bits(uint32_t bits) {
#if V_AVX512
    return (vi)_mm512_maskz_set1_epi32((__mmask16)bits, 16);
#else
#if V_AVX2
    const vi own = {1, 2, 4, 8, 16, 32, 64, 128};
#else
    const vi own = {1, 2, 4, 8};
#endif
    return ((v_set1_i((int32_t)bits) & own) == own) & 16;
#endif
}

/* ---- formats ---- */

/* A block of 32 numbers of 4 bits: the low halves of 16 bytes, then the high ones. */
V_INLINE void chunk_of_4(const uint8_t qs[16], const levels16 *l, vf w[CHUNK_V]) {
#pragma GCC unroll 4
    for (int v = 0; v < HALF_V; v++) {
        vi q = v_load_u8(qs + v * VW);
        w[v] = level16_of(q, l);
        w[v + HALF_V] = level16_of(q >> 4, l);
    }
}

/* The same with a fifth bit. */
V_INLINE void chunk_of_5(const uint8_t qs[16], const uint8_t qh[4], const levels *l,
                         vf w[CHUNK_V]) {
    uint32_t fifth;
    memcpy(&fifth, qh, 4);
#pragma GCC unroll 4
    for (int v = 0; v < HALF_V; v++) {
        vi q = v_load_u8(qs + v * VW);
        w[v] = level_of((q & 15) | fifth_bits(fifth >> (v * VW)), l);
        w[v + HALF_V] = level_of(q >> 4 | fifth_bits(fifth >> (16 + v * VW)), l);
    }
}

V_INLINE void chunk_of_8(const int8_t qs[32], vf d, vf w[CHUNK_V]) {
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) w[v] = v_from_int(v_load_i8(qs + v * VW)) * d;
}

/* Group c of a block of Q4_K. */
V_INLINE void chunk_of_4_k(const quant_q4_k *b, int c, vf w[CHUNK_V]) {
    uint8_t scale, min;
    quant_get_group(b->scales, c, &scale, &min);
    levels16 l = levels16_of(v_spread_f16(b->d) * v_spread_int(scale),
                             v_spread_f16(b->dmin) * v_spread_int(min), 0);
    const uint8_t *qs = b->qs + 32 * (c / 2);
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++)
        w[v] = level16_of(v_load_u8(qs + v * VW) >> (4 * (c & 1)), &l);
}

V_INLINE void chunk_of_5_k(const quant_q5_k *b, int c, vf w[CHUNK_V]) {
    uint8_t scale, min;
    quant_get_group(b->scales, c, &scale, &min);
    levels l = {v_spread_f16(b->d) * v_spread_int(scale), v_spread_f16(b->dmin) * v_spread_int(min),
                0};
    const uint8_t *qs = b->qs + 32 * (c / 2);
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) {
        vi low = v_load_u8(qs + v * VW) >> (4 * (c & 1)) & 15;
        vi high = (v_load_u8(b->qh + v * VW) >> c & 1) << 4;
        w[v] = level_of(low | high, &l);
    }
}

/* Chunk c is quarter c % 4 of run c / 4. */
V_INLINE void chunk_of_6_k(const quant_q6_k *b, int c, vf w[CHUNK_V]) {
    int run = c / 4, quarter = c % 4;
    const uint8_t *ql = b->ql + 64 * run + 32 * (quarter & 1), *qh = b->qh + 32 * run;
    vf d = v_spread_f16(b->d);
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) {
        levels l = {d * v_spread_int(b->scales[2 * c + v / HALF_V]), v_zero(), 32};
        vi low = v_load_u8(ql + v * VW) >> (quarter & 2 ? 4 : 0) & 15;
        vi high = (v_load_u8(qh + v * VW) >> (2 * quarter) & 3) << 4;
        w[v] = level_of(low | high, &l);
    }
}

/* Chunk c of the block that begins at p. dt is a constant where this is called, and c is one where
 * speed matters. */
V_INLINE void stored_chunk(const uint8_t *p, int c, vf w[CHUNK_V], dtype dt) {
    const vf none = v_zero();
    switch (dt) {
        case DT_F16:
            for (int v = 0; v < CHUNK_V; v++) w[v] = v_load_f16(p + 2 * v * VW);
            return;
        case DT_BF16:
            for (int v = 0; v < CHUNK_V; v++) w[v] = v_load_bf16_bytes(p + 2 * v * VW);
            return;
        case DT_Q4_0: {
            const quant_q4_0 *b = (const void *)p;
            levels16 l = levels16_of(v_spread_f16(b->d), none, 8);
            chunk_of_4(b->qs, &l, w);
            return;
        }
        case DT_Q4_1: {
            const quant_q4_1 *b = (const void *)p;
            vf d, m;
            v_spread_f16_pair(b->d, &d, &m);
            levels16 l = levels16_of(d, -m, 0);
            chunk_of_4(b->qs, &l, w);
            return;
        }
        case DT_Q5_0: {
            const quant_q5_0 *b = (const void *)p;
            chunk_of_5(b->qs, b->qh, &(levels){v_spread_f16(b->d), none, 16}, w);
            return;
        }
        case DT_Q5_1: {
            const quant_q5_1 *b = (const void *)p;
            vf d, m;
            v_spread_f16_pair(b->d, &d, &m);
            chunk_of_5(b->qs, b->qh, &(levels){d, -m, 0}, w);
            return;
        }
        case DT_Q8_0: {
            const quant_q8_0 *b = (const void *)p;
            chunk_of_8(b->qs, v_spread_f16(b->d), w);
            return;
        }
        case DT_Q4_K: chunk_of_4_k((const void *)p, c, w); return;
        case DT_Q5_K: chunk_of_5_k((const void *)p, c, w); return;
        case DT_Q6_K: chunk_of_6_k((const void *)p, c, w); return;
        default: return;
    }
}

#endif
