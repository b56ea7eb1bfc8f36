/* C = A B^T for the few rows of A that generation has: every row of B is read once, as it lies in
 * memory, without packing. Bound by the bandwidth of B, n k elements. A sum runs over the lanes and
 * then across them, so its bits differ from the packed product's but do not depend on m, n or
 * threads. */
#include "op/cpu/parts.h"

#include "op/cpu/pack.h"
#include "op/cpu/rows.h"

enum { COLUMNS = 4, SMALL_B = 1 << 18 }; /* columns at a time; elements that one thread reads */

bool CPU_FN(gemv_fits)(const gemm_args *g) {
    return g->m <= 2 && !g->a_trans && g->b_trans;
}

/* acc[i] += a[0 .. step) * row i of b[0 .. step); n < step elements at the end of a row. */
V_INLINE void dot_step(const void *a, int64_t at_a, const void *b, int64_t at_b, int64_t ldb,
                       int64_t n, vf *acc, dtype dt) {
#if V_DOT_BF16
    if (dt == DT_BF16) {
        __mmask32 m = n >= 2 * VW ? 0xffffffffu : (1u << n) - 1;
        __m512bh x = (__m512bh)_mm512_maskz_loadu_epi16(m, (const uint16_t *)a + at_a);
#pragma GCC unroll 4
        for (int i = 0; i < COLUMNS; i++) {
            const uint16_t *w = (const uint16_t *)b + at_b + i * ldb;
            acc[i] = _mm512_dpbf16_ps(acc[i], x, (__m512bh)_mm512_maskz_loadu_epi16(m, w));
        }
        return;
    }
#endif
    vf x = n >= VW ? v_get(a, at_a, dt) : v_get_n(a, at_a, n, dt);
#pragma GCC unroll 4
    for (int i = 0; i < COLUMNS; i++) {
        int64_t at = at_b + i * ldb;
        acc[i] = v_fma(n >= VW ? v_get(b, at, dt) : v_get_n(b, at, n, dt), x, acc[i]);
    }
}

/* Row i, columns [j, j + columns). Past the last column the first one stands in. */
V_INLINE void dot_columns(const gemm_args *g, int64_t i, int64_t j, int64_t columns, dtype dt) {
    int64_t step = pack_pairs(dt) ? 2 * VW : VW, ldb = columns == COLUMNS ? g->ldb : 0;
    vf acc[COLUMNS] = {{0}};
    int64_t k = 0, bytes = v_element_bytes(dt);
    const char *next = (const char *)g->b + (j + COLUMNS) * g->ldb * bytes;
    for (; k + step <= g->k; k += step) {
#pragma GCC unroll 4
        for (int q = 0; q < COLUMNS; q++) /* of the next rows: these end before the machine sees */
            __builtin_prefetch(next + (k * COLUMNS + q * step) * bytes);
        dot_step(g->a, i * g->lda + k, g->b, j * g->ldb + k, ldb, step, acc, dt);
    }
    if (k < g->k) dot_step(g->a, i * g->lda + k, g->b, j * g->ldb + k, ldb, g->k - k, acc, dt);
    for (int64_t q = 0; q < columns; q++) {
        float v = v_sum(acc[q]);
        if (g->bias) v += g->bias[j + q];
        if (g->accumulate) v += s_get(g->c, i * g->ldc + j + q, g->c_dt);
        if (g->res) v += s_get(g->res, i * g->ldr + j + q, g->c_dt);
        s_put(g->c, i * g->ldc + j + q, v, g->c_dt);
    }
}

V_INLINE void dot_rows(const gemm_args *g, int64_t j, dtype dt) {
    for (int64_t i = 0; i < g->m; i++) {
        if (j + COLUMNS <= g->n)
            dot_columns(g, i, j, COLUMNS, dt);
        else
            for (int64_t q = j; q < g->n; q++) dot_columns(g, i, q, 1, dt);
    }
}

void CPU_FN(gemv)(int threads, const gemm_args *g) {
    if (g->n * g->k < SMALL_B) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t j = 0; j < g->n; j += COLUMNS) {
        WITH_DTYPE(g->ab_dt, dot_rows, g, j);
    }
}
