/* ADD, COPY, SCALE, CONCAT, BIAS and FILL, element by element. */
#include "op/ref/ref.h"

/* y = a + b. */
static void add_fwd(const op_call *c) {
    const tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t i = 0; i < y->cols; i++)
            row_of(y, n)[i] = store((ACC)load(row_of(a, n)[i]) + (ACC)load(row_of(b, n)[i]));
    }
}

const op_impl REF_IMPL(ADD) = {add_fwd, NULL, NULL, NULL};

/* SCALE: y = c x + res; dx = c dy. x and y may be the same memory. COPY: the same with c = 1. */
static void scale_rows(const op_call *c, const tensor *from, const tensor *res, const tensor *to,
                       ACC by, bool add) {
    PARALLEL_FOR
    for (int64_t n = 0; n < to->rows; n++)
        for (int64_t i = 0; i < to->cols; i++) {
            ACC more = res && res->data ? (ACC)load(row_of(res, n)[i]) : 0;
            put(row_of(to, n) + i, by * (ACC)load(row_of(from, n)[i]) + more, add);
        }
}

static ACC factor_of(const op_call *c) {
    return c->kind == OP_SCALE ? (ACC)c->attr->scale.c : 1;
}

static void scale_fwd(const op_call *c) {
    scale_rows(c, &c->in[0], &c->in[1], &c->out[0], factor_of(c), false);
}

static void scale_bwd(const op_call *c) {
    if (!c->din[0].data) return;
    scale_rows(c, &c->dout[0], NULL, &c->din[0], factor_of(c), op_accumulates(c, 0));
}

const op_impl REF_IMPL(SCALE) = {scale_fwd, scale_bwd, NULL, NULL};
const op_impl REF_IMPL(COPY) = {scale_fwd, scale_bwd, NULL, NULL};

/* CONCAT: y = [a | b]; da and db are columns of dy. */
static tensor columns(const tensor *t, int64_t first, int64_t n) {
    tensor part = *t;
    part.data = row_of(t, 0) + first;
    part.cols = n;
    return part;
}

static void concat_fwd(const op_call *c) {
    for (int i = 0; i < 2; i++) {
        tensor part = columns(&c->out[0], i ? c->in[0].cols : 0, c->in[i].cols);
        scale_rows(c, &c->in[i], NULL, &part, 1, false);
    }
}

static void concat_bwd(const op_call *c) {
    for (int i = 0; i < 2; i++) {
        const tensor *dx = &c->din[i], *dy = &c->dout[0];
        if (!dx->data) continue;
        tensor part = columns(dy, i ? dy->cols - dx->cols : 0, dx->cols);
        scale_rows(c, &part, NULL, dx, 1, op_accumulates(c, i));
    }
}

const op_impl REF_IMPL(CONCAT) = {concat_fwd, concat_bwd, NULL, NULL};

/* y = x + bias; dbias = column sums of dy. x and y may be the same memory. */
static void bias_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    const REAL *bias = real_row_of(&c->in[1], 0);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        for (int64_t i = 0; i < y->cols; i++)
            row_of(y, n)[i] = store((ACC)load(row_of(x, n)[i]) + (ACC)bias[i]);
}

static void bias_bwd_weight(const op_call *c) {
    if (c->din[1].data) column_sums(c, &c->dout[0], &c->din[1], op_accumulates(c, 1));
}

const op_impl REF_IMPL(BIAS) = {bias_fwd, NULL, bias_bwd_weight, NULL};

/* y = c, or c * run->grad_scale. */
static void fill_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
    ACC v = (ACC)c->attr->fill.c * (c->attr->fill.scaled ? (ACC)c->run->grad_scale : 1);
    bool stored = dtype_bytes(y->dt) == sizeof(STORE); /* or a statistic, which is a REAL */
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t i = 0; i < y->cols; i++) {
            if (stored)
                row_of(y, n)[i] = store(v);
            else
                real_row_of(y, n)[i] = (REAL)v;
        }
    }
}

const op_impl REF_IMPL(FILL) = {fill_fwd, NULL, NULL, NULL};
