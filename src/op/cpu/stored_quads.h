/* Weights in the formats of files (base/quant.h) as quads of whole numbers, for products in integers (stored_dot.c): the lanes of a
 * vector are VW columns of C (rows of B), and quad j of a chunk has its numbers 4 j to 4 j + 3. A number is d (q - offset) - m, with
 * q whole and without a sign, d and m those of its chunk (or half a chunk), and the offset that of its format.
 *
 * Bytes of VW rows become vectors by turning (v_load_fours), which takes as long as all else. So bytes that several chunks share are
 * turned once, for a run of chunks. */
#ifndef OP_CPU_STORED_QUADS_H
#define OP_CPU_STORED_QUADS_H

#include "op/cpu/quads.h"
#include "op/cpu/stored.h"

/* Every format that is decoded here. */
#define QUADS_FORMATS(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K)

/* Quads of a chunk and of half of it; chunks whose scales are opened in one go, a block of 256 numbers. */
enum { QUADS = CHUNK / 4, HALF = QUADS / 2, GROUP = QUANT_K / CHUNK };

/* Every byte of a lane. */
#define EACH_BYTE(x) ((int32_t)(0x01010101u * (x)))

V_INLINE int stored_offset(dtype dt) {
    switch (dt) {
        case DT_Q4_0: return 8;
        case DT_Q5_0: return 16;
        case DT_Q6_K: return 32;
        case DT_Q8_0: return 128;
        default: return 0; /* has an m */
    }
}

/* Scales that a chunk has. */
V_INLINE int stored_units(dtype dt) {
    return dt == DT_Q6_K ? 2 : 1;
}

/* Chunks of a run. */
V_INLINE int stored_run(dtype dt) {
    return dt == DT_Q6_K ? 4 : dt == DT_Q4_K || dt == DT_Q5_K ? 2 : 1;
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
    int32_t head[GROUP][VW];   /* the first four bytes of each block, where a chunk is one */
    int32_t fifth[GROUP][VW];  /* their fifth bits (Q5_0, Q5_1) */
    vi fifths[QUADS];          /* bit q is that of chunk q (Q5_K) */
    vf d[2 * GROUP], m[GROUP]; /* where a block is a group; two d of each chunk in Q6_K */
} group_heads;

/* Scales of Q4_K and Q5_K, from their first 16 bytes: packed as quant_get_group says, four at a time. */
V_INLINE void open_6_bits(const columns *c, int64_t at, group_heads *h) {
    vi p[4];
    load_fours(c, at, p);
    const int32_t six = EACH_BYTE(63), four = EACH_BYTE(15), upper = EACH_BYTE(48);
    const vi scale[2] = {p[1] & six, v_and_or(p[1] >> 2, upper, p[3] & four)};
    const vi min[2] = {p[2] & six, v_and_or(p[2] >> 2, upper, p[3] >> 4 & four)};
    vf d = v_low_f16(p[0]), m = v_low_f16(p[0] >> 16);
#pragma GCC unroll 8
    for (int q = 0; q < GROUP; q++) {
        h->d[q] = d * v_from_int(scale[q / 4] >> 8 * (q % 4) & 255);
        h->m[q] = m * v_from_int(min[q / 4] >> 8 * (q % 4) & 255);
    }
}

/* Scales of Q6_K: signed bytes, and the last two bytes of a block. */
V_INLINE void open_q6_k(const columns *c, int64_t at, group_heads *h) {
    int32_t last[VW];
    load_four(c, at + (int64_t)sizeof(quant_q6_k) - 4, last);
    vi p[4];
    load_fours(c, at + (int64_t)offsetof(quant_q6_k, scales), p);
    vf d = v_low_f16(v_load_i(last) >> 16);
#pragma GCC unroll 16
    for (int i = 0; i < 2 * GROUP; i++)
        h->d[i] = d * v_from_int(p[i / 4] << (24 - 8 * (i % 4)) >> 24);
}

