/* ADD and COPY. Bandwidth-bound. */
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
