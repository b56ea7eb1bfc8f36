/* rstd = 1/sqrt(mean(x^2) + eps) of each group of `width` columns; y = x rstd w, or x rstd (1 + w);
 * absent w = 1.
 *
 * Backward, with xn = x rstd and g = dy w, within a group:
 *   dx = rstd (g - xn mean(g xn));  dw = sum over rows and groups of dy xn */
#include "op/ref/ref.h"

static ACC gain(const op_call *c, int64_t i) {
    if (!c->in[1].data) return 1.0;
    return (c->attr->norm.unit_offset ? 1.0 : 0.0) + (ACC)real_row_of(&c->in[1], 0)[i];
}

static void rmsnorm_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0], *rstd = &c->out[1];
    int64_t width = op_norm_width(c->attr, x->cols), groups = x->cols / width;
    int threads = ref_threads(c);
    PARALLEL_FOR_2
    for (int64_t n = 0; n < x->rows; n++) {
        for (int64_t h = 0; h < groups; h++) {
            const STORE *xr = row_of(x, n) + h * width;
            STORE *yr = row_of(y, n) + h * width;
            ACC r = 1 / sqrt(dot(xr, xr, width) / (ACC)width + (ACC)c->attr->norm.eps);
            real_row_of(rstd, n)[h] = (REAL)r;
            for (int64_t i = 0; i < width; i++) yr[i] = store((ACC)load(xr[i]) * r * gain(c, i));
        }
    }
}

static void rmsnorm_dx(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dx = &c->din[0];
    int64_t width = op_norm_width(c->attr, x->cols), groups = x->cols / width;
    bool add = op_accumulates(c, 0);
    int threads = ref_threads(c);
    PARALLEL_FOR_2
    for (int64_t n = 0; n < x->rows; n++) {
        for (int64_t h = 0; h < groups; h++) {
            ACC r = real_row_of(&c->out[1], n)[h], g_xn = 0;
            const STORE *xr = row_of(x, n) + h * width, *gr = row_of(dy, n) + h * width;
            for (int64_t i = 0; i < width; i++)
                g_xn += (ACC)load(gr[i]) * gain(c, i) * (ACC)load(xr[i]) * r;
            g_xn /= (ACC)width;
            for (int64_t i = 0; i < width; i++) {
                ACC g = (ACC)load(gr[i]) * gain(c, i);
                put(row_of(dx, n) + h * width + i, r * (g - (ACC)load(xr[i]) * r * g_xn), add);
            }
        }
    }
}

static void rmsnorm_dw(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dw = &c->din[1];
    int64_t width = op_norm_width(c->attr, x->cols), groups = x->cols / width;
    bool add = op_accumulates(c, 1);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(width); b++) {
        int64_t first = b * BLOCK, len = block_len(width, first);
        ACC acc[BLOCK] = {0};
        for (int64_t k = 0; k < x->rows * groups; k++) {
            int64_t n = k / groups, at = k % groups * width + first;
            ACC r = real_row_of(&c->out[1], n)[k % groups];
            const STORE *xr = row_of(x, n) + at, *gr = row_of(dy, n) + at;
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
