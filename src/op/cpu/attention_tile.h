/* The register tiles of attention and the packing of their operands: C of some rows and nv vectors
 * of columns, of products whose left operand is broadcast and whose right operand is a packed panel
 * of ATT_Q columns. nv < ATT_NV serves the last columns of a matrix and the blocks on the diagonal.
 *
 * Where the machine multiplies bf16 pairs, bf16 operands are packed as pairs; accumulators are
 * f32. */
#ifndef OP_CPU_ATTENTION_TILE_H
#define OP_CPU_ATTENTION_TILE_H

#include "op/cpu/ops.h"
#include "op/cpu/pack.h"
#include "op/cpu/rows.h"

/* A block of queries is ATT_NV vectors wide. Left operands are packed in panels of ATT_PANEL rows, which are whole
 * tiles of any width. Wide tiles load least: of 6 x 64, 10 for 24 multiply-adds. Keys are taken ATT_KEYS at a time so
 * that their scores stay in cache. */
#if V_AMX
enum { ATT_NV = 2, ATT_PANEL = 32 };
#elif V_AVX512
enum { ATT_NV = 4, ATT_PANEL = 16 };
#elif V_AVX2
enum { ATT_NV = 3, ATT_PANEL = 4 };
#elif V_NEON
enum { ATT_NV = 4, ATT_PANEL = 4 };
#else
enum { ATT_NV = 2, ATT_PANEL = 4 };
#endif
enum { ATT_Q = ATT_NV * VW, ATT_KEYS = 128 };
_Static_assert(ATT_Q % ATT_PANEL == 0 && ATT_KEYS % ATT_PANEL == 0, "blocks are whole panels");
/* Rows of the widest tile, and how many such tiles a panel is. */
enum { ATT_WIDE_ROWS = V_AVX512 && !V_AMX ? 6 : ATT_PANEL };
enum { ATT_TILES = (ATT_PANEL + ATT_WIDE_ROWS - 1) / ATT_WIDE_ROWS };

V_INLINE int64_t att_round(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}
V_INLINE int64_t att_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
V_INLINE int64_t att_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
V_INLINE int att_vectors(int64_t cols) {
    return cols >= ATT_Q ? ATT_NV : (int)((cols + VW - 1) / VW);
}
/* Units (f32, or bf16 pairs) of n elements. */
V_INLINE int64_t att_units(int64_t n) {
    return pack_units(n, V_DOT_BF16);
}

/* Rows of the tile that begins at row r of a panel: as many sums as there are registers for. */
V_INLINE int att_rows(int r, int nv) {
    if (!V_AVX512 || V_AMX) return ATT_PANEL;
    int most = nv == ATT_NV ? ATT_WIDE_ROWS : nv == 1 ? 16 : 8;
    return ATT_PANEL - r < most ? ATT_PANEL - r : most;
}

/* acc += A B. */
V_INLINE void att_multiply(int64_t units, const float *a, int64_t row, int64_t step, const float *b,
                           vf acc[ATT_PANEL][ATT_NV], int rows, int nv) {
#pragma GCC unroll 4
    for (int64_t u = 0; u < units; u++, a += step, b += ATT_Q) {
        vf bv[ATT_NV];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) bv[j] = pack_keep(v_load(b + j * VW));
        pack_factors f;
        if (row == 1) f = pack_load_factors(a, rows);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++) {
                float x = row == 1 ? pack_factor(f, i) : a[i * row];
                acc[i][j] = nv == 1 ? pack_multiply_add(x, bv[j], acc[i][j])
                                    : pack_multiply_into(x, bv[j], acc[i][j]);
            }
    }
}

/* The next row. The compiler would keep an address for each row, and spill registers for them. */
V_INLINE float *att_next_row(float *c, int64_t ldc) {
    c += ldc;
    __asm__("" : "+r"(c));
    return c;
}

