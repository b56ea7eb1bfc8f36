/* C = A B^T for up to ROWS rows of A, with B as a file stores it: every row of B
 * is read once and decoded in registers (stored.h), the products are summed in float. B may hold
 * 4 bits an element, so this is to keep up with memory at a few instructions for 16 elements. For more rows
 * by_row.c begins with these, and gets what was decoded.
 *
 * A sum runs over the lanes and then across them; its bits depend neither on threads nor on the
 * other rows. Of f16 and bf16 it has the order of gemv.c, and so the bits of the same weights in
 * f32. */
#include "op/cpu/ops.h"
#include "op/cpu/stored.h"
#include "op/cpu/parts.h"

/* Rows of B at a time; most rows of A; elements of B that one thread reads. */
enum { COLUMNS = 4, ROWS = GEMV_STORED_ROWS, SMALL_B = 1 << 17 };

/* VW elements of a row from k on, of which n are there, of a format that may end anywhere. */
V_INLINE vf load_rest(const uint8_t *row, int64_t k, int64_t n, dtype dt) {
    uint16_t h[VW] = {0};
    n = n < VW ? n : VW;
    if (dt == DT_FP8) {
        float x[VW] = {0};
        fp8_row_read((const void *)row, k, n, x);
        return v_load(x);
    }
    memcpy(h, row + 2 * k, (size_t)n * sizeof(*h));
    return dt == DT_F16 ? v_load_f16((const uint8_t *)h) : v_load_bf16(h);
}

/* Columns [j, j + n) of row i of C, from their sums. */
V_INLINE void put_sums(const gemm_args *g, int64_t i, int64_t j, int64_t n, v4f sum) {
    float *c = (float *)g->c + i * g->ldc + j, v[COLUMNS];
    memcpy(v, &sum, sizeof(v));
    for (int64_t q = 0; q < n; q++) {
        if (g->bias) v[q] += g->bias[j + q];
        if (g->res) v[q] += ((const float *)g->res)[i * g->ldr + j + q];
        c[q] = v[q];
    }
}

V_INLINE bool is_plain(dtype dt) {
    return dt == DT_F16 || dt == DT_BF16 || dt == DT_FP8;
}

/* The machine itself looks ahead along a row, but rows of few bits end before that pays. Plain
 * numbers pass faster than memory gives them: asked for into the first cache they would take up
 * all the requests that a core can have open. */
V_INLINE void prefetch(const uint8_t *p, int64_t bytes, dtype dt) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < bytes; i += 64)
        is_plain(dt) ? __builtin_prefetch(p + i, 0, 2) : __builtin_prefetch(p + i);
}

V_INLINE int64_t bytes_of_row(const gemm_args *g, dtype dt) {
    if (dtype_is_listed(dt)) return dtype_span_bytes(dt, g->k);
    if (is_plain(dt)) return 2 * g->ldb;
    return g->ldb / stored_block(dt) * stored_block_bytes(dt);
}

V_INLINE void keep_chunk(float *to, const vf w[CHUNK_V]) {
#pragma GCC unroll 8
    for (int v = 0; v < CHUNK_V; v++) v_store(to + v * VW, w[v]);
}

/* Rows [0, rows) of A with rows [j, j + columns) of B; the last of these stands in for those
 * that do not exist. keeps: row q of these, as floats, goes to keep + q * ld. */
