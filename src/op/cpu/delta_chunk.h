/* The gated delta rule, a chunk of rows at a time (Yang et al. 2024, "Gated Delta Networks", section 3.3): what forward and backward share.
 *
 * Let S be the state before the chunk, G_i the sum of g up to row i, c_i = e^G_i, D_ij = e^(G_i - G_j) for j <= i. Then the rows' u are
 * the solution of a triangular system, and everything else is products of small matrices:
 *
 *   (I + A) U = R,   A_ij = beta_i D_ij k_i . k_j for j < i,   R_i = beta_i Y_i,   Y = V - diag(c) K S
 *   O = diag(c) Q S + P U,   P_ij = D_ij q_i . k_j             S' = keep S + (diag(e) K)^T U,   e_i = e^(G_last - G_i)
 *
 * A document that begins within the chunk is a cut: D_ij = 0 across it, c_i = 0 behind the first cut, e_i = 0 before the last one. The
 * system is solved by substitution, block by block; with a chain of chunks to walk through in any case nothing is gained by making its inverse.
 *
 * Matrices are f32, their rows filled up with zeros to whole vectors, and chunks to whole tiles of rows; a row of zeros changes nothing. */
#ifndef OP_CPU_DELTA_CHUNK_H
#define OP_CPU_DELTA_CHUNK_H

#include <math.h>

#include "op/cpu/pack.h"
#include "op/cpu/rows.h"
#include "op/cpu/vmath.h"

enum { DELTA_ROWS = 32, TILE_ROWS = V_AVX512 ? 8 : 4, TILE_VECS = 2 };

