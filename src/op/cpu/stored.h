/* Weights in the formats of files (base/quant.h), decoded in registers: a chunk of 32 successive
 * elements of a row at a time. The numbers are those of quant_to_f32, bit for bit.
 *
 * Rows lie at any address. With AVX-512 the 16 values that 4 bits can have are one register, which
 * a permutation looks up; elsewhere integers are converted.
 *
 * Reading order: levels, chunk_of_* (one format each), stored_open and stored_chunk. */
#ifndef OP_CPU_STORED_H
#define OP_CPU_STORED_H

#include "base/fp8.h"
#include "base/nf4.h"
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
    X(Q6_K)                                                                                        \
    X(FP8)                                                                                         \
    X(NF4)

/* Elements of a block, at least a chunk: where plain numbers come in rows that are no multiple of
 * it, callers finish the row themselves. */
V_INLINE int64_t stored_block(dtype dt) {
    if (dt == DT_NF4) return NF4_BLOCK;
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
        case DT_FP8: return CHUNK;
        case DT_NF4: return NF4_BLOCK / 2;
        default: return 2 * CHUNK;
    }
}

/* Where the blocks of a row begin. */
V_INLINE const uint8_t *stored_blocks(const uint8_t *row, dtype dt) {
    if (dt == DT_NF4) return nf4_bits(row);
    return dt == DT_FP8 ? ((const fp8_row *)(const void *)row)->bits : row;
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
V_INLINE void v_spread_f16_pair(const uint8_t *p, vf *a, vf *b) {
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

/* Numbers of 5 bits: the low four of each lane, and lanes that have the fifth. */
#if V_AVX512
typedef __mmask16 lanes;
typedef struct levels32 {
    vf low, high;
} levels32;
#else
typedef vi lanes; /* all ones or zero */
typedef levels levels32;
#endif

V_INLINE levels32 levels32_of(vf d, vf m, int32_t less) {
#if V_AVX512
    return (levels32){levels16_of(d, m, less).value, levels16_of(d, m, less - 16).value};
#else
    return (levels32){d, m, less};
#endif
}

V_INLINE vf level32_of(vi q, lanes fifth, const levels32 *l) {
#if V_AVX512
    __m512 low = _mm512_permutexvar_ps((__m512i)q, l->low);
    return _mm512_mask_permutexvar_ps(low, fifth, (__m512i)q, l->high);
#else
    return level_of((q & 15) | (fifth & 16), l);
#endif
}

/* Lane i: bit i of `bits`. */
V_INLINE lanes lanes_of_bits(uint32_t bits) {
#if V_AVX512
    return (__mmask16)bits;
#else
#if V_AVX2
    const vi own = {1, 2, 4, 8, 16, 32, 64, 128};
#else
    const vi own = {1, 2, 4, 8};
#endif
    return (v_set1_i((int32_t)bits) & own) == own;
#endif
}

/* 32 bytes at once, and part v of them as integers. Machines shift no bytes, only words: `bits` are
 * those that are kept of each byte. */
typedef uint8_t v_bytes __attribute__((vector_size(32)));
typedef uint16_t v_words __attribute__((vector_size(32)));
typedef uint16_t v_words_mem __attribute__((vector_size(32), aligned(1), may_alias));

#define V_BITS(p, shift, bits) ((v_bytes)(*(const v_words_mem *)(p) >> (shift)) & (bits))
#define V_RAISE(bytes, shift) ((v_bytes)((v_words)(bytes) << (shift)))

V_INLINE vi v_part_i8(const v_bytes *b, int v) {
#if V_AVX512
    return (vi)_mm512_cvtepi8_epi32(v ? _mm256_extracti128_si256((__m256i)*b, 1)
                                      : _mm256_castsi256_si128((__m256i)*b));
#else
    int8_t bytes[32];
    memcpy(bytes, b, sizeof(*b));
    return v_load_i8(bytes + v * VW);
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
V_INLINE void chunk_of_5(const uint8_t qs[16], const uint8_t qh[4], const levels32 *l,
                         vf w[CHUNK_V]) {
    uint32_t fifth;
    memcpy(&fifth, qh, 4);
#pragma GCC unroll 4
    for (int v = 0; v < HALF_V; v++) {
        vi q = v_load_u8(qs + v * VW);
        w[v] = level32_of(q, lanes_of_bits(fifth >> (v * VW)), l);
        w[v + HALF_V] = level32_of(q >> 4, lanes_of_bits(fifth >> (16 + v * VW)), l);
    }
}

V_INLINE void chunk_of_8(const int8_t qs[32], vf d, vf w[CHUNK_V]) {
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) w[v] = v_from_int(v_load_i8(qs + v * VW)) * d;
}

/* E4M3. By way of f16, whose numbers of the same bits are smaller by 2^8; d: the factor. */
V_INLINE void chunk_of_e4m3(const uint8_t *p, float d, vf w[CHUNK_V]) {
#if V_AVX512
    const __m512i most = _mm512_set1_epi16(0x7f << 7), nan = _mm512_set1_epi16(0x7e00);
    __m512i h = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
    h = _mm512_and_si512(_mm512_slli_epi16(h, 7), _mm512_set1_epi16((short)0xbfff));
    __m512i size = _mm512_and_si512(h, _mm512_set1_epi16(0x7fff));
    h = _mm512_mask_mov_epi16(h, _mm512_cmpeq_epi16_mask(size, most), nan);
    vf by = v_set1(d * 256);
    w[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(h)) * by;
    w[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)) * by;
#else
    const vi nan = v_set1_i(0x7fc00000), least = v_set1_i(8), most = v_set1_i(127);
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) {
        vi q = v_load_u8(p + v * VW), size = q & 127, bits = (size << 20) + (120 << 23);
        vi tiny = (vi)(v_from_int(size) * v_set1(0x1p-9f)), is_tiny = size < least;
        bits = (tiny & is_tiny) | (bits & ~is_tiny);
        vi is_nan = size == most;
        bits = (nan & is_nan) | (bits & ~is_nan);
        w[v] = (vf)(bits | (q & 128) << 24) * v_set1(d);
    }
#endif
}

