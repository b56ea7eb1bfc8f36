/* What norms of whole rows and of rows that ranks share have in common: their operands, sums over a
 * row, and the gradients of weights, which are summed in slices of rows of fixed size. */
#ifndef OP_CPU_NORM_PARTS_H
#define OP_CPU_NORM_PARTS_H

#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

enum { NORM_SLICE = 128 }; /* rows per partial sum of dw, db */

/* Inside a loop over rows this is a local copy: its members then stay in registers, whatever is
 * written. */
typedef struct norm_view {
    tensor x, y, w, b, mean, rstd, dy, dx;
    int64_t width, groups; /* columns of a group, groups of a row */
    float eps, offset;     /* weight is w + offset */
    bool add;              /* to dx */
} norm_view;

static inline norm_view norm_open(const op_call *c, bool center) {
    norm_view v = {.x = c->in[0], .y = c->out[0], .w = c->in[1], .rstd = c->out[center ? 2 : 1]};
    v.dy = c->dout[0], v.dx = c->din[0], v.add = op_accumulates(c, 0);
    v.width = op_norm_width(c->attr, v.x.cols);
    v.groups = v.x.cols / v.width;
    v.eps = c->attr->norm.eps;
    v.offset = c->attr->norm.unit_offset ? 1.0f : 0.0f;
    if (center) v.mean = c->out[1], v.b = c->in[2];
    return v;
}

static inline float *stat(const tensor *t, int64_t i, int64_t group) {
    return (float *)t->data + i * t->ld + group;
}

V_INLINE vf weight_at(const norm_view *v, int64_t j, int64_t n) {
    return v->w.data ? get_upto(v->w.data, j, n, DT_F32) + v->offset : v_set1(1.0f);
}

/* sum (x - shift)^2, or sum x, over `cols` elements from number `at` on. */
V_INLINE float moment(const void *x, int64_t at, int64_t cols, float shift, bool square, dtype dt) {
    vf s = v_zero();
    int64_t whole = cols / VW * VW, j = 0;
    for (; j < whole; j += VW) {
        vf d = v_get(x, at + j, dt) - shift;
        s = square ? v_fma(d, d, s) : s + d;
    }
    float tail = 0.0f;
    for (; j < cols; j++) {
        float d = s_get(x, at + j, dt) - shift;
        tail += square ? d * d : d;
    }
    return v_sum(s) + tail;
}

static inline int64_t norm_slices(int64_t rows) {
    return (rows + NORM_SLICE - 1) / NORM_SLICE;
}

static inline void norm_add_slices(const op_call *c, int i, const float *partial, int64_t stride,
                                   int64_t slices) {
    float *to = c->din[i].data;
    bool add = op_accumulates(c, i);
    if (!to) return;
#pragma omp parallel for num_threads(loop_threads(c, c->din[i].cols *slices)) schedule(static)
    for (int64_t j = 0; j < c->din[i].cols; j++) {
        float s = 0.0f;
        for (int64_t k = 0; k < slices; k++) s += partial[k * stride + j];
        to[j] = add ? to[j] + s : s;
    }
}

#endif