/* `n` chunks from c0 on, which is a multiple of GROUP: their heads, then one after the other. */
V_INLINE void open_group(const columns *c, int64_t c0, int n, group_heads *h, dtype dt) {
    int64_t bytes = stored_block_bytes(dt), at = c0 / GROUP * bytes;
    switch (dt) {
        case DT_Q4_K: open_6_bits(c, at, h); return;
        case DT_Q5_K:
            open_6_bits(c, at, h);
            load_fours(c, at + (int64_t)offsetof(quant_q5_k, qh), h->fifths);
            load_fours(c, at + (int64_t)offsetof(quant_q5_k, qh) + 16, h->fifths + HALF);
            return;
        case DT_Q6_K: open_q6_k(c, at, h); return;
        default: break;
    }
    for (int q = 0; q < n; q++) {
        load_four(c, (c0 + q) * bytes, h->head[q]);
        if (dt == DT_Q5_0) load_four(c, (c0 + q) * bytes + 2, h->fifth[q]);
        if (dt == DT_Q5_1) load_four(c, (c0 + q) * bytes + 4, h->fifth[q]);
    }
}

/* d and m of chunk q of a group; unit: of which half, in Q6_K. */
V_INLINE void decode_scales(const group_heads *h, int q, int unit, vf *d, vf *m, dtype dt) {
    if (stored_block(dt) == QUANT_K) {
        *d = h->d[q * stored_units(dt) + unit];
        *m = stored_offset(dt) ? v_zero() : h->m[q];
        return;
    }
    vi head = v_load_i(h->head[q]);
    *d = v_low_f16(head);
    *m = stored_offset(dt) ? v_zero() : -v_low_f16(head >> 16);
}

/* The bytes of a run of chunks, of each column. */
typedef struct run_bytes {
    vi low[4 * HALF], upper[QUADS];
} run_bytes;

V_INLINE void load_run(const columns *c, int64_t at, int n, vi *to) {
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) load_fours(c, at + 16 * i, to + HALF * i);
}

/* Those of the run of chunk c0 + q, which is its first; c0 is the first of the group. */
V_INLINE void open_run(const columns *c, int64_t c0, int q, run_bytes *r, dtype dt) {
    int64_t bytes = stored_block_bytes(dt), at = (c0 + q) * bytes, block = c0 / GROUP * bytes;
    switch (dt) {
        case DT_Q4_K:
            load_run(c, block + (int64_t)offsetof(quant_q4_k, qs) + 16 * q, 2, r->low);
            return;
        case DT_Q5_K:
            load_run(c, block + (int64_t)offsetof(quant_q5_k, qs) + 16 * q, 2, r->low);
            return;
        case DT_Q6_K:
            load_run(c, block + (int64_t)offsetof(quant_q6_k, ql) + 16 * q, 4, r->low);
            load_run(c, block + (int64_t)offsetof(quant_q6_k, qh) + 8 * q, 2, r->upper);
            return;
        case DT_Q8_0: load_run(c, at + 2, 2, r->low); return;
        default: load_run(c, at + bytes - 16, 1, r->low); return;
    }
}

/* The low or the high half of each byte. */
V_INLINE vi quad_of_4_bits(vi bytes, bool high) {
    return (high ? bytes >> 4 : bytes) & EACH_BYTE(15);
}

/* Bits k to k + 3 of each lane as fifth bits of the numbers of a quad: each is moved into a byte of its own. */
V_INLINE vi fifth_bits(vi bits, int k) {
    return ((bits >> k & 15) * (1 << 4 | 1 << 11 | 1 << 18 | 1 << 25)) & EACH_BYTE(16);
}

/* Quad j of chunk q of a group, which is chunk i of its run. */
V_INLINE vi decode_quad(const run_bytes *r, const group_heads *h, int q, int i, int j, dtype dt) {
    switch (dt) {
        case DT_Q8_0: return r->low[j] ^ EACH_BYTE(128);
        case DT_Q4_K: return quad_of_4_bits(r->low[j], i);
        case DT_Q5_K:
            return v_and_or(h->fifths[j] >> q << 4, EACH_BYTE(16), quad_of_4_bits(r->low[j], i));
        case DT_Q6_K: {
            vi upper = i < 2 ? r->upper[j] << (4 - 2 * i) : r->upper[j] >> (2 * i - 4);
            return v_and_or(upper, EACH_BYTE(48),
                            quad_of_4_bits(r->low[QUADS * (i % 2) + j], i / 2));
        }
        default: break;
    }
    vi quad = quad_of_4_bits(r->low[j % HALF], j / HALF);
    if (dt == DT_Q5_0 || dt == DT_Q5_1) quad |= fifth_bits(v_load_i(h->fifth[q]), 4 * j);
    return quad;
}

#endif
