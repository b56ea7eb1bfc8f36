/* SCALE: y = c x; the gradient is scaled alike. Bandwidth-bound. */
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

V_INLINE void scale_row(const tensor *x, const tensor *y, int64_t i, float by, bool add, dtype dt) {
    FOR_VECTORS(y->cols, j, n) row_put(y, i, j, row_get(x, i, j, n, dt) * by, n, add, dt);
}

static void scale_rows(const op_call *c, const tensor *x, const tensor *y, bool add) {
    float by = c->attr->scale.c;
    dtype dt = y->dt;
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) WITH_DTYPE(dt, scale_row, x, y, i, by, add);
}

static void scale_fwd(const op_call *c) {
    scale_rows(c, &c->in[0], &c->out[0], false);
}
static void scale_bwd(const op_call *c) {
    if (c->din[0].data) scale_rows(c, &c->dout[0], &c->din[0], op_accumulates(c, 0));
}

const op_impl CPU_FN(cpu_scale) = {scale_fwd, scale_bwd, NULL, NULL};
