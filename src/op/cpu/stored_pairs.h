/* Weights in the formats of files (base/quant.h) as pairs of 16-bit numbers, for products in integers (stored_dot.c): the lanes of a
 * vector are VW columns of C (rows of B), and a number is d q - m with q whole and d and m those of its chunk.
 *
 * In a chunk, pair p of numbers is (k, k + 2) with k = 4 (p / 2) + p % 2: so pairs come out of bytes by masks and shifts. */
#ifndef OP_CPU_STORED_PAIRS_H
#define OP_CPU_STORED_PAIRS_H

#include "op/cpu/pairs.h"
#include "op/cpu/stored.h"

/* Every format that is decoded here. */
#define PAIRS_FORMATS(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K)

/* Pairs of a chunk and of half of it; chunks that are decoded in one go, a block of 256 numbers. */
enum { PAIRS = CHUNK / 2, HALF = PAIRS / 2, GROUP = QUANT_K / CHUNK };

/* The largest magnitude of a number that pairs may be multiplied with, so that a chunk's sum fits: q of Q6_K have 13 bits, all
 * others 8. */
V_INLINE float pairs_limit(dtype dt) {
    return dt == DT_Q6_K ? 16383 : 32767;
}

/* VW rows of B, from b on. */
typedef struct columns {
    const uint8_t *b;
    int64_t row_bytes;
    int64_t j, n; /* the last n lanes are wanted: columns [j, j + n) of C */
} columns;

/* 16 bytes of each column, from byte `at` on: out[j] has the j-th four of them of every column. */
V_INLINE void load_fours(const columns *c, int64_t at, vi out[4]) {
    v_load_fours(c->b + at, c->row_bytes, out);
}

/* Four bytes of each column. They are read as a vector when all of a group are written: sooner it would wait for memory.
 * Gathering takes twice as long. */
V_INLINE void load_four(const columns *c, int64_t at, int32_t to[VW]) {
#pragma GCC unroll 16
    for (int i = 0; i < VW; i++) memcpy(&to[i], c->b + at + i * c->row_bytes, sizeof(to[i]));
}

/* What a group of chunks says about its numbers, of each column. */
typedef struct group_heads {
    int32_t head[GROUP][VW];  /* the first four bytes of each block, where a chunk is one */
    int32_t fifth[GROUP][VW]; /* their fifth bits (Q5_0, Q5_1) */
    vi factor[2 * GROUP];     /* of each half of a chunk, twice (Q6_K) */
    vf d[GROUP], m[GROUP];    /* where a block is a group */
} group_heads;

/* Scales of Q4_K and Q5_K, from their first 16 bytes: packed as quant_get_group says, four at a time. */
V_INLINE void open_6_bits(const columns *c, int64_t at, group_heads *h) {
    const int32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    vi p[4];
    load_fours(c, at, p);
    const vi scale[2] = {p[1] & six, (p[3] & four) | (p[1] >> 6 & two) << 4};
    const vi min[2] = {p[2] & six, (p[3] >> 4 & four) | (p[2] >> 6 & two) << 4};
    vf d = v_low_f16(p[0]), m = v_low_f16(p[0] >> 16);
#pragma GCC unroll 8
    for (int q = 0; q < GROUP; q++) {
        h->d[q] = d * v_from_int(scale[q / 4] >> 8 * (q % 4) & 255);
        h->m[q] = m * v_from_int(min[q / 4] >> 8 * (q % 4) & 255);
    }
}

/* Scales of Q6_K: whole numbers, which its numbers are multiplied with, and d, the last two bytes. */
V_INLINE void open_q6_k(const columns *c, int64_t at, group_heads *h) {
    vi p[4];
    load_fours(c, at + (int64_t)offsetof(quant_q6_k, scales), p);
#pragma GCC unroll 16
    for (int i = 0; i < 2 * GROUP; i++) {
        vi factor = p[i / 4] << (24 - 8 * (i % 4)) >> 24;
        h->factor[i] = (factor & 0xffff) | factor << 16;
    }
    int32_t last[VW];
    load_four(c, at + (int64_t)sizeof(quant_q6_k) - 4, last);
    vf d = v_low_f16(v_load_i(last) >> 16);
#pragma GCC unroll 8
    for (int q = 0; q < GROUP; q++) h->d[q] = d, h->m[q] = v_zero();
}

/* `n` chunks from c0 on, which is a multiple of GROUP: their heads, then one after the other. */
V_INLINE void open_group(const columns *c, int64_t c0, int n, group_heads *h, dtype dt) {
    int64_t bytes = stored_block_bytes(dt);
    if (dt == DT_Q4_K || dt == DT_Q5_K) {
        open_6_bits(c, c0 / GROUP * bytes, h);
        return;
    }
    if (dt == DT_Q6_K) {
        open_q6_k(c, c0 / GROUP * bytes, h);
        return;
    }
    for (int q = 0; q < n; q++) {
        load_four(c, (c0 + q) * bytes, h->head[q]);
        if (dt == DT_Q5_0) load_four(c, (c0 + q) * bytes + 2, h->fifth[q]);
        if (dt == DT_Q5_1) load_four(c, (c0 + q) * bytes + 4, h->fifth[q]);
    }
}

