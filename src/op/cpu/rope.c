/* ROPE: rotates pairs of the first heads of each row, copies the rest; backward rotates back.
 * Bandwidth-bound; the table row is shared by all heads. */
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"

V_INLINE void rotate_halves(const tensor *x, const tensor *y, int64_t i, int64_t at, int64_t half,
                            const float *cosine, float sign, bool add, dtype dt) {
    const float *sine = cosine + half;
    FOR_VECTORS(half, j, n) {
        vf co = get_upto(cosine, j, n, DT_F32), si = sign * get_upto(sine, j, n, DT_F32);
        vf a = row_get(x, i, at + j, n, dt), b = row_get(x, i, at + half + j, n, dt);
        row_put(y, i, at + j, a * co - b * si, n, add, dt);
        row_put(y, i, at + half + j, b * co + a * si, n, add, dt);
    }
}

V_INLINE void rotate_neighbours(const tensor *x, const tensor *y, int64_t i, int64_t at,
                                int64_t half, const float *cosine, float sign, bool add, dtype dt) {
    int64_t from = i * x->ld + at, to = i * y->ld + at;
    for (int64_t j = 0; j < half; j++) {
        float co = cosine[j], si = sign * cosine[half + j];
        float a = s_get(x->data, from + 2 * j, dt), b = s_get(x->data, from + 2 * j + 1, dt);
        float ra = a * co - b * si, rb = b * co + a * si;
        if (add) ra += s_get(y->data, to + 2 * j, dt);
        if (add) rb += s_get(y->data, to + 2 * j + 1, dt);
        s_put(y->data, to + 2 * j, ra, dt);
        s_put(y->data, to + 2 * j + 1, rb, dt);
    }
}

V_INLINE void copy_part(const tensor *x, const tensor *y, int64_t i, int64_t at, int64_t cols,
                        bool add, dtype dt) {
    if (x->data == y->data && !add) return;
    FOR_VECTORS(cols, j, n) row_put(y, i, at + j, row_get(x, i, at + j, n, dt), n, add, dt);
}

V_INLINE void rotate_row(const op_call *c, const tensor *x, const tensor *y, int64_t i, float sign,
                         bool add, dtype dt) {
    const tensor *pos = &c->in[1], *table = &c->in[2];
    int64_t heads = c->attr->rope.heads, D = c->attr->rope.head_dim, R = c->attr->rope.rotary_dim;
    int32_t p = ((const int32_t *)pos->data)[i * pos->ld];
    const float *row = (const float *)table->data + p * table->ld;
    for (int64_t h = 0; h < heads; h++) {
        int64_t at = h * D + c->attr->rope.first;
        copy_part(x, y, i, h * D, at - h * D, add, dt);
        if (c->attr->rope.interleaved)
            rotate_neighbours(x, y, i, at, R / 2, row, sign, add, dt);
        else
            rotate_halves(x, y, i, at, R / 2, row, sign, add, dt);
        copy_part(x, y, i, at + R, (h + 1) * D - at - R, add, dt);
    }
    copy_part(x, y, i, heads * D, y->cols - heads * D, add, dt);
}

static void rotate_rows(const op_call *c, const tensor *x, const tensor *y, float sign, bool add) {
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) {
        row_prefetch(x, i + ROWS_AHEAD);
        if (y->data != x->data) row_prefetch(y, i + ROWS_AHEAD);
        WITH_DTYPE(y->dt, rotate_row, c, x, y, i, sign, add);
    }
}

static void rope_fwd(const op_call *c) {
    rotate_rows(c, &c->in[0], &c->out[0], 1.0f, false);
}
static void rope_bwd(const op_call *c) {
    if (c->din[0].data) rotate_rows(c, &c->dout[0], &c->din[0], -1.0f, op_accumulates(c, 0));
}

const op_impl CPU_FN(cpu_rope) = {rope_fwd, rope_bwd, NULL, NULL};
