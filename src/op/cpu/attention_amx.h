/* What differs in attention between processors with AMX (V_AMX) and others: products of blocks, and
 * how their operands and results lie.
 *
 * Tiles (amx.h) multiply C [16,16] f32 += A [16,32] bf16 * B [32,16] bf16. B is what the vector
 * kernels pack, too: [pairs, ATT_Q], a pair of k in each unit. A is plain rows of bf16 with k
 * contiguous, so the left operands are packed in other ways here:
 *
 *   keys over the width:  [keys][width rounded to 32], for S^T = K Q^T and dP^T = V dO^T
 *   keys over the keys:   [keys/32][width rounded to 16][32], for O^T = V^T P and dQ^T = K^T dS;
 *                         these results are [width, ATT_Q] and turned when they are stored
 *   P and dS over the queries: as they are written, [keys][ATT_Q], for dV = P^T dO, dK = dS^T Q
 *
 * All is padded to whole tiles, with zeros over what is summed. */
#ifndef OP_CPU_ATTENTION_AMX_H
#define OP_CPU_ATTENTION_AMX_H

#include "op/cpu/amx.h"
#include "op/cpu/attention_tile.h"

/* Floats of packed operands and results, for each row of keys or for a block of queries. */
V_INLINE int64_t att_left_floats(int64_t width) {
    return V_AMX ? att_round(width, AMX_K) / 2 : width;
}
V_INLINE int64_t att_turned_floats(int64_t width) {
    return V_AMX ? att_round(width, AMX_ROWS) / 2 : att_round(width, ATT_Q);
}
V_INLINE int64_t att_right_floats(int64_t width) {
    return (V_AMX ? att_round(width, AMX_K) / 2 : width) * ATT_Q;
}
V_INLINE int64_t att_result_floats(int64_t width) {
    return (V_AMX ? 2 : 1) * att_round(width, VW) * ATT_Q;
}

#if V_AMX

/* A left operand: rows and steps of 32 k lie so many bytes apart. */
typedef struct amx_left {
    const void *data;
    int64_t row, step;
} amx_left;