V_INLINE int64_t delta_round(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* ---- products ---- */

/* A[r*row + k*col]: either order. */
typedef struct left {
    const float *at;
    int64_t row, col;
} left;

/* C = keep C + A B for TILE_ROWS rows and `vecs` vectors of columns, over k in [from, to). */
V_INLINE void delta_tile(left a, const float *B, int64_t ldb, float *C, int64_t ldc, int64_t from,
                         int64_t to, float keep, int vecs) {
    vf acc[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            acc[r][v] = keep == 0.0f ? v_zero() : keep * v_load(C + r * ldc + v * VW);
    for (int64_t k = from; k < to; k++) {
        vf b[TILE_VECS];
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) b[v] = v_load(B + k * ldb + v * VW);
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++) {
            vf x = v_set1(a.at[r * a.row + k * a.col]);
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) acc[r][v] = v_fma(x, b[v], acc[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) v_store(C + r * ldc + v * VW, acc[r][v]);
}

/* Which k a row m of A has: all, k <= m, k >= m. Tiles are taken whole: what is beyond must be 0. */
typedef enum triangle { FULL, LOWER, UPPER } triangle;

/* C [M,N] = keep C + A B, A [M,K]. M is whole tiles, N whole vectors. Vectors of B are read for all rows before the next ones. */
__attribute__((noinline, unused)) static void delta_product(left a, triangle t, const float *B,
                                                            int64_t ldb, float *C, int64_t ldc,
                                                            int64_t M, int64_t N, int64_t K,
                                                            float keep) {
    for (int64_t n = 0; n < N; n += TILE_VECS * VW)
        for (int64_t m = 0; m < M; m += TILE_ROWS) {
            int64_t from = t == UPPER ? m : 0, to = K;
            if (t == LOWER && m + TILE_ROWS < K) to = m + TILE_ROWS;
            left rows = {a.at + m * a.row, a.row, a.col};
            if (N - n >= TILE_VECS * VW)
                delta_tile(rows, B + n, ldb, C + m * ldc + n, ldc, from, to, keep, TILE_VECS);
            else
                delta_tile(rows, B + n, ldb, C + m * ldc + n, ldc, from, to, keep, 1);
        }
}

/* ---- a chunk ---- */

typedef struct delta_chunk {
    int64_t rows, M;  /* rows that exist; in whole tiles */
    int64_t Dkp, Dvp; /* columns in whole vectors */
    float *q, *k;     /* [M, Dkp], scaled */
    float *kt;        /* [Dkp, DELTA_ROWS]: k turned */
    float *P, *A;     /* [M, DELTA_ROWS]; A is - A */
    float *KD;        /* D_ij k_i . k_j, j < i */
    float *D;
    float c[DELTA_ROWS], e[DELTA_ROWS], beta[DELTA_ROWS], keep;
    int32_t cut[DELTA_ROWS]; /* documents that have begun up to this row */
} delta_chunk;

V_INLINE int64_t delta_chunk_floats(const op_delta *d) {
    int64_t Dkp = delta_round(d->Dk, VW);
    return DELTA_ROWS * (3 * Dkp + 4 * DELTA_ROWS);
}

V_INLINE delta_chunk delta_chunk_at(const op_delta *d, float *room) {
    delta_chunk x = {.Dkp = delta_round(d->Dk, VW), .Dvp = delta_round(d->Dv, VW)};
    int64_t square = DELTA_ROWS * DELTA_ROWS;
    x.q = room, x.k = x.q + DELTA_ROWS * x.Dkp, x.kt = x.k + DELTA_ROWS * x.Dkp;
    x.P = x.kt + DELTA_ROWS * x.Dkp, x.A = x.P + square, x.KD = x.A + square, x.D = x.KD + square;
    return x;
}

/* to [M, cols rounded] = scale times columns from `col` on of `rows` rows of t; the rest 0. */
V_INLINE void delta_load(float *to, const tensor *t, int64_t row, int64_t rows, int64_t M,
                         int64_t col, int64_t cols, float scale, dtype dt) {
    int64_t ld = delta_round(cols, VW);
    for (int64_t i = 0; i < rows; i++) FOR_VECTORS(cols, j, n)
    v_store(to + i * ld + j, scale * row_get(t, row + i, col + j, n, dt));
    for (int64_t i = rows * ld; i < M * ld; i += VW) v_store(to + i, v_zero());
}

/* t [rows, cols] = x, or its sum with what is there. */
V_INLINE void delta_store(const tensor *t, int64_t row, int64_t rows, int64_t col, int64_t cols,
                          const float *x, bool add, dtype dt) {
    int64_t ld = delta_round(cols, VW);
    for (int64_t i = 0; i < rows; i++) FOR_VECTORS(cols, j, n)
    row_put(t, row + i, col + j, v_load(x + i * ld + j), n, add, dt);
}

/* Where the documents of a chunk begin, and the decays: c, e, beta, keep and D. starts: of the chunk's first row, or NULL; t0: its
 * position in the sequence. */
V_INLINE void delta_decays(delta_chunk *x, const op_delta *d, const tensor *gates, int64_t row,
                           int64_t h, const tensor *starts, int64_t t0) {
    float G[DELTA_ROWS];
    int32_t *cut = x->cut;
    float sum = 0.0f;
    int32_t cuts = 0;
    for (int64_t i = 0; i < DELTA_ROWS; i++) {
        bool there = i < x->rows;
        const float *g = (const float *)gates->data + (row + i) * gates->ld;
        x->beta[i] = there ? g[h] : 0.0f;
        sum += there ? g[d->Hv + h] : 0.0f;
        if (there && starts && ((const int32_t *)starts->data)[(row + i) * starts->ld] >= t0 + i)
            cuts++, sum = 0.0f; /* so that no bit depends on the document before */
        G[i] = sum, cut[i] = cuts;
    }
    x->keep = cuts == 0 ? expf(sum) : 0.0f;
    for (int64_t i = 0; i < x->M; i++) {
        x->c[i] = cut[i] == 0 ? expf(G[i]) : 0.0f;
        x->e[i] = cut[i] == cuts ? expf(sum - G[i]) : 0.0f;
        for (int64_t j = 0; j < DELTA_ROWS; j += VW) {
            vf y = v_exp(v_min(v_zero(), G[i] - v_load(G + j)));
            v_store(x->D + i * DELTA_ROWS + j,
                    v_select(v_load_i(cut + j) == v_set1_i(cut[i]), y, v_zero()));
        }
        for (int64_t j = i + 1; j < DELTA_ROWS; j++) x->D[i * DELTA_ROWS + j] = 0.0f;
    }
}

/* Queries, keys, and their products with keys. qk: rows from `row` on, key head hk. */
V_INLINE void delta_open(delta_chunk *x, const op_delta *d, const tensor *qk, int64_t row,
                         int64_t hk, dtype dt) {
    int64_t N = DELTA_ROWS;
    delta_load(x->q, qk, row, x->rows, x->M, hk * d->Dk, d->Dk, d->q_scale, dt);
    delta_load(x->k, qk, row, x->rows, x->M, ((int64_t)d->Hk + hk) * d->Dk, d->Dk, d->k_scale, dt);
    pack_transposed(x->kt, DELTA_ROWS, x->k, x->Dkp, x->M, x->Dkp, DT_F32);
    delta_product((left){x->q, x->Dkp, 1}, FULL, x->kt, N, x->P, N, x->M, N, d->Dk, 0.0f);
    delta_product((left){x->k, x->Dkp, 1}, FULL, x->kt, N, x->KD, N, x->M, N, d->Dk, 0.0f);
    for (int64_t i = 0; i < x->M; i++) {
        for (int64_t at = i * N; at < (i + 1) * N; at += VW) {
            vf D = v_load(x->D + at), kd = D * v_load(x->KD + at);
            v_store(x->P + at, D * v_load(x->P + at));
            v_store(x->KD + at, kd);
            v_store(x->A + at, -x->beta[i] * kd);
        }
        x->KD[i * N + i] = x->A[i * N + i] = 0.0f;
    }
}

/* U [M, Dvp] in place: (I + A) U = R. */
V_INLINE void delta_solve(const delta_chunk *x, float *U) {
    int64_t ld = x->Dvp;
    for (int64_t m = 0; m < x->M; m += TILE_ROWS) {
        const float *A = x->A + m * DELTA_ROWS;
        delta_product((left){A, DELTA_ROWS, 1}, FULL, U, ld, U + m * ld, ld, TILE_ROWS, ld, m,
                      1.0f);
        for (int64_t d = 0; d < ld; d += VW) {
            vf u[TILE_ROWS];
#pragma GCC unroll 8
            for (int i = 0; i < TILE_ROWS; i++) {
                u[i] = v_load(U + (m + i) * ld + d);
#pragma GCC unroll 8
                for (int j = 0; j < i; j++)
                    u[i] = v_fma(v_set1(A[i * DELTA_ROWS + m + j]), u[j], u[i]);
                v_store(U + (m + i) * ld + d, u[i]);
            }
        }
    }
}

/* The same with the transpose: (I + A)^T R = U, in place. */
V_INLINE void delta_solve_turned(const delta_chunk *x, float *U) {
    int64_t ld = x->Dvp;
    for (int64_t m = x->M - TILE_ROWS; m >= 0; m -= TILE_ROWS) {
        int64_t next = m + TILE_ROWS;
        const float *A = x->A + m * DELTA_ROWS + m;
        delta_product((left){x->A + next * DELTA_ROWS + m, 1, DELTA_ROWS}, FULL, U + next * ld, ld,
                      U + m * ld, ld, TILE_ROWS, ld, x->M - next, 1.0f);
        for (int64_t d = 0; d < ld; d += VW) {
            vf u[TILE_ROWS];
#pragma GCC unroll 8
            for (int i = 0; i < TILE_ROWS; i++) u[i] = v_load(U + (m + i) * ld + d);
#pragma GCC unroll 8
            for (int i = TILE_ROWS - 1; i >= 0; i--)
#pragma GCC unroll 8
                for (int j = 0; j < i; j++) u[j] = v_fma(v_set1(A[i * DELTA_ROWS + j]), u[i], u[j]);
#pragma GCC unroll 8
            for (int i = 0; i < TILE_ROWS; i++) v_store(U + (m + i) * ld + d, u[i]);
        }
    }
}

/* Y = V - diag(c) K S and U, from V in Y; a state of zeros need not be read. */
V_INLINE void delta_values(const delta_chunk *x, const op_delta *d, const float *S, bool zero,
                           float *Y, float *U) {
    if (!zero) {
        delta_product((left){x->k, x->Dkp, 1}, FULL, S, x->Dvp, U, x->Dvp, x->M, x->Dvp, d->Dk,
                      0.0f);
        for (int64_t i = 0; i < x->M; i++)
            for (int64_t j = i * x->Dvp; j < (i + 1) * x->Dvp; j += VW)
                v_store(Y + j, v_load(Y + j) - x->c[i] * v_load(U + j));
    }
    for (int64_t i = 0; i < x->M; i++)
        for (int64_t j = i * x->Dvp; j < (i + 1) * x->Dvp; j += VW)
            v_store(U + j, x->beta[i] * v_load(Y + j));
    delta_solve(x, U);
}

/* x [M, cols] times by[i]. */
V_INLINE void delta_scale_rows(float *to, const float *from, const float *by, int64_t M,
                               int64_t cols) {
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = i * cols; j < (i + 1) * cols; j += VW)
            v_store(to + j, by[i] * v_load(from + j));
}

/* S becomes the state after the chunk; ke: room for [M, Dkp]. */
V_INLINE void delta_advance(const delta_chunk *x, const float *U, float *S, float *ke) {
    delta_scale_rows(ke, x->k, x->e, x->M, x->Dkp);
    delta_product((left){ke, 1, x->Dkp}, FULL, U, x->Dvp, S, x->Dvp, x->Dkp, x->Dvp, x->M, x->keep);
}

#endif