/* d and m of chunk q of a group. */
V_INLINE void decode_scales(const group_heads *h, int q, vf *d, vf *m, dtype dt) {
    if (stored_block(dt) == QUANT_K) {
        *d = h->d[q], *m = h->m[q];
        return;
    }
    vi head = v_load_i(h->head[q]);
    *d = v_low_f16(head);
    if (dt == DT_Q8_0)
        *m = v_zero();
    else if (dt == DT_Q4_1 || dt == DT_Q5_1)
        *m = -v_low_f16(head >> 16);
    else
        *m = *d * (dt == DT_Q4_0 ? 8.0f : 16.0f);
}

/* The pairs of 16 numbers of 4 bits, the low or the high half (shift 4) of each byte. */
V_INLINE void pairs_of_bits(const vi fours[4], int shift, vi pairs[HALF]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        pairs[2 * j] = (fours[j] >> shift) & (15 << 16 | 15);
        pairs[2 * j + 1] = (fours[j] >> (shift + 8)) & (15 << 16 | 15);
    }
}

/* Their upper bits: those that `keep` has, of each byte from bit `shift` on. */
V_INLINE void upper_bits(const vi fours[4], int shift, int32_t keep, vi pairs[HALF]) {
    keep |= keep << 16;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        pairs[2 * j] |= (fours[j] >> shift & keep) << 4;
        pairs[2 * j + 1] |= (fours[j] >> (shift + 8) & keep) << 4;
    }
}

/* The fifth bits of half a chunk, where bit k is that of number k. */
V_INLINE void fifth_bits(vi bits, int half, vi pairs[HALF]) {
    bits >>= 16 * half;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        vi four = bits >> 4 * j;
        pairs[2 * j] |= (four << 4 & 1 << 4) | (four << 18 & 1 << 20);
        pairs[2 * j + 1] |= (four << 3 & 1 << 4) | (four << 17 & 1 << 20);
    }
}

/* The pairs of signed bytes. */
V_INLINE void pairs_of_signed(const vi fours[4], vi pairs[HALF]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        pairs[2 * j] = (vi)((vw)((vw)fours[j] << 8) >> 8);
        pairs[2 * j + 1] = (vi)((vw)fours[j] >> 8);
    }
}

/* Half of the pairs of chunk q of the block at `at`, where a block is a group. */
V_INLINE void decode_half_k(const columns *c, int64_t at, int q, int half, const group_heads *h,
                            vi pairs[HALF], dtype dt) {
    vi fours[4];
    if (dt == DT_Q6_K) {
        int n = q / 4, of = q % 4; /* half of a block, chunk of that half */
        load_fours(c, at + 64 * n + 32 * (of % 2) + 16 * half, fours);
        pairs_of_bits(fours, 4 * (of / 2), pairs);
        load_fours(c, at + (int64_t)offsetof(quant_q6_k, qh) + 32 * n + 16 * half, fours);
        upper_bits(fours, 2 * of, 3, pairs);
        vw factor = (vw)h->factor[2 * q + half];
#pragma GCC unroll 8
        for (int p = 0; p < HALF; p++) pairs[p] = (vi)(((vw)pairs[p] - 32) * factor);
        return;
    }
    int64_t qs =
        dt == DT_Q4_K ? (int64_t)offsetof(quant_q4_k, qs) : (int64_t)offsetof(quant_q5_k, qs);
    load_fours(c, at + qs + 32 * (q / 2) + 16 * half, fours);
    pairs_of_bits(fours, 4 * (q % 2), pairs);
    if (dt == DT_Q5_K) {
        load_fours(c, at + (int64_t)offsetof(quant_q5_k, qh) + 16 * half, fours);
        upper_bits(fours, q, 1, pairs);
    }
}

/* Half of the pairs of chunk c0 + q, chunk q of its group: those of its first or second half. Where both are in the same bytes,
 * `fours` keeps them from the first to the second. */
V_INLINE void decode_half(const columns *c, int64_t c0, int q, int half, const group_heads *h,
                          vi fours[4], vi pairs[HALF], dtype dt) {
    int64_t bytes = stored_block_bytes(dt), at = (c0 + q) * bytes;
    if (stored_block(dt) == QUANT_K) {
        decode_half_k(c, c0 / GROUP * bytes, q, half, h, pairs, dt);
    } else if (dt == DT_Q8_0) {
        load_fours(c, at + 2 + 16 * half, fours);
        pairs_of_signed(fours, pairs);
    } else {
        if (half == 0) load_fours(c, at + bytes - 16, fours);
        pairs_of_bits(fours, 4 * half, pairs);
        if (dt == DT_Q5_0 || dt == DT_Q5_1) fifth_bits(v_load_i(h->fifth[q]), half, pairs);
    }
}

#endif
