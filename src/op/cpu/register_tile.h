/* Tiles of C that are made in registers, for gemm_tile.c. Their columns are a panel of packed B, or its first vectors,
 * where it has no more; their rows are of a packed panel of A, or lie in memory as they are. A tile has TILE_M rows; a narrow
 * one has all rows of a panel, so that it has as many sums, and the last few rows have a lower one.
 *
 * While a tile is made, what comes next is fetched (ahead.h), and the lines that the tile goes to. */
#ifndef OP_CPU_REGISTER_TILE_H
#define OP_CPU_REGISTER_TILE_H

#include "op/cpu/ahead.h"
#include "op/cpu/pack.h"
#include "op/cpu/rows.h"

enum {
    NARROW_NV =
        TILE_NV * TILE_M / PANEL_M, /* tiles of at most so many vectors have all rows of a panel */
    REST_M = TILE_M * 2 / 3,        /* rows of a whole panel's last tile, where there are no more */
    /* What comes next is fetched every so many units: this many lines of a panel of B, */
    FETCH_UNITS = V_AVX512 ? 16 : 32,
    FETCH_LINES = FETCH_UNITS * TILE_N * 4 / AHEAD_LINE,
    /* Instructions that count units take turns of the ports that multiply, 5 % of a product on Granite Rapids. */
    UNROLLED = V_AVX512 ? 4 : 1,
    C_LEAD = 2, /* and a row of where the tile goes, so many fetches before it is whole */
};

/* Rows of a tile that is so many vectors wide. */
V_INLINE int tile_rows(int nv) {
    return nv <= NARROW_NV ? PANEL_M : TILE_M;
}
/* Vectors that hold so many columns of a panel. */
V_INLINE int tile_vectors(int64_t cols) {
    return (int)((cols + VW - 1) / VW);
}

/* Where a tile goes: C = tile (+ bias) (+ plus), from its first element on. Its sums begin with `from`.
 * Meanwhile, with every FETCH_UNITS units, `each` lines from `next` on are fetched, and what is due of `ahead`: rows of A
 * that are packed next. */
typedef struct tile_out {
    const char *next;
    int64_t each;
    ahead *ahead;
    const float *from; /* NULL: with 0 */
    int64_t ldf;
    void *c;
    int64_t ldc;
    const float *bias; /* NULL: none */
    const void *plus;  /* C itself, or the residual; NULL: none */
    int64_t ldp;
} tile_out;

V_INLINE void store_vector(const tile_out *o, int64_t i, int64_t j, vf v, bool bias, bool plus,
                           dtype dt) {
    if (bias) v += v_load(o->bias + j);
    if (plus) v += v_get(o->plus, i * o->ldp + j, dt);
    v_put(o->c, i * o->ldc + j, v, dt);
}

/* bias, plus: whether there are any. They are constants: asked for each vector, they are a sixth of a tile of 16 units. */
V_INLINE void store_tile(const tile_out *o, vf sum[PANEL_M][TILE_NV], int M, int NV, bool bias,
                         bool plus, dtype dt) {
#pragma GCC unroll 16
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) store_vector(o, i, j * VW, sum[i][j], bias, plus, dt);
}

/* Row i of what a tile is added to and becomes; elements of `bytes`. */
V_INLINE void fetch_row(const tile_out *o, int64_t i, int NV, int64_t bytes) {
    const char *c = (const char *)o->c + i * o->ldc * bytes;
#pragma GCC unroll 4
    for (int64_t at = 0; at < NV * VW * bytes; at += AHEAD_LINE) __builtin_prefetch(c + at, 1);
    if (!o->plus || o->plus == o->c) return;
    const char *plus = (const char *)o->plus + i * o->ldp * bytes;
#pragma GCC unroll 4
    for (int64_t at = 0; at < NV * VW * bytes; at += AHEAD_LINE) __builtin_prefetch(plus + at);
}

/* Of the rows that the tile below reads: what it needs in FETCH_UNITS. */
V_INLINE void fetch_below(const void *a, int64_t lda, int M) {
#pragma GCC unroll 16
    for (int i = M; i < 2 * M; i++)
#pragma GCC unroll 2
        for (int at = 0; at < FETCH_UNITS * 4; at += AHEAD_LINE)
            __builtin_prefetch((const char *)a + i * lda + at, 0, 2);
}

/* So many units, which are a constant. direct: A lies in memory, rows lda bytes apart; else it is packed. */
V_INLINE void multiply_units(int units, const float *a, int64_t lda, bool direct, const float *b,
                             int M, int NV, vf sum[PANEL_M][TILE_NV]) {
    /* One pointer for three rows: a pointer for each row is more than there are registers. */
    const char *rows[(PANEL_M + 2) / 3];
    for (int i = 0; i < (M + 2) / 3; i++) rows[i] = (const char *)a + 3 * i * lda;
#pragma GCC unroll 4
    for (int u = 0; u < units; u++) {
        vf bv[TILE_NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) bv[j] = pack_keep(v_load(b + u * TILE_N + j * VW));
        pack_factors f;
        if (!direct) f = pack_load_factors(a + u * PANEL_M, M);
#pragma GCC unroll 16
        for (int i = 0; i < M; i++)
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) {
                float x = direct ? *(const pack_float *)(rows[i / 3] + i % 3 * lda + 4 * u)
                                 : pack_factor(f, i);
                sum[i][j] = pack_multiply_into(x, bv[j], sum[i][j]);
            }
    }
}

