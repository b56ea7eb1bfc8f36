/* What norms of whole rows and of rows that ranks share have in common: their operands, sums over a
 * row, and the gradients of weights, which are summed in slices of rows of fixed size. */
#ifndef OP_CPU_NORM_PARTS_H
#define OP_CPU_NORM_PARTS_H

#include <string.h>

#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

enum { NORM_SLICE = 128 }; /* rows per partial sum of dw, db */

/* Inside a loop over rows this is a local copy: its members then stay in registers, whatever is
 * written. */
typedef struct norm_view {
    tensor x, y, w, b, res, mean, rstd, dy, dx;
    int64_t width, groups; /* columns of a group, groups of a row */
    float eps, offset;     /* weight is w + offset */
    bool add;              /* to dx */
} norm_view;

static inline norm_view norm_open(const op_call *c, bool center) {
    norm_view v = {.x = c->in[0], .y = c->out[0], .w = c->in[1], .rstd = c->out[center ? 2 : 1]};
    v.res = c->in[center ? 3 : 2];
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

/* Asks early for what backward reads and writes of a row of heads. */
V_INLINE void norm_fetch_back(const norm_view *v, int64_t i) {
    row_prefetch(&v->x, i + ROWS_AHEAD);
    row_prefetch(&v->dy, i + ROWS_AHEAD);
    row_prefetch(&v->dx, i + ROWS_AHEAD);
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

/* ---- gradients of weights ---- */

/* Where dw and db are summed: a partial sum of each per slice of rows. */
typedef struct norm_sums {
    float *partial; /* [slices, 2, width] */
    int64_t rows, width, slices;
    bool want_w, want_b;
} norm_sums;

typedef struct norm_slice {
    int64_t first, end;   /* rows */
    float *sum_w, *sum_b; /* [width], or NULL */
} norm_slice;

static inline int64_t norm_slices(int64_t rows) {
    return (rows + NORM_SLICE - 1) / NORM_SLICE;
}

static inline int64_t norm_sums_bytes(int64_t rows, int64_t width) {
    return norm_slices(rows) * 2 * width * (int64_t)sizeof(float);
}

static inline norm_sums norm_sums_open(const op_call *c, const norm_view *v, bool center,
                                       void *partial) {
    return (norm_sums){.partial = partial,
                       .rows = v->x.rows,
                       .width = v->width,
                       .slices = norm_slices(v->x.rows),
                       .want_w = c->din[1].data,
                       .want_b = center && c->din[2].data};
}

/* Slice number `i`; its sums are 0. */
static inline norm_slice norm_slice_open(const norm_sums *s, int64_t i) {
    int64_t end = (i + 1) * NORM_SLICE;
    float *w = s->partial + 2 * i * s->width, *b = w + s->width;
    if (s->want_w) memset(w, 0, (size_t)s->width * sizeof *w);
    if (s->want_b) memset(b, 0, (size_t)s->width * sizeof *b);
    return (norm_slice){.first = i * NORM_SLICE,
                        .end = end < s->rows ? end : s->rows,
                        .sum_w = s->want_w ? w : NULL,
                        .sum_b = s->want_b ? b : NULL};
}

/* din[i] from part `i` - 1 of every slice, in order. */
static inline void norm_join_slices(const op_call *c, const norm_sums *s, int i) {
    float *to = c->din[i].data;
    const float *from = s->partial + (i - 1) * s->width;
    bool add = op_accumulates(c, i);
#pragma omp parallel for num_threads(loop_threads(c, s->width * s->slices)) schedule(static)
    for (int64_t j = 0; j < s->width; j++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < s->slices; k++) sum += from[2 * k * s->width + j];
        to[j] = add ? to[j] + sum : sum;
    }
}

static inline void norm_sums_join(const op_call *c, const norm_sums *s) {
    if (s->want_w) norm_join_slices(c, s, 1);
    if (s->want_b) norm_join_slices(c, s, 2);
}

#endif
