/* TAKE_ROWS: rows of an activation. Bandwidth-bound. The gradient is partitioned by rows of x: a
 * thread adds up what the places of a row have, in their order, and rounds once. */
#include "op/take_rows.h"

#include <string.h>

#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

static void take_rows_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    int64_t element = v_element_bytes(y->dt);
    size_t bytes = (size_t)(y->cols * element);
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t n = 0; n < y->rows; n++) {
        int64_t row = take_row(c, n);
        char *to = (char *)y->data + n * y->ld * element;
        if (row < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, (const char *)x->data + row * x->ld * element, bytes);
    }
}

V_INLINE void give_row(const op_call *c, take_places p, int64_t row, bool add, dtype dt) {
    const tensor *dy = &c->dout[0], *dx = &c->din[0];
    if (add && p.first[row] < 0) return;
    FOR_VECTORS(dx->cols, j, left) {
        vf sum = v_zero();
        for (int64_t n = p.first[row]; n >= 0; n = p.next[n]) sum += row_get(dy, n, j, left, dt);
        row_put(dx, row, j, sum, left, add, dt);
    }
}

static void take_rows_bwd(const op_call *c) {
    const tensor *dx = &c->din[0];
    if (!dx->data) return;
    bool add = op_accumulates(c, 0);
    take_places p = take_find_places(c);
    int64_t elements = (dx->rows + c->dout[0].rows) * dx->cols;
#pragma omp parallel for num_threads(loop_threads(c, elements)) schedule(static)
    for (int64_t row = 0; row < dx->rows; row++) WITH_DTYPE(dx->dt, give_row, c, p, row, add);
}

static void take_rows_workspace(const op_infer *io, int64_t ws[3]) {
    ws[1] = take_places_bytes(io);
}

const op_impl CPU_FN(cpu_take_rows) = {take_rows_fwd, take_rows_bwd, NULL, take_rows_workspace};