/* Inlined only into the functions below, so that nothing else competes for registers. */
V_INLINE void multiply_tile(int64_t units, const float *a, int64_t lda, bool direct, const float *b,
                            const tile_out *o, int M, int NV, dtype dt) {
    vf sum[PANEL_M][TILE_NV]; /* M x NV of them */
#pragma GCC unroll 16
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            sum[i][j] = o->from ? v_load(o->from + i * o->ldf + j * VW) : v_zero();
    const char *next = o->next;
    ahead *soon = o->ahead;
    int64_t bytes = v_element_bytes(dt), step = direct ? 1 : PANEL_M;
    /* Of where the tile goes: below 0 later, or all at once if there is little time. */
    int64_t row = M + C_LEAD - units / FETCH_UNITS;
    if (row > 0)
        for (row = 0; row < M; row++) fetch_row(o, row, NV, bytes);
    for (; units >= FETCH_UNITS; units -= FETCH_UNITS, row++) {
        if (row >= 0 && row < M) fetch_row(o, row, NV, bytes);
        for (int64_t i = 0; i < o->each; i++, next += AHEAD_LINE) __builtin_prefetch(next, 0, 2);
        if (direct)
            fetch_below(a, lda, M);
        else
            ahead_fetch(soon);
        for (int u = 0; u < FETCH_UNITS;
             u += UNROLLED, a += UNROLLED * step, b += UNROLLED * TILE_N)
            multiply_units(UNROLLED, a, lda, direct, b, M, NV, sum);
    }
    for (; units > 0; units--, a += step, b += TILE_N)
        multiply_units(1, a, lda, direct, b, M, NV, sum);
    if (o->bias)
        store_tile(o, sum, M, NV, true, o->plus != NULL, dt);
    else if (o->plus)
        store_tile(o, sum, M, NV, false, true, dt);
    else
        store_tile(o, sum, M, NV, false, false, dt);
}

typedef void tile_fn(int64_t units, const float *a, int64_t lda, const float *b, const tile_out *o);

#define DEFINE_TILE(name, direct, M, NV, dt)                                                       \
    __attribute__((noinline)) static void name(int64_t units, const float *a, int64_t lda,         \
                                               const float *b, const tile_out *o) {                \
        multiply_tile(units, a, lda, direct, b, o, M, NV, dt);                                     \
    }
/* To 16 bits, a whole tile. */
DEFINE_TILE(tile_bf16, false, TILE_M, TILE_NV, DT_BF16)
DEFINE_TILE(tile_f16, false, TILE_M, TILE_NV, DT_F16)
DEFINE_TILE(tile_direct_bf16, true, TILE_M, TILE_NV, DT_BF16)
/* To f32, so many vectors wide, of packed A. */
DEFINE_TILE(tile_rest, false, REST_M, TILE_NV, DT_F32)
DEFINE_TILE(tile_1, false, tile_rows(1), 1, DT_F32)
DEFINE_TILE(tile_2, false, tile_rows(2), 2, DT_F32)
/* Of A as it lies. */
DEFINE_TILE(tile_direct_1, true, tile_rows(1), 1, DT_F32)
DEFINE_TILE(tile_direct_2, true, tile_rows(2), 2, DT_F32)
#if V_AVX2 || V_AVX512 || V_NEON
DEFINE_TILE(tile_3, false, tile_rows(3), 3, DT_F32)
DEFINE_TILE(tile_direct_3, true, tile_rows(3), 3, DT_F32)
#endif
#if V_AVX512
DEFINE_TILE(tile_4, false, tile_rows(4), 4, DT_F32)
DEFINE_TILE(tile_direct_4, true, tile_rows(4), 4, DT_F32)
#endif

/* By vectors of columns. */
static tile_fn *const PACKED_TILES[TILE_NV + 1] = {
    NULL,   tile_1, tile_2,
#if V_AVX2 || V_AVX512 || V_NEON
    tile_3,
#endif
#if V_AVX512
    tile_4,
#endif
};
static tile_fn *const DIRECT_TILES[TILE_NV + 1] = {
    NULL,          tile_direct_1, tile_direct_2,
#if V_AVX2 || V_AVX512 || V_NEON
    tile_direct_3,
#endif
#if V_AVX512
    tile_direct_4,
#endif
};

/* The part of a tile that exists, from a whole one in `tile`. */
V_INLINE void store_edge(const float *tile, int64_t ld, const tile_out *o, int64_t rows,
                         int64_t cols, dtype dt) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0;
        for (; j + VW <= cols; j += VW)
            store_vector(o, i, j, v_load(tile + i * ld + j), o->bias, o->plus, dt);
        for (; j < cols; j++) {
            float v = tile[i * ld + j];
            if (o->bias) v += o->bias[j];
            if (o->plus) v += s_get(o->plus, i * o->ldp + j, dt);
            s_put(o->c, i * o->ldc + j, v, dt);
        }
    }
}

/* The same of a tile that was made of A and B in each other's place: its columns are rows of C, in f32. */
static inline void store_turned(const float *tile, int64_t ld, const tile_out *o, int64_t rows,
                                int64_t cols) {
    float *c = o->c;
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) {
            float *to = c + j * o->ldc + i, sum = tile[i * ld + j];
            *to = o->plus ? sum + *to : sum;
        }
}

#endif
