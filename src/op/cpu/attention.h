/* What forward and backward attention share: the block shape, the register tile, which keys a block
 * of queries sees, and the packing of heads.
 *
 * Scores are kept transposed, S^T [keys, queries]: a block of ATT_Q queries lies in the lanes, so
 * maximum, sum and exponential run down the keys without any horizontal step, and S^T is at once
 * the packed right operand of O^T = V^T P^T and dQ^T = K^T dS^T.
 *
 * Where the machine multiplies bf16 pairs, bf16 operands are packed as pairs, and P and dS are
 * rounded to bf16 for the products they enter; scores, sums and accumulators stay f32. */
#ifndef OP_CPU_ATTENTION_H
#define OP_CPU_ATTENTION_H

#include <math.h>
#include <omp.h>

#include "op/cpu/draws.h"
#include "op/cpu/ops.h"
#include "op/cpu/pack.h"
#include "op/cpu/vmath.h"

/* Register tile ATT_R x ATT_Q; keys are taken ATT_KEYS at a time so that S^T stays in cache. */
#if V_AVX512
enum { ATT_R = 8 };
#else
enum { ATT_R = 4 };
#endif
enum { ATT_NV = TILE_NV, ATT_Q = ATT_NV * VW, ATT_KEYS = 128 };

V_INLINE int64_t att_round(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

V_INLINE int att_threads(const op_call *c) {
    const op_attr *a = c->attr;
    int64_t pairs = (int64_t)a->attention.B * a->attention.H * a->attention.Tq * a->attention.Tk;
    return pairs * (a->attention.D + a->attention.Dv) < SMALL_PRODUCT ? 1 : call_threads(c);
}

/* Units (f32, or bf16 pairs) of n elements of storage dt. */
V_INLINE int64_t att_units(int64_t n, dtype dt) {
    return pack_units(n, pack_pairs(dt));
}

/* c [ATT_R, ATT_Q] = A B * scale, or += A B; A(i, u) = a[i * row + u * step], B packed. */
V_INLINE void att_tile(int64_t units, const float *a, int64_t row, int64_t step, const float *b,
                       float *c, int64_t ldc, float scale, bool add, bool pairs) {
    vf acc[ATT_R][ATT_NV];
#pragma GCC unroll 16
    for (int i = 0; i < ATT_R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < ATT_NV; j++) acc[i][j] = add ? v_load(c + i * ldc + j * VW) : v_zero();
    for (int64_t u = 0; u < units; u++, a += step, b += ATT_Q) {
        vf bv[ATT_NV];
#pragma GCC unroll 4
        for (int j = 0; j < ATT_NV; j++) bv[j] = v_keep(v_load(b + j * VW));
#pragma GCC unroll 16
        for (int i = 0; i < ATT_R; i++)
#pragma GCC unroll 4
            for (int j = 0; j < ATT_NV; j++)
                acc[i][j] = pack_multiply_add(a[i * row], bv[j], acc[i][j], pairs);
    }
#pragma GCC unroll 16
    for (int i = 0; i < ATT_R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < ATT_NV; j++)
            v_store(c + i * ldc + j * VW, add ? acc[i][j] : acc[i][j] * scale);
}

/* The tile as functions of their own, so that nothing else competes for registers. */
#define ATT_TILE __attribute__((noinline, unused)) static void
ATT_TILE att_new_f32(int64_t units, const float *a, const float *b, float *c, float scale) {
    att_tile(units, a, 1, ATT_R, b, c, ATT_Q, scale, false, false);
}
ATT_TILE att_new_pairs(int64_t units, const float *a, const float *b, float *c, float scale) {
    att_tile(units, a, 1, ATT_R, b, c, ATT_Q, scale, false, V_DOT_BF16);
}
ATT_TILE att_add_f32(int64_t units, const float *a, const float *b, float *c) {
    att_tile(units, a, 1, ATT_R, b, c, ATT_Q, 1.0f, true, false);
}
ATT_TILE att_add_pairs(int64_t units, const float *a, const float *b, float *c) {
    att_tile(units, a, 1, ATT_R, b, c, ATT_Q, 1.0f, true, V_DOT_BF16);
}
ATT_TILE att_rows_f32(int64_t row, const float *a, const float *b, float *c, int64_t ldc) {
    att_tile(ATT_Q, a, row, 1, b, c, ldc, 1.0f, true, false);
}
ATT_TILE att_rows_pairs(int64_t row, const float *a, const float *b, float *c, int64_t ldc) {
    att_tile(ATT_Q / 2, a, row, 1, b, c, ldc, 1.0f, true, V_DOT_BF16);
}

/* A packed in panels of ATT_R rows; c has ATT_Q columns. */
V_INLINE void att_tile_new(int64_t units, const float *a, const float *b, float *c, float scale,
                           dtype dt) {
    pack_pairs(dt) ? att_new_pairs(units, a, b, c, scale) : att_new_f32(units, a, b, c, scale);
}
V_INLINE void att_tile_add(int64_t units, const float *a, const float *b, float *c, dtype dt) {
    pack_pairs(dt) ? att_add_pairs(units, a, b, c) : att_add_f32(units, a, b, c);
}
/* A is ATT_R rows of ATT_Q queries as att_pair_queries leaves them. */
V_INLINE void att_tile_rows(const float *a, const float *b, float *c, int64_t ldc, dtype dt) {
    int64_t row = att_units(ATT_Q, dt);
    pack_pairs(dt) ? att_rows_pairs(row, a, b, c, ldc) : att_rows_f32(row, a, b, c, ldc);
}

/* The scores s [n keys, ATT_Q] as right operand over the keys: themselves, or pairs of keys. */
V_INLINE const float *att_pair_keys(float *pairs, const float *s, int64_t n, dtype dt) {
    if (!pack_pairs(dt)) return s;
#if V_DOT_BF16
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i interleave = _mm512_loadu_si512(order);
    for (int64_t j = 0; j < n; j += 2, s += 2 * ATT_Q) {
        for (int q = 0; q < ATT_Q; q += VW) {
            __m512i h = (__m512i)_mm512_cvtne2ps_pbh(v_load(s + ATT_Q + q), v_load(s + q));
            _mm512_storeu_si512(pairs + j / 2 * ATT_Q + q, _mm512_permutexvar_epi16(interleave, h));
        }
    }
#else
    (void)n;
#endif
    return pairs;
}

/* The scores as left operand over the queries: themselves, or pairs of queries. */
V_INLINE const float *att_pair_queries(float *pairs, const float *s, int64_t n, dtype dt) {
    if (!pack_pairs(dt)) return s;
#if V_DOT_BF16
    for (int64_t j = 0; j < n; j++, s += ATT_Q)
        _mm512_storeu_si512(pairs + j * ATT_Q / 2,
                            (__m512i)_mm512_cvtne2ps_pbh(v_load(s + VW), v_load(s)));
#else
    (void)n;
#endif
    return pairs;
}

/* The keys that each query of a block sees, [low, high) per lane, and their union. */
typedef struct att_view {
    int64_t b, q0, rows; /* sequence, first query, queries that exist (<= ATT_Q) */
    int32_t low[ATT_Q], high[ATT_Q];
    int64_t first, end; /* union over the lanes that see any key; first is a multiple of ATT_R */
    int64_t all_first, all_end; /* keys that every lane sees */
} att_view;

V_INLINE int64_t att_query_position(const op_call *c, int64_t b, int64_t i) {
    const tensor *qpos = &c->in[4];
    return i + (qpos->data ? ((const int32_t *)qpos->data)[b * qpos->ld] : 0);
}

V_INLINE att_view att_look(const op_call *c, int64_t b, int64_t q0) {
    const op_attr *at = c->attr;
    const tensor *start = &c->in[3];
    int64_t Tq = at->attention.Tq, Tk = at->attention.Tk, window = at->attention.window;
    att_view v = {.b = b, .q0 = q0, .first = Tk, .all_end = Tk};
    v.rows = Tq - q0 < ATT_Q ? Tq - q0 : ATT_Q;
    for (int64_t i = 0; i < ATT_Q; i++) {
        int64_t low = 0, high = 0;
        if (i < v.rows) {
            int64_t p = att_query_position(c, b, q0 + i);
            low = start->data ? ((const int32_t *)start->data)[(b * Tq + q0 + i) * start->ld] : 0;
            if (low < 0) low = 0;
            if (window > 0 && p - window + 1 > low) low = p - window + 1;
            high = at->attention.causal && p + 1 < Tk ? p + 1 : Tk;
        }
        if (high < low) high = low;
        if (low < high && low < v.first) v.first = low;
        if (low < high && high > v.end) v.end = high;
        v.all_first = low > v.all_first ? low : v.all_first;
        v.all_end = high < v.all_end ? high : v.all_end;
        v.low[i] = (int32_t)low, v.high[i] = (int32_t)high;
    }
    v.first = v.first / ATT_R * ATT_R;
    return v;
}

/* Scores of keys [j0, j0 + n) that a lane does not see become `hidden`. */
V_INLINE void att_mask(const att_view *v, float *s, int64_t j0, int64_t n, float hidden) {
    if (j0 >= v->all_first && j0 + n <= v->all_end) return;
    for (int q = 0; q < ATT_NV; q++) {
        vi low = v_load_i(v->low + q * VW), high = v_load_i(v->high + q * VW);
        for (int64_t j = 0; j < n; j++) {
            vi key = v_set1_i((int32_t)(j0 + j));
            float *at = s + j * ATT_Q + q * VW;
            v_store(at, v_select((key >= low) & (key < high), v_load(at), v_set1(hidden)));
        }
    }
}

/* Multiplies scores [n keys, ATT_Q] by keep/(1-p). */
static inline void att_drop(const op_call *c, const att_view *v, int64_t h, float *s, int64_t j0,
                            int64_t n) {
    const op_attr *at = c->attr;
    uint64_t H = (uint64_t)at->attention.H, B = (uint64_t)at->attention.B;
    uint64_t Tq = (uint64_t)at->attention.Tq, Tk = (uint64_t)at->attention.Tk;
    float scale = dropout_scale(at->attention.dropout);
    dropout_draw draw = dropout_open(c->run, at->attention.dropout, at->attention.stream);
    float factors[ATT_KEYS];
    for (int64_t i = 0; i < v->rows; i++) {
        uint64_t row = ((uint64_t)v->b * H + (uint64_t)h) * Tq + (uint64_t)(v->q0 + i);
        uint64_t counter = (c->run->micro_batch * B * H * Tq + row) * Tk + (uint64_t)j0;
        draw_factors(&draw, scale, counter, n, factors);
        for (int64_t j = 0; j < n; j++) s[j * ATT_Q + i] *= factors[j];
    }
}

V_INLINE const void *att_at(const tensor *t, int64_t row, int64_t col, dtype dt) {
    return (const char *)t->data + (row * t->ld + col) * (dt == DT_BF16 ? 2 : 4);
}

/* Packed right operand [cols, ATT_Q] of rows of one head: queries in the lanes. */
V_INLINE void att_pack_queries(float *dst, const tensor *t, int64_t row, int64_t col, int64_t rows,
                               int64_t cols, dtype dt) {
    pack_transposed(dst, ATT_Q, att_at(t, row, col, dt), t->ld, rows, cols, dt, pack_pairs(dt));
}

/* Panels of ATT_R columns [col, col + cols) of rows [row, row + rows), zero beyond them up to
 * `padded` rows: left operand over the keys. */
V_INLINE void att_pack_over_keys(float *dst, const tensor *t, int64_t row, int64_t col,
                                 int64_t rows, int64_t cols, int64_t padded, dtype dt) {
    int64_t units = att_units(padded, dt), used = att_units(rows, dt);
    for (int64_t d = 0; d < cols; d += ATT_R) {
        float *panel = dst + d * units;
        pack_r_contiguous(panel, ATT_R, att_at(t, row, col + d, dt), t->ld,
                          cols - d < ATT_R ? cols - d : ATT_R, rows, dt, pack_pairs(dt));
        for (int64_t i = used * ATT_R; i < units * ATT_R; i++) panel[i] = 0.0f;
    }
}

/* t[row + r, col + d] (+)= x[d * ATT_Q + r] * by[r]; `turned` holds ATT_Q * cols floats. */
V_INLINE void att_store_queries(const tensor *t, int64_t row, int64_t col, int64_t rows,
                                int64_t cols, const float *x, float *turned, bool add, dtype dt) {
    pack_transposed(turned, (int)cols, x, ATT_Q, cols, ATT_Q, DT_F32, false);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < cols; d += VW) {
            int64_t n = cols - d, at = (row + r) * t->ld + col + d;
            vf v =
                n >= VW ? v_load(turned + r * cols + d) : v_get_n(turned + r * cols, d, n, DT_F32);
            if (n >= VW) {
                v_put(t->data, at, add ? v + v_get(t->data, at, dt) : v, dt);
            } else {
                if (add) v += v_get_n(t->data, at, n, dt);
                v_put_n(t->data, at, v, n, dt);
            }
        }
    }
}

#endif