/* The low 4 bits of each lane are the number of a level. */
V_INLINE vf nf4_value(vi q, vf d) {
#if V_AVX512
    return _mm512_permutexvar_ps((__m512i)q, v_load(NF4_LEVEL) * d);
#elif V_AVX2
    __m256 low = _mm256_permutevar8x32_ps(v_load(NF4_LEVEL) * d, (__m256i)q);
    __m256 high = _mm256_permutevar8x32_ps(v_load(NF4_LEVEL + VW) * d, (__m256i)q);
    return _mm256_blendv_ps(low, high, (__m256)(q << 28));
#else
    vf v;
    for (int i = 0; i < VW; i++) v[i] = NF4_LEVEL[q[i] & 15] * d[i];
    return v;
#endif
}

V_INLINE void chunk_of_nf4(const uint8_t qs[16], float d, vf w[CHUNK_V]) {
#pragma GCC unroll 4
    for (int v = 0; v < HALF_V; v++) {
        vi q = v_load_u8(qs + v * VW);
        w[v] = nf4_value(q, v_set1(d));
        w[v + HALF_V] = nf4_value(q >> 4, v_set1(d));
    }
}

/* The scales of a block of 256 elements: of each chunk (Q4_K, Q5_K) or half a chunk (Q6_K). */
typedef struct stored_scales {
    float d[16], m[8];
} stored_scales;

/* Eight scales of 6 bits and as many minima, packed as quant_get_group says, four at a time. */
V_INLINE void scales_of_6_bits(stored_scales *s, const uint8_t packed[12], float d, float m) {
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    uint32_t p[3], scale[2], min[2];
    uint8_t bytes[16];
    memcpy(p, packed, sizeof(p));
    scale[0] = p[0] & six, scale[1] = (p[2] & four) | (p[0] >> 6 & two) << 4;
    min[0] = p[1] & six, min[1] = (p[2] >> 4 & four) | (p[1] >> 6 & two) << 4;
    memcpy(bytes, scale, 8);
    memcpy(bytes + 8, min, 8);
    for (int i = 0; i < 8; i++) s->d[i] = d * (float)bytes[i];
    for (int i = 0; i < 8; i++) s->m[i] = m * (float)bytes[8 + i];
}

V_INLINE float s_from_f16(const uint8_t p[2]) {
    return v_spread_f16(p)[0];
}

