/* y = (x - mean) rstd w + b, rstd = 1/sqrt(var + eps), biased variance; absent w = 1, absent b = 0.
 *
 * Backward, with xn = (x - mean) rstd and g = dy w:
 *   dx = rstd (g - mean(g) - xn mean(g xn));  dw = sum_n dy xn;  db = sum_n dy */
#include "op/ref/ref.h"

static ACC gain(const op_call *c, int64_t i) {
    ACC w = c->in[1].data ? (ACC)real_row_of(&c->in[1], 0)[i] : 1.0;
    return c->attr->norm.unit_offset ? 1.0 + w : w;
}

static void layernorm_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        const STORE *xr = row_of(x, n);
        ACC mean = 0, var = 0;
        for (int64_t i = 0; i < x->cols; i++) mean += (ACC)load(xr[i]);
        mean /= (ACC)x->cols;
        for (int64_t i = 0; i < x->cols; i++) {
            ACC d = (ACC)load(xr[i]) - mean;
            var += d * d;
        }
        ACC r = 1 / sqrt(var / (ACC)x->cols + (ACC)c->attr->norm.eps);
        *real_row_of(&c->out[1], n) = (REAL)mean;
        *real_row_of(&c->out[2], n) = (REAL)r;
        for (int64_t i = 0; i < x->cols; i++) {
            ACC b = c->in[2].data ? (ACC)real_row_of(&c->in[2], 0)[i] : 0.0;
            row_of(y, n)[i] = store(((ACC)load(xr[i]) - mean) * r * gain(c, i) + b);
        }
    }
}

static void layernorm_dx(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dx = &c->din[0];
    bool add = op_accumulates(c, 0);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        ACC mean = *real_row_of(&c->out[1], n), r = *real_row_of(&c->out[2], n);
        ACC g_mean = 0, g_xn = 0;
        const STORE *xr = row_of(x, n), *gr = row_of(dy, n);
        for (int64_t i = 0; i < x->cols; i++) {
            ACC g = (ACC)load(gr[i]) * gain(c, i);
            g_mean += g;
            g_xn += g * ((ACC)load(xr[i]) - mean) * r;
        }
        g_mean /= (ACC)x->cols;
        g_xn /= (ACC)x->cols;
        for (int64_t i = 0; i < x->cols; i++) {
            ACC g = (ACC)load(gr[i]) * gain(c, i);
            ACC xn = ((ACC)load(xr[i]) - mean) * r;
            put(row_of(dx, n) + i, r * (g - g_mean - xn * g_xn), add);
        }
    }
}

/* Weight gradients of one block of columns. */
static void layernorm_dw_db(const op_call *c, int64_t first, int64_t len) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dw = &c->din[1], *db = &c->din[2];
    ACC sum_w[BLOCK] = {0}, sum_b[BLOCK] = {0};
    for (int64_t n = 0; n < x->rows; n++) {
        ACC mean = *real_row_of(&c->out[1], n), r = *real_row_of(&c->out[2], n);
        const STORE *xr = row_of(x, n) + first, *gr = row_of(dy, n) + first;
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
    if (c->din[0].data) layernorm_dx(c);
    if (!c->din[1].data && !c->din[2].data) return;
    int threads = ref_threads(c);
    int64_t cols = c->in[0].cols;
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(cols); b++)
        layernorm_dw_db(c, b * BLOCK, block_len(cols, b * BLOCK));
}

const op_impl REF_IMPL(LAYERNORM) = {layernorm_fwd, layernorm_bwd, NULL, NULL};