/* One tile of results, or 2 x 2 of them: c [16 m, 16 nv] (+)= A B over `steps` times 32 k. */
V_INLINE void amx_tiles(int64_t steps, amx_left a, const float *b, float *c, int64_t ldc, bool add,
                        int m, int nv) {
    const char *left = a.data;
    size_t ld_a = (size_t)a.row, ld_b = ATT_Q * sizeof(float), ld = (size_t)ldc * sizeof(float);
    float *low = c + AMX_ROWS * ldc;
    if (add) {
        _tile_loadd(0, c, ld);
        if (nv > 1) _tile_loadd(1, c + VW, ld);
        if (m > 1) _tile_loadd(2, low, ld);
        if (m > 1 && nv > 1) _tile_loadd(3, low + VW, ld);
    } else {
        _tile_zero(0);
        if (nv > 1) _tile_zero(1);
        if (m > 1) _tile_zero(2);
        if (m > 1 && nv > 1) _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++, left += a.step, b += AMX_K / 2 * ATT_Q) {
        _tile_loadd(4, left, ld_a);
        _tile_loadd(6, b, ld_b);
        _tile_dpbf16ps(0, 4, 6);
        if (nv > 1) {
            _tile_loadd(7, b + VW, ld_b);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (m > 1) {
            _tile_loadd(5, left + AMX_ROWS * a.row, ld_a);
            _tile_dpbf16ps(2, 5, 6);
            if (nv > 1) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, ld);
    if (nv > 1) _tile_stored(1, c + VW, ld);
    if (m > 1) _tile_stored(2, low, ld);
    if (m > 1 && nv > 1) _tile_stored(3, low + VW, ld);
}

/* c [rows, nv vectors] (+)= A B; rows a multiple of 16. The compilers do not know that tiles read
 * and write memory. */
V_INLINE void amx_rows(int64_t rows, int64_t steps, amx_left a, const float *b, float *c,
                       int64_t ldc, bool add, int nv) {
    __asm__ volatile("" : : : "memory");
    for (; rows >= 2 * AMX_ROWS; rows -= 2 * AMX_ROWS) {
        amx_tiles(steps, a, b, c, ldc, add, 2, nv);
        a.data = (const char *)a.data + 2 * AMX_ROWS * a.row;
        c += 2 * AMX_ROWS * ldc;
    }
    if (rows > 0) amx_tiles(steps, a, b, c, ldc, add, 1, nv);
    __asm__ volatile("" : : : "memory");
}

/* s [n keys, ATT_Q] = keys from j on (packed with att_pack_left) times queries, over the width. */
ATT_TILE amx_scores(const float *keys, int64_t j, int64_t width, const float *queries, float *s,
                    int64_t n) {
    int64_t row = att_round(width, AMX_K) * 2;
    amx_left a = {(const char *)keys + j * row, row, AMX_ROW_BYTES};
    amx_rows(n, att_round(width, AMX_K) / AMX_K, a, queries, s, ATT_Q, false, ATT_NV);
}

/* o [width, ATT_Q] (+)= keys from j on (packed with att_pack_turned) times p, over n keys. */
ATT_TILE amx_mix(const float *keys, int64_t j, int64_t width, const float *p, float *o, int64_t n,
                 bool add) {
    int64_t rows = att_round(width, AMX_ROWS), step = rows * AMX_ROW_BYTES;
    amx_left a = {(const char *)keys + j / AMX_K * step, AMX_ROW_BYTES, step};
    amx_rows(rows, n / AMX_K, a, p, o, ATT_Q, add, ATT_NV);
}

/* x [n keys, cols] += p [n keys, ATT_Q queries] y, where y has panels [pairs of queries, ATT_Q]. */
ATT_TILE amx_gather(const float *p, const float *y, float *x, int64_t cols, int64_t n) {
    amx_left a = {p, AMX_ROW_BYTES, 0};
    for (int64_t d = 0; d < cols; d += ATT_Q) {
        const float *b = y + d * ATT_Q / 2;
        if (att_vectors(cols - d) > 1)
            amx_rows(n, 1, a, b, x + d, att_round(cols, VW), true, 2);
        else
            amx_rows(n, 1, a, b, x + d, att_round(cols, VW), true, 1);
    }
}

/* Rows [row, row + rows) as they are, each padded to whole steps of k. What follows them up to a whole
 * step of keys may be anything: nobody sees those keys, so their scores are hidden. */
ATT_TILE att_pack_left(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                       int64_t cols) {
    size_t bytes = (size_t)cols * 2, padded = (size_t)att_round(cols, AMX_K) * 2;
    char *to = (char *)dst;
    for (int64_t r = 0; r < rows; r++, to += padded) {
        if (r + ATT_AHEAD < rows) att_prefetch(t, row + r + ATT_AHEAD, col, 1, cols);
        memcpy(to, att_at(t, row + r, col), bytes);
        memset(to + bytes, 0, padded - bytes);
    }
}

/* Right operand over the width: att_pack_queries, padded to whole steps of k. */
ATT_TILE att_pack_right(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                        int64_t cols) {
    int64_t units = att_units(cols), padded = att_round(cols, AMX_K) / 2;
    att_pack_queries(dst, t, row, col, rows, cols);
    memset(dst + units * ATT_Q, 0, (size_t)((padded - units) * ATT_Q) * sizeof(float));
}

/* Left operand over the keys: [keys/32][width rounded to 16][32]. `room` is that of a right operand
 * over the width, where 32 keys lie as pairs [width/2, 32] in between. */
ATT_TILE att_pack_turned(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                         int64_t cols, float *room) {
    _Alignas(64) uint16_t even[32], odd[32];
    for (int i = 0; i < 32; i++) even[i] = (uint16_t)(2 * i), odd[i] = (uint16_t)(2 * i + 1);
    __m512i evens = _mm512_load_si512(even), odds = _mm512_load_si512(odd);
    int64_t units = att_units(cols), padded = att_round(cols, AMX_ROWS);
    for (int64_t r = 0; r < rows; r += AMX_K) {
        char *to = (char *)dst + r / AMX_K * padded * AMX_ROW_BYTES;
        att_pack_queries(room, t, row + r, col, att_min(rows - r, AMX_K), cols);
        for (int64_t u = 0; u < units; u++, to += 2 * AMX_ROW_BYTES) {
            __m512i low = _mm512_loadu_si512(room + u * ATT_Q);
            __m512i high = _mm512_loadu_si512(room + u * ATT_Q + VW);
            _mm512_storeu_si512(to, _mm512_permutex2var_epi16(low, evens, high));
            _mm512_storeu_si512(to + AMX_ROW_BYTES, _mm512_permutex2var_epi16(low, odds, high));
        }
        memset(to, 0, (size_t)(padded - 2 * units) * AMX_ROW_BYTES);
    }
}

/* Stores x [cols, ATT_Q] as rows of t (att_store_rows). Behind x there is room for as much. */
V_INLINE void att_store_result(const tensor *t, int64_t row, int64_t col, int64_t rows,
                               int64_t cols, float *x, float scale, const float *by, bool add) {
    int64_t padded = att_round(cols, VW);
    float *turned = x + padded * ATT_Q;
    pack_transposed(turned, (int)padded, x, ATT_Q, padded, ATT_Q, DT_F32);
    att_store_rows(t, row, col, rows, cols, turned, scale, by, add);
}

#else

#define att_pack_left att_pack_keys
#define att_pack_right att_pack_queries
#define att_store_result att_store_rows

/* Right operand over the rows, which are padded with zeros to whole steps. */
V_INLINE void att_pack_turned(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                              int64_t cols, float *room) {
    (void)room;
    att_pack_rows(dst, t, row, col, rows, cols, att_round(rows, ATT_PANEL));
}

#endif
#endif