/* To be called for a block before its chunks. */
V_INLINE void stored_open(stored_scales *s, const uint8_t *p, dtype dt) {
    if (dt == DT_Q4_K) {
        const quant_q4_k *b = (const void *)p;
        scales_of_6_bits(s, b->scales, s_from_f16(b->d), s_from_f16(b->dmin));
    } else if (dt == DT_Q5_K) {
        const quant_q5_k *b = (const void *)p;
        scales_of_6_bits(s, b->scales, s_from_f16(b->d), s_from_f16(b->dmin));
    } else if (dt == DT_Q6_K) {
        const quant_q6_k *b = (const void *)p;
        float d = s_from_f16(b->d);
        for (int i = 0; i < 16; i++) s->d[i] = d * (float)b->scales[i];
    }
}

/* Group c of a block of Q4_K. */
V_INLINE void chunk_of_4_k(const quant_q4_k *b, const stored_scales *s, int c, vf w[CHUNK_V]) {
    levels16 l = levels16_of(v_set1(s->d[c]), v_set1(s->m[c]), 0);
    const uint8_t *qs = b->qs + 32 * (c / 2);
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++)
        w[v] = level16_of(v_load_u8(qs + v * VW) >> (4 * (c & 1)), &l);
}

V_INLINE void chunk_of_5_k(const quant_q5_k *b, const stored_scales *s, int c, vf w[CHUNK_V]) {
    levels l = {v_set1(s->d[c]), v_set1(s->m[c]), 0};
    v_bytes low = V_BITS(b->qs + 32 * (c / 2), 4 * (c & 1), 15);
    v_bytes q = low | V_RAISE(V_BITS(b->qh, c, 1), 4);
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) w[v] = level_of(v_part_i8(&q, v), &l);
}

/* Chunk c is quarter c % 4 of run c / 4. */
V_INLINE void chunk_of_6_k(const quant_q6_k *b, const stored_scales *s, int c, vf w[CHUNK_V]) {
    int run = c / 4, quarter = c % 4;
    v_bytes low = V_BITS(b->ql + 64 * run + 32 * (quarter & 1), quarter & 2 ? 4 : 0, 15);
    v_bytes q = (low | V_RAISE(V_BITS(b->qh + 32 * run, 2 * quarter, 3), 4)) - 32;
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++)
        w[v] = v_from_int(v_part_i8(&q, v)) * v_set1(s->d[2 * c + v / HALF_V]);
}

/* The factor of the chunk at element k of a row, for the formats that keep it elsewhere. To be called before each such chunk. */
V_INLINE void stored_factor(stored_scales *s, const uint8_t *row, int64_t k, dtype dt) {
    const fp8_row *r = (const void *)row;
    if (dt == DT_FP8) s->d[0] = r->factor[k >> r->shift];
    if (dt == DT_NF4) s->d[0] = nf4_absmax(row, k);
}

/* Chunk c of the block that begins at p; dt is a constant where this is called. */
V_INLINE void stored_chunk(const uint8_t *p, const stored_scales *s, int c, vf w[CHUNK_V],
                           dtype dt) {
    const vf none = v_zero();
    switch (dt) {
        case DT_F16:
#pragma GCC unroll 8
            for (int v = 0; v < CHUNK_V; v++) w[v] = v_load_f16(p + 2 * v * VW);
            return;
        case DT_BF16:
#pragma GCC unroll 8
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
            v_spread_f16_pair(p, &d, &m);
            levels16 l = levels16_of(d, -m, 0);
            chunk_of_4(b->qs, &l, w);
            return;
        }
        case DT_Q5_0: {
            const quant_q5_0 *b = (const void *)p;
            levels32 l = levels32_of(v_spread_f16(b->d), none, 16);
            chunk_of_5(b->qs, b->qh, &l, w);
            return;
        }
        case DT_Q5_1: {
            const quant_q5_1 *b = (const void *)p;
            vf d, m;
            v_spread_f16_pair(p, &d, &m);
            levels32 l = levels32_of(d, -m, 0);
            chunk_of_5(b->qs, b->qh, &l, w);
            return;
        }
        case DT_Q8_0: {
            const quant_q8_0 *b = (const void *)p;
            chunk_of_8(b->qs, v_spread_f16(b->d), w);
            return;
        }
        case DT_Q4_K: chunk_of_4_k((const void *)p, s, c, w); return;
        case DT_Q5_K: chunk_of_5_k((const void *)p, s, c, w); return;
        case DT_Q6_K: chunk_of_6_k((const void *)p, s, c, w); return;
        case DT_FP8: chunk_of_e4m3(p, s->d[0], w); return;
        case DT_NF4: chunk_of_nf4(p + CHUNK / 2 * c, s->d[0], w); return;
        default: return;
    }
}

#endif
