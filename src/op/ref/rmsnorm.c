/* rstd = 1/sqrt(mean(x^2) + eps); y = x rstd w, or x rstd (1 + w).
 *
 * Backward, with xn = x rstd and g = dy w:
 *   dx = rstd (g - xn mean(g xn));  dw = sum_n dy xn */
#include "op/ref/ref.h"

static ACC gain(const op_call *c, int64_t i) {
    return (c->attr->norm.unit_offset ? 1.0 : 0.0) + (ACC)real_row_of(&c->in[1], 0)[i];
}

static void rmsnorm_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0], *rstd = &c->out[1];
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        ACC mean_sq = dot(row_of(x, n), row_of(x, n), x->cols) / (ACC)x->cols;
        ACC r = 1 / sqrt(mean_sq + (ACC)c->attr->norm.eps);
        *real_row_of(rstd, n) = (REAL)r;
        for (int64_t i = 0; i < x->cols; i++)
            row_of(y, n)[i] = store((ACC)load(row_of(x, n)[i]) * r * gain(c, i));
    }
}

static void rmsnorm_dx(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dx = &c->din[0];
    bool add = op_accumulates(c, 0);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        ACC r = *real_row_of(&c->out[1], n), g_xn = 0;
        const STORE *xr = row_of(x, n), *gr = row_of(dy, n);
        for (int64_t i = 0; i < x->cols; i++)
            g_xn += (ACC)load(gr[i]) * gain(c, i) * (ACC)load(xr[i]) * r;
        g_xn /= (ACC)x->cols;
        for (int64_t i = 0; i < x->cols; i++) {
            ACC g = (ACC)load(gr[i]) * gain(c, i);
            put(row_of(dx, n) + i, r * (g - (ACC)load(xr[i]) * r * g_xn), add);
        }
    }
}

static void rmsnorm_dw(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dw = &c->din[1];
    bool add = op_accumulates(c, 1);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(x->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(x->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t n = 0; n < x->rows; n++) {
            ACC r = *real_row_of(&c->out[1], n);
            const STORE *xr = row_of(x, n) + first, *gr = row_of(dy, n) + first;
            for (int64_t i = 0; i < len; i++) acc[i] += (ACC)load(gr[i]) * (ACC)load(xr[i]) * r;
        }
        for (int64_t i = 0; i < len; i++) put_real(real_row_of(dw, 0) + first + i, acc[i], add);
    }
}

static void rmsnorm_bwd(const op_call *c) {
    if (c->din[0].data) rmsnorm_dx(c);
    if (c->din[1].data) rmsnorm_dw(c);
}

const op_impl REF_IMPL(RMSNORM) = {rmsnorm_fwd, rmsnorm_bwd, NULL, NULL};
