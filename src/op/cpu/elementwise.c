/* ADD, COPY, SCALE and BIAS: y = a + b, x, c x + res, and x + a row. Bandwidth-bound. */
#include "op/cpu/column_sums.h"
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

/* Row i of y (+)= a (+ b); b may be NULL, y may be b. */
V_INLINE void add_row(const tensor *a, const tensor *b, const tensor *y, int64_t i, bool accumulate,
                      dtype dt) {
    FOR_VECTORS(y->cols, j, n) {
        vf v = row_get(a, i, j, n, dt);
        if (b) v += row_get(b, i, j, n, dt);
        row_put(y, i, j, v, n, accumulate, dt);
    }
}

static void add_rows(const op_call *c, const tensor *a, const tensor *b, const tensor *y,
                     bool accumulate) {
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) WITH_DTYPE(y->dt, add_row, a, b, y, i, accumulate);
}

static void add_fwd(const op_call *c) {
    add_rows(c, &c->in[0], &c->in[1], &c->out[0], false);
}
static void copy_fwd(const op_call *c) {
    add_rows(c, &c->in[0], NULL, &c->out[0], false);
}
static void copy_bwd(const op_call *c) {
    if (c->din[0].data) add_rows(c, &c->dout[0], NULL, &c->din[0], op_accumulates(c, 0));
}

const op_impl CPU_FN(cpu_add) = {add_fwd, NULL, NULL, NULL};
const op_impl CPU_FN(cpu_copy) = {copy_fwd, copy_bwd, NULL, NULL};

/* ---- SCALE ---- */

V_INLINE void scale_row(const tensor *x, const tensor *res, const tensor *y, int64_t i, float by,
                        bool add, dtype dt) {
    FOR_VECTORS(y->cols, j, n) {
        vf v = row_get(x, i, j, n, dt) * by;
        if (res) v += row_get(res, i, j, n, dt);
        row_put(y, i, j, v, n, add, dt);
    }
}

/* res may be NULL. */
static void scale_rows(const op_call *c, const tensor *x, const tensor *res, const tensor *y,
                       bool add) {
    float by = c->attr->scale.c;
    dtype dt = y->dt;
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) WITH_DTYPE(dt, scale_row, x, res, y, i, by, add);
}

static void scale_fwd(const op_call *c) {
    const tensor *res = c->in[1].data ? &c->in[1] : NULL;
    scale_rows(c, &c->in[0], res, &c->out[0], false);
}
static void scale_bwd(const op_call *c) {
    if (c->din[0].data) scale_rows(c, &c->dout[0], NULL, &c->din[0], op_accumulates(c, 0));
}

const op_impl CPU_FN(cpu_scale) = {scale_fwd, scale_bwd, NULL, NULL};

/* ---- BIAS ---- */

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
