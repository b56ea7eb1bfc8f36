/* BIAS: one row added to all others. Bandwidth-bound. */
#include "op/cpu/column_sums.h"
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

V_INLINE void bias_row(const op_call *c, int64_t i, dtype dt) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    FOR_VECTORS(y->cols, j, n) {
        vf v = row_get(x, i, j, n, dt) + get_upto(c->in[1].data, j, n, DT_F32);
        row_put(y, i, j, v, n, false, dt);
    }
}

static void bias_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) WITH_DTYPE(y->dt, bias_row, c, i);
}

static void bias_bwd_weight(const op_call *c) {
    if (c->din[1].data) column_sums(c, 1);
}

static void bias_workspace(const op_infer *io, int64_t ws[3]) {
    ws[2] = column_sums_bytes(io->in[0].rows, io->in[0].cols);
}

const op_impl CPU_FN(cpu_bias) = {bias_fwd, NULL, bias_bwd_weight, bias_workspace};
