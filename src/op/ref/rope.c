/* Rotary positions. A pair (x1, x2) of a head turns by the angle of its position:
 *   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
 * Backward is the rotation by the opposite angle. Both elements of a pair are read before either is
 * written, so x and y may be the same memory. */
#include "op/ref/ref.h"

static void rotate_head(const op_attr *at, const REAL *cs, ACC sign, const STORE *x, STORE *y,
                        bool add) {
    int half = at->rope.rotary_dim / 2, first = at->rope.first;
    for (int i = 0; i < half; i++) {
        int i1 = first + (at->rope.interleaved ? 2 * i : i);
        int i2 = first + (at->rope.interleaved ? 2 * i + 1 : i + half);
        ACC x1 = load(x[i1]), x2 = load(x[i2]);
        ACC co = cs[i], si = sign * (ACC)cs[half + i];
        put(y + i1, x1 * co - x2 * si, add);
        put(y + i2, x2 * co + x1 * si, add);
    }
    for (int i = 0; i < first; i++) put(y + i, load(x[i]), add);
    for (int i = first + 2 * half; i < at->rope.head_dim; i++) put(y + i, load(x[i]), add);
}

static void rotate(const op_call *c, const tensor *x, const tensor *y, ACC sign, bool add) {
    const op_attr *at = c->attr;
    const tensor *table = &c->in[2];
    int64_t rotated = (int64_t)at->rope.heads * at->rope.head_dim;
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        int32_t pos = int_at(&c->in[1], n);
        CHECK(pos >= 0 && pos < table->rows, "rope: position %d is outside the table of %lld rows",
              pos, (long long)table->rows);
        for (int64_t h = 0; h < rotated; h += at->rope.head_dim)
            rotate_head(at, real_row_of(table, pos), sign, row_of(x, n) + h, row_of(y, n) + h, add);
        for (int64_t i = rotated; i < x->cols; i++)
            put(row_of(y, n) + i, load(row_of(x, n)[i]), add);
    }
}

static void rope_fwd(const op_call *c) {
    rotate(c, &c->in[0], &c->out[0], 1, false);
}

static void rope_bwd(const op_call *c) {
    if (c->din[0].data) rotate(c, &c->dout[0], &c->din[0], -1, op_accumulates(c, 0));
}

const op_impl REF_IMPL(ROPE) = {rope_fwd, rope_bwd, NULL, NULL};