V_INLINE void dot_tile(const gemm_args *g, int64_t j, int64_t columns, int rows, bool keeps,
                       float *restrict keep, int64_t ld, dtype dt) {
    int64_t row_bytes = bytes_of_row(g, dt), k = 0, from = 0, bytes = stored_block_bytes(dt);
    const uint8_t *row[COLUMNS], *b[COLUMNS];
    int64_t lda = g->lda, all = g->k;
    const float *a = g->a;
    vf acc[ROWS][COLUMNS];
#pragma GCC unroll 4
    for (int q = 0; q < COLUMNS; q++) {
        row[q] = (const uint8_t *)g->b + (j + (q < columns ? q : columns - 1)) * row_bytes;
        b[q] = stored_blocks(row[q], dt);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) acc[r][q] = v_zero();
    }
    const uint8_t *next =
        b[0] + COLUMNS * (dtype_is_listed(dt) ? all / stored_block(dt) * bytes : row_bytes);
    for (; k + stored_block(dt) <= all; from += bytes) {
        stored_scales s[COLUMNS];
        prefetch(next + COLUMNS * from, COLUMNS * bytes, dt);
#pragma GCC unroll 4
        for (int q = 0; q < COLUMNS; q++) {
            stored_open(&s[q], b[q] + from, dt);
            stored_factor(&s[q], row[q], k, dt);
        }
        for (int c = 0; c < stored_block(dt) / CHUNK; c++, k += CHUNK) {
#pragma GCC unroll 4
            for (int q = 0; q < COLUMNS; q++) {
                vf w[CHUNK_V];
                stored_chunk(b[q] + from, &s[q], c, w, dt);
                if (keeps) keep_chunk(keep + q * ld + k, w);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
                    for (int v = 0; v < CHUNK_V; v++)
                        acc[r][q] = v_fma(w[v], v_load(a + r * lda + k + v * VW), acc[r][q]);
            }
        }
    }
    for (; is_plain(dt) && k < all; k += VW) { /* as the product of f32 does */
        vf w[COLUMNS];
#pragma GCC unroll 4
        for (int q = 0; q < COLUMNS; q++) {
            w[q] = load_rest(row[q], k, all - k, dt);
            if (keeps) v_store(keep + q * ld + k, w[q]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vf x = v_get_n(a, r * lda + k, all - k < VW ? all - k : VW, DT_F32);
#pragma GCC unroll 4
            for (int q = 0; q < COLUMNS; q++) acc[r][q] = v_fma(w[q], x, acc[r][q]);
        }
    }
    v4f sum[ROWS];
    if (rows == ROWS) v_sum_rows(acc, sum);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        put_sums(g, r, j, columns, rows == ROWS ? sum[r] : v_sum_each(acc[r]));
}

V_INLINE void dot_columns(const gemm_args *g, int64_t j, dtype dt) {
    int64_t columns = g->n - j < COLUMNS ? g->n - j : COLUMNS;
    switch (g->m) {
        case 1: dot_tile(g, j, columns, 1, false, NULL, 0, dt); return;
        case 2: dot_tile(g, j, columns, 2, false, NULL, 0, dt); return;
        case 3: dot_tile(g, j, columns, 3, false, NULL, 0, dt); return;
        default: dot_tile(g, j, columns, 4, false, NULL, 0, dt); return;
    }
}

typedef void (*dot_fn)(const gemm_args *g, int64_t j);

#define DEFINE(F)                                                                                  \
    static void dot_##F(const gemm_args *g, int64_t j) {                                           \
        dot_columns(g, j, DT_##F);                                                                 \
    }
STORED_FORMATS(DEFINE)
#undef DEFINE

static dot_fn find_dot(dtype dt) {
#define CASE(F)                                                                                    \
    case DT_##F: return dot_##F;
    switch (dt) {
        STORED_FORMATS(CASE)
        default: return NULL;
    }
#undef CASE
}

void CPU_FN(gemv_stored)(int threads, const gemm_args *g) {
    dot_fn dot = find_dot(g->b_stored);
    if (g->n * g->k < SMALL_B) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t j = 0; j < g->n; j += COLUMNS) dot(g, j);
}

#define DEFINE(F)                                                                                  \
    static void first_##F(const gemm_args *g, int64_t j, int64_t columns, float *keep,             \
                          int64_t ld) {                                                            \
        dot_tile(g, j, columns, ROWS, true, keep, ld, DT_##F);                                     \
    }
STORED_FORMATS(DEFINE)
#undef DEFINE

void CPU_FN(gemv_stored_first)(const gemm_args *g, int64_t j, int64_t columns, float *keep,
                               int64_t ld) {
#define CASE(F)                                                                                    \
    case DT_##F: first_##F(g, j, columns, keep, ld); return;
    switch (g->b_stored) {
        STORED_FORMATS(CASE)
        default: return;
    }
#undef CASE
}
