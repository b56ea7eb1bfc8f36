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
                     bool accumulate, dtype dt) {
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) WITH_DTYPE(dt, add_row, a, b, y, i, accumulate);
}

/* The gradient of every input is the gradient of the output. */
static void add_backward(const op_call *c, int inputs, dtype dt) {
    for (int i = 0; i < inputs; i++) {
        bool accumulate = op_accumulates(c, i);
        if (c->din[i].data && (accumulate || c->din[i].data != c->dout[0].data))
            add_rows(c, &c->dout[0], NULL, &c->din[i], accumulate, dt);
    }
}

static void add_fwd_f32(const op_call *c) {
    add_rows(c, &c->in[0], &c->in[1], &c->out[0], false, DT_F32);
}
static void add_fwd_bf16(const op_call *c) {
    add_rows(c, &c->in[0], &c->in[1], &c->out[0], false, DT_BF16);
}
static void add_bwd_f32(const op_call *c) {
    add_backward(c, 2, DT_F32);
}
static void add_bwd_bf16(const op_call *c) {
    add_backward(c, 2, DT_BF16);
}
static void copy_fwd_f32(const op_call *c) {
    add_rows(c, &c->in[0], NULL, &c->out[0], false, DT_F32);
}
static void copy_fwd_bf16(const op_call *c) {
    add_rows(c, &c->in[0], NULL, &c->out[0], false, DT_BF16);
}
static void copy_bwd_f32(const op_call *c) {
    add_backward(c, 1, DT_F32);
}
static void copy_bwd_bf16(const op_call *c) {
    add_backward(c, 1, DT_BF16);
}

const op_impl CPU_FN(cpu_add_f32) = {add_fwd_f32, add_bwd_f32, NULL, NULL};
const op_impl CPU_FN(cpu_add_bf16) = {add_fwd_bf16, add_bwd_bf16, NULL, NULL};
const op_impl CPU_FN(cpu_copy_f32) = {copy_fwd_f32, copy_bwd_f32, NULL, NULL};
const op_impl CPU_FN(cpu_copy_bf16) = {copy_fwd_bf16, copy_bwd_bf16, NULL, NULL};
