/* Fetches memory that is needed soon, a few lines at a time, while something else is computed. On servers whose
 * last-level cache is far away, what packs or reads it would wait for each page anew. Many lines at once would wait for
 * each other: a core has a dozen or so under way. */
#ifndef OP_CPU_AHEAD_H
#define OP_CPU_AHEAD_H

#include "op/cpu/ops.h"
#include "op/cpu/simd.h"
#include "op/gemm.h"

enum { AHEAD_LINE = 64 };

typedef struct ahead {
    const char *row;
    int64_t rows;                /* still to come */
    int64_t row_bytes, ld_bytes; /* of a row, and from one to the next */
    int64_t at;                  /* byte of the row */
    int64_t each;                /* lines at a time */
} ahead;

/* All of it in `times` times. Rows are fetched from the beginning of a line on; where they begin at
 * different places of lines, one may lie on a line more than the first does. */
V_INLINE ahead ahead_of(const void *first, int64_t rows, int64_t row_bytes, int64_t ld_bytes,
                        int64_t times) {
    int64_t before = (int64_t)((uintptr_t)first % AHEAD_LINE);
    int64_t bytes = before + row_bytes + (ld_bytes % AHEAD_LINE ? AHEAD_LINE - 1 : 0);
    int64_t lines = rows > 0 ? rows * ((bytes + AHEAD_LINE - 1) / AHEAD_LINE) : 0;
    return (ahead){(const char *)first - before, rows, bytes, ld_bytes, 0,
                   (lines + times - 1) / times};
}

/* Rows [i0, i0 + rows) of A, columns [k0, k0 + k). */
V_INLINE ahead ahead_of_a(const gemm_args *g, int64_t i0, int64_t rows, int64_t k0, int64_t k,
                          int64_t times) {
    int64_t bytes = v_element_bytes(g->ab_dt), ld = g->lda * bytes;
    if (rows <= 0) return (ahead){0};
    const char *a = g->a;
    return g->a_trans ? ahead_of(a + k0 * ld + i0 * bytes, k, rows * bytes, ld, times)
                      : ahead_of(a + i0 * ld + k0 * bytes, rows, k * bytes, ld, times);
}

/* False when all was fetched. */
V_INLINE bool ahead_fetch(ahead *f) {
    for (int64_t i = 0; i < f->each && f->rows > 0; i++) {
        __builtin_prefetch(f->row + f->at, 0, 2);
        f->at += AHEAD_LINE;
        if (f->at < f->row_bytes) continue;
        f->at = 0, f->row += f->ld_bytes, f->rows--;
    }
    return f->rows > 0;
}

#endif