/* c [rows, nv vectors] (+)= A B; A(i, u) = a[i * row + u * step], B(u, :) = b[u * ATT_Q]. */
V_INLINE void att_tile(int64_t units, const float *a, int64_t row, int64_t step, const float *b,
                       float *c, int64_t ldc, bool add, int rows, int nv) {
    enum { UNITS = V_AVX512 ? 4 : 1 }; /* at a time; AVX2 has no registers left for it */
    vf acc[ATT_PANEL][ATT_NV];
    float *from = c;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) acc[i][j] = add ? v_load(from + j * VW) : v_zero();
        if (add) from = att_next_row(from, ldc);
    }
    for (; units >= UNITS; units -= UNITS, a += UNITS * step, b += UNITS * ATT_Q)
        att_multiply(UNITS, a, row, step, b, acc, rows, nv);
    att_multiply(units, a, row, step, b, acc, rows, nv);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) v_store(c + j * VW, acc[i][j]);
        c = att_next_row(c, ldc);
    }
}

/* `rows` as att_rows tells: few functions, each with its sums in registers. */
V_INLINE void att_tile_of(int64_t units, const float *a, int64_t row, int64_t step, const float *b,
                          float *c, int64_t ldc, bool add, int rows, int nv) {
    enum { THREE = ATT_NV < 3 ? ATT_NV : 3 };
    enum { LAST_ROWS = (ATT_PANEL - 1) % ATT_WIDE_ROWS + 1 };
    if (nv == 1)
        att_tile(units, a, row, step, b, c, ldc, add, att_rows(0, 1), 1);
    else if (nv == 2)
        att_tile(units, a, row, step, b, c, ldc, add, att_rows(0, 2), 2);
    else if (nv < ATT_NV)
        att_tile(units, a, row, step, b, c, ldc, add, att_rows(0, THREE), THREE);
    else if (rows == ATT_WIDE_ROWS)
        att_tile(units, a, row, step, b, c, ldc, add, ATT_WIDE_ROWS, ATT_NV);
    else
        att_tile(units, a, row, step, b, c, ldc, add, LAST_ROWS, ATT_NV);
}

/* Tiles are functions of their own, so that nothing else competes for registers. */
#define ATT_TILE __attribute__((noinline, unused)) static void
/* c [keys, queries] = A B over the width of a head: A a panel of keys from its first row. */
ATT_TILE att_scores(int64_t units, const float *a, const float *b, float *c, int rows, int nv) {
    att_tile_of(units, a, 1, ATT_PANEL, b, c, ATT_Q, false, rows, nv);
}
/* c [queries, width] (+)= over the keys: a [keys, ATT_Q] from its column of the first query. */
ATT_TILE att_mix(int64_t units, const float *a, const float *b, float *c, int64_t ldc, bool add,
                 int rows, int nv) {
    if (add)
        att_tile_of(units, a, 1, ATT_Q, b, c, ldc, true, rows, nv);
    else
        att_tile_of(units, a, 1, ATT_Q, b, c, ldc, false, rows, nv);
}
/* c [keys, width] += over the queries: a is rows of ATT_Q queries. */
ATT_TILE att_gather(int64_t units, const float *a, const float *b, float *c, int64_t ldc, int rows,
                    int nv) {
    att_tile_of(units, a, V_DOT_BF16 ? ATT_Q / 2 : ATT_Q, 1, b, c, ldc, true, rows, nv);
}

V_INLINE const void *att_at(const tensor *t, int64_t row, int64_t col) {
    return (const char *)t->data + (row * t->ld + col) * v_element_bytes(t->dt);
}

/* Asks for rows that are soon packed or written: their heads lie far apart, so that the machine
 * does not foresee them. */
V_INLINE void att_prefetch(const tensor *t, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    int64_t bytes = cols * v_element_bytes(t->dt);
    for (int64_t r = 0; r < rows; r++) {
        const char *p = att_at(t, row + r, col);
        for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
    }
}

enum { ATT_AHEAD = 24 }; /* rows that are asked for before they are packed */

