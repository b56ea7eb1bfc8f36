/* y = (x - mean) rstd w + b, rstd = 1/sqrt(var + eps), biased variance, in each group of `width`
 * columns; absent w = 1, absent b = 0.
 *
 * Backward, with xn = (x - mean) rstd and g = dy w, within a group:
 *   dx = rstd (g - mean(g) - xn mean(g xn));  dw = sum over rows and groups of dy xn;  db of dy */
#include "op/ref/ref.h"

static ACC gain(const op_call *c, int64_t i) {
    if (!c->in[1].data) return 1.0;
    return (c->attr->norm.unit_offset ? 1.0 : 0.0) + (ACC)real_row_of(&c->in[1], 0)[i];
}

static void layernorm_group(const op_call *c, int64_t n, int64_t h, int64_t width) {
    const STORE *xr = row_of(&c->in[0], n) + h * width;
    STORE *yr = row_of(&c->out[0], n) + h * width;
    ACC mean = 0, var = 0;
    for (int64_t i = 0; i < width; i++) mean += (ACC)load(xr[i]);
    mean /= (ACC)width;
    for (int64_t i = 0; i < width; i++) {
        ACC d = (ACC)load(xr[i]) - mean;
        var += d * d;
    }
    ACC r = 1 / sqrt(var / (ACC)width + (ACC)c->attr->norm.eps);
    real_row_of(&c->out[1], n)[h] = (REAL)mean;
    real_row_of(&c->out[2], n)[h] = (REAL)r;
    for (int64_t i = 0; i < width; i++) {
        ACC b = c->in[2].data ? (ACC)real_row_of(&c->in[2], 0)[i] : 0.0;
        yr[i] = store(((ACC)load(xr[i]) - mean) * r * gain(c, i) + b);
    }
}

static void layernorm_fwd(const op_call *c) {
    const tensor *x = &c->in[0];
    int64_t width = op_norm_width(c->attr, x->cols), groups = x->cols / width;
    int threads = ref_threads(c);
    PARALLEL_FOR_2
    for (int64_t n = 0; n < x->rows; n++)
        for (int64_t h = 0; h < groups; h++) layernorm_group(c, n, h, width);
}

static void layernorm_dx(const op_call *c, int64_t n, int64_t h, int64_t width) {
    ACC mean = real_row_of(&c->out[1], n)[h], r = real_row_of(&c->out[2], n)[h];
    ACC g_mean = 0, g_xn = 0;
    const STORE *xr = row_of(&c->in[0], n) + h * width, *gr = row_of(&c->dout[0], n) + h * width;
    for (int64_t i = 0; i < width; i++) {
        ACC g = (ACC)load(gr[i]) * gain(c, i);
        g_mean += g;
        g_xn += g * ((ACC)load(xr[i]) - mean) * r;
    }
    g_mean /= (ACC)width;
    g_xn /= (ACC)width;
    for (int64_t i = 0; i < width; i++) {
        ACC g = (ACC)load(gr[i]) * gain(c, i);
        ACC xn = ((ACC)load(xr[i]) - mean) * r;
        put(row_of(&c->din[0], n) + h * width + i, r * (g - g_mean - xn * g_xn),
            op_accumulates(c, 0));
    }
}

/* Weight gradients of some columns of the groups. */
static void layernorm_dw_db(const op_call *c, int64_t width, int64_t first, int64_t len) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dw = &c->din[1], *db = &c->din[2];
    ACC sum_w[BLOCK] = {0}, sum_b[BLOCK] = {0};
    int64_t groups = x->cols / width;
    for (int64_t k = 0; k < x->rows * groups; k++) {
        int64_t n = k / groups, h = k % groups, at = h * width + first;
        ACC mean = real_row_of(&c->out[1], n)[h], r = real_row_of(&c->out[2], n)[h];
        const STORE *xr = row_of(x, n) + at, *gr = row_of(dy, n) + at;
        for (int64_t i = 0; i < len; i++) {
            sum_w[i] += (ACC)load(gr[i]) * ((ACC)load(xr[i]) - mean) * r;
            sum_b[i] += (ACC)load(gr[i]);
        }
    }
    for (int64_t i = 0; i < len; i++) {
        if (dw->data) put_real(real_row_of(dw, 0) + first + i, sum_w[i], op_accumulates(c, 1));
        if (db->data) put_real(real_row_of(db, 0) + first + i, sum_b[i], op_accumulates(c, 2));
    }
}

static void layernorm_bwd(const op_call *c) {
    const tensor *x = &c->in[0];
    int64_t width = op_norm_width(c->attr, x->cols), groups = x->cols / width;
    int threads = ref_threads(c);
    if (c->din[0].data) {
        PARALLEL_FOR_2
        for (int64_t n = 0; n < x->rows; n++)
            for (int64_t h = 0; h < groups; h++) layernorm_dx(c, n, h, width);
    }
    if (!c->din[1].data && !c->din[2].data) return;
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(width); b++)
        layernorm_dw_db(c, width, b * BLOCK, block_len(width, b * BLOCK));
}

const op_impl REF_IMPL(LAYERNORM) = {layernorm_fwd, layernorm_bwd, NULL, NULL};
