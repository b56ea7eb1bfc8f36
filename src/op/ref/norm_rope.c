/* NORM_ROPE: of each head
 *   n = x rstd w, rstd = 1/sqrt(mean(x^2) + eps); y = n, whose pairs turn by the angle of the position
 *
 * Backward: dy turns back and is dn; then as in RMSNORM, with g = dn w and xn = x rstd:
 *   dx = rstd (g - xn mean(g xn));  dw = sum over rows and heads of dn xn */
#include "op/ref/ref.h"

static ACC gain(const op_call *c, int64_t i) {
    if (!c->in[1].data) return 1;
    return (c->attr->norm_rope.unit_offset ? 1 : 0) + (ACC)real_row_of(&c->in[1], 0)[i];
}

/* The angles of row n: cosines, then sines. */
static const REAL *angles_of(const op_call *c, int64_t n) {
    int32_t pos = int_at(&c->in[2], n);
    CHECK(pos >= 0 && pos < c->in[3].rows,
          "norm_rope: position %d is outside the table of %lld rows", pos,
          (long long)c->in[3].rows);
    return real_row_of(&c->in[3], pos);
}

/* The pairs of a head turn, by the opposite angle if sign is -1. */
static void turn(const op_attr *at, const REAL *angles, ACC sign, ACC *v) {
    int half = at->norm_rope.rotary_dim / 2, first = at->norm_rope.first;
    for (int i = 0; i < half; i++) {
        int i1 = first + (at->norm_rope.interleaved ? 2 * i : i);
        int i2 = first + (at->norm_rope.interleaved ? 2 * i + 1 : i + half);
        ACC a = v[i1], b = v[i2], co = angles[i], si = sign * (ACC)angles[half + i];
        v[i1] = a * co - b * si;
        v[i2] = b * co + a * si;
    }
}

static void forward_head(const op_call *c, int64_t n, int64_t h) {
    int64_t width = c->attr->norm_rope.head_dim;
    const STORE *x = row_of(&c->in[0], n) + h * width;
    STORE *y = row_of(&c->out[0], n) + h * width;
    ACC v[OP_MAX_HEAD_DIM];
    ACC r = 1 / sqrt(dot(x, x, width) / (ACC)width + (ACC)c->attr->norm_rope.eps);
    real_row_of(&c->out[1], n)[h] = (REAL)r;
    for (int64_t i = 0; i < width; i++) v[i] = (ACC)load(x[i]) * r * gain(c, i);
    turn(c->attr, angles_of(c, n), 1, v);
    for (int64_t i = 0; i < width; i++) y[i] = store(v[i]);
}

static void forward(const op_call *c) {
    int64_t heads = c->in[0].cols / c->attr->norm_rope.head_dim;
    PARALLEL_FOR_2
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < heads; h++) forward_head(c, n, h);
}

/* dn of a head. */
static void turn_back(const op_call *c, int64_t n, int64_t h, ACC *v) {
    int64_t width = c->attr->norm_rope.head_dim;
    const STORE *dy = row_of(&c->dout[0], n) + h * width;
    for (int64_t i = 0; i < width; i++) v[i] = (ACC)load(dy[i]);
    turn(c->attr, angles_of(c, n), -1, v);
}

static void dx_of_head(const op_call *c, int64_t n, int64_t h) {
    int64_t width = c->attr->norm_rope.head_dim;
    const STORE *x = row_of(&c->in[0], n) + h * width;
    ACC v[OP_MAX_HEAD_DIM], r = real_row_of(&c->out[1], n)[h], sum = 0;
    turn_back(c, n, h, v);
    for (int64_t i = 0; i < width; i++) v[i] *= gain(c, i), sum += v[i] * (ACC)load(x[i]) * r;
    for (int64_t i = 0; i < width; i++)
        put(row_of(&c->din[0], n) + h * width + i,
            r * (v[i] - (ACC)load(x[i]) * r * sum / (ACC)width), op_accumulates(c, 0));
}

static void weight_gradient(const op_call *c) {
    int64_t width = c->attr->norm_rope.head_dim, heads = c->in[0].cols / width;
    ACC sum[OP_MAX_HEAD_DIM] = {0}, v[OP_MAX_HEAD_DIM];
    for (int64_t k = 0; k < c->in[0].rows * heads; k++) {
        int64_t n = k / heads, h = k % heads;
        const STORE *x = row_of(&c->in[0], n) + h * width;
        turn_back(c, n, h, v);
        for (int64_t i = 0; i < width; i++)
            sum[i] += v[i] * (ACC)load(x[i]) * (ACC)real_row_of(&c->out[1], n)[h];
    }
    for (int64_t i = 0; i < width; i++)
        put_real(real_row_of(&c->din[1], 0) + i, sum[i], op_accumulates(c, 1));
}

static void backward(const op_call *c) {
    int64_t heads = c->in[0].cols / c->attr->norm_rope.head_dim;
    PARALLEL_FOR_2
    for (int64_t n = 0; n < (c->din[0].data ? c->in[0].rows : 0); n++)
        for (int64_t h = 0; h < heads; h++) dx_of_head(c, n, h);
    if (c->din[1].data) weight_gradient(c);
}

const op_impl REF_IMPL(NORM_ROPE) = {forward, backward, NULL, NULL};