/* Only packing and storing know how a tensor is stored; what lies between computes on packed
 * operands. Their loops are compiled for each type, in functions of their own.
 *
 * Left operand over the width: panels of ATT_PANEL rows. */
V_INLINE void att_pack_keys_as(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                               int64_t cols, dtype dt) {
    int64_t units = att_units(cols);
    for (int64_t r = 0; r < rows; r += ATT_PANEL) {
        if (r + ATT_AHEAD + ATT_PANEL <= rows)
            att_prefetch(t, row + r + ATT_AHEAD, col, ATT_PANEL, cols);
        pack_transposed(dst + r * units, ATT_PANEL, att_at(t, row + r, col), t->ld,
                        att_min(rows - r, ATT_PANEL), cols, dt);
    }
}
ATT_TILE att_pack_keys(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                       int64_t cols) {
    WITH_DTYPE(t->dt, att_pack_keys_as, dst, t, row, col, rows, cols);
}

/* Right operand over the width: [cols, ATT_Q], rows in the lanes. */
ATT_TILE att_pack_queries(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                          int64_t cols) {
    WITH_DTYPE(t->dt, pack_transposed, dst, ATT_Q, att_at(t, row, col), t->ld, rows, cols);
}

/* n <= VW elements of a row, or pairs with those of the next row; without it, with 0. */
V_INLINE vf att_row_units(const tensor *t, int64_t at, int64_t n, bool both, dtype dt) {
#if V_DOT_BF16
    const uint16_t *h = (const uint16_t *)t->data + at;
    __m512i low = (__m512i)v_load_16_n(h, n, dt);
    __m512i high = (__m512i)v_load_16_n(h + t->ld, both ? n : 0, dt);
    return (vf)_mm512_or_si512(_mm512_srli_epi32(low, 16), high);
#else
    (void)both;
    return get_upto(t->data, at, n, dt);
#endif
}

/* Right operand over the rows: panels [padded rows, ATT_Q] of the columns; zero beyond them. */
V_INLINE void att_pack_rows_as(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                               int64_t cols, int64_t padded, dtype dt) {
    int64_t per = V_DOT_BF16 ? 2 : 1, units = att_units(padded);
    for (int64_t u = 0; u < units; u++) {
        int64_t left = rows - u * per, at = (row + u * per) * t->ld + col;
        if (left >= ATT_AHEAD + per) att_prefetch(t, row + u * per + ATT_AHEAD, col, per, cols);
        for (int64_t d = 0; d < cols; d += VW) {
            int64_t n = cols - d < VW ? cols - d : VW;
            v_store(dst + (d / ATT_Q * units + u) * ATT_Q + d % ATT_Q,
                    left > 0 ? att_row_units(t, at + d, n, left > 1, dt) : v_zero());
        }
    }
}
ATT_TILE att_pack_rows(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                       int64_t cols, int64_t padded) {
    WITH_DTYPE(t->dt, att_pack_rows_as, dst, t, row, col, rows, cols, padded);
}

/* t[row + i, col + d] (+)= x[i, d] times by[i], or scale where `by` is NULL; rows of x are padded to whole vectors. */
V_INLINE void att_store_rows_as(const tensor *t, int64_t row, int64_t col, int64_t rows,
                                int64_t cols, const float *x, float scale, const float *by,
                                bool add, dtype dt) {
    int64_t ldx = att_round(cols, VW);
    for (int64_t i = 0; i < rows; i++, x += ldx) {
        float f = by ? by[i] : scale;
        FOR_VECTORS(cols, d, n) row_put(t, row + i, col + d, v_load(x + d) * f, n, add, dt);
    }
}
ATT_TILE att_store_rows(const tensor *t, int64_t row, int64_t col, int64_t rows, int64_t cols,
                        const float *x, float scale, const float *by, bool add) {
    WITH_DTYPE(t->dt, att_store_rows_as, t, row, col, rows, cols, x, scale, by, add);
}

#endif
