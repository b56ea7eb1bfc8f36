/* The gradient of a bias: sums of the columns of dy, in fixed slices of rows, then the slices in
 * order. */
#ifndef OP_CPU_COLUMN_SUMS_H
#define OP_CPU_COLUMN_SUMS_H

#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

enum { COLUMN_SLICE = 512 }; /* rows of dy per partial sum */

static inline int64_t column_slices(int64_t rows) {
    return (rows + COLUMN_SLICE - 1) / COLUMN_SLICE;
}

/* Workspace for sums of [rows, cols]. */
static inline int64_t column_sums_bytes(int64_t rows, int64_t cols) {
    return column_slices(rows) * cols * (int64_t)sizeof(float);
}

/* sum[:] = column sums of slice s of dy. */
V_INLINE void sum_slice(float *sum, const tensor *dy, int64_t s, dtype dt) {
    int64_t end = (s + 1) * COLUMN_SLICE < dy->rows ? (s + 1) * COLUMN_SLICE : dy->rows;
    for (int64_t j = 0; j < dy->cols; j++) sum[j] = 0.0f;
    for (int64_t i = s * COLUMN_SLICE; i < end; i++) {
        int64_t j = 0, row = i * dy->ld;
        for (; j + VW <= dy->cols; j += VW)
            v_store(sum + j, v_load(sum + j) + v_get(dy->data, row + j, dt));
        for (; j < dy->cols; j++) sum[j] += s_get(dy->data, row + j, dt);
    }
}

/* din[input], which is the bias, from dout[0]; partial sums go through the workspace. */
static inline void column_sums(const op_call *c, int input) {
    const tensor *dy = &c->dout[0];
    float *partial = c->ws, *db = c->din[input].data;
    int64_t slices = column_slices(dy->rows), n = dy->cols;
    bool add = op_accumulates(c, input);
#pragma omp parallel num_threads(loop_threads(c, dy->rows *n))
    {
#pragma omp for schedule(static)
        for (int64_t s = 0; s < slices; s++) WITH_DTYPE(dy->dt, sum_slice, partial + s * n, dy, s);
#pragma omp for schedule(static)
        for (int64_t j = 0; j < n; j++) {
            float v = 0.0f;
            for (int64_t s = 0; s < slices; s++) v += partial[s * n + j];
            db[j] = add ? db[j] + v : v;
        }
    }
}

#endif
