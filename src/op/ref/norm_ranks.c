/* RMSNORM_RANKS and LAYERNORM_RANKS: norms of rows whose columns are shared by ranks, one body:
 * xhat = (x - mean) rstd, where mean is 0 for the first.
 *
 * Sums over all columns are over all ranks: of x and x^2, of which each of `copies` ranks with the
 * same columns gives a part; in the backward of g = dy w and g xhat, of which their dy are parts
 * already. Then the means are shared out again, since their dx are summed:
 *   dx = rstd (g - [mean(g)] / copies - xhat mean(g xhat) / copies)
 *
 * What travels is double: the variance is the difference of two sums. */
#include "op/collective.h"
#include "op/ref/ref.h"

/* Of a row: squares and products first, then, for LAYERNORM_RANKS, what is summed plainly. */
static double *sums_of(const op_call *c, int64_t n, bool center) {
    return (double *)c->ws + n * (center ? 2 : 1);
}

static void sum_over_ranks(const op_call *c, bool center) {
    op_kind kind = center ? OP_LAYERNORM_RANKS : OP_RMSNORM_RANKS;
    op_collect(c, kind, true, &c->in[0], c->ws, c->ws);
}

static ACC gain(const op_call *c, int64_t i) {
    if (!c->in[1].data) return 1.0;
    return (c->attr->norm.unit_offset ? 1.0 : 0.0) + (ACC)real_row_of(&c->in[1], 0)[i];
}

static ACC bias(const op_call *c, int64_t i, bool center) {
    return center && c->in[2].data ? (ACC)real_row_of(&c->in[2], 0)[i] : 0.0;
}

/* What the forward keeps of a row. */
typedef struct row_stats {
    ACC mean, rstd;
} row_stats;

static row_stats stats_of(const op_call *c, int64_t n, bool center) {
    return (row_stats){.mean = center ? *real_row_of(&c->out[1], n) : 0.0,
                       .rstd = *real_row_of(&c->out[center ? 2 : 1], n)};
}

/* ---- forward ---- */

static void finish_row(const op_call *c, int64_t n, bool center) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    const double *sums = sums_of(c, n, center);
    ACC all = (ACC)c->attr->norm.all_cols, mean = center ? sums[1] / all : 0.0;
    ACC var = fmax(sums[0] / all - mean * mean, 0.0);
    ACC rstd = 1 / sqrt(var + (ACC)c->attr->norm.eps);
    if (center) *real_row_of(&c->out[1], n) = (REAL)mean;
    *real_row_of(&c->out[center ? 2 : 1], n) = (REAL)rstd;
    for (int64_t i = 0; i < x->cols; i++) {
        ACC xhat = ((ACC)load(row_of(x, n)[i]) - mean) * rstd;
        row_of(y, n)[i] = store(xhat * gain(c, i) + bias(c, i, center));
    }
}

static void forward(const op_call *c, bool center) {
    const tensor *x = &c->in[0];
    ACC copies = (ACC)c->attr->norm.copies;
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        double *sums = sums_of(c, n, center);
        sums[0] = dot(row_of(x, n), row_of(x, n), x->cols) / copies;
        if (!center) continue;
        sums[1] = 0;
        for (int64_t i = 0; i < x->cols; i++) sums[1] += (ACC)load(row_of(x, n)[i]) / copies;
    }
    sum_over_ranks(c, center);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) finish_row(c, n, center);
}

/* ---- backward ---- */

static void sum_slopes(const op_call *c, int64_t n, bool center) {
    const tensor *x = &c->in[0], *dy = &c->dout[0];
    row_stats k = stats_of(c, n, center);
    ACC g_xhat = 0, g_all = 0;
    for (int64_t i = 0; i < x->cols; i++) {
        ACC g = (ACC)load(row_of(dy, n)[i]) * gain(c, i);
        g_all += g;
        g_xhat += g * ((ACC)load(row_of(x, n)[i]) - k.mean) * k.rstd;
    }
    sums_of(c, n, center)[0] = g_xhat;
    if (center) sums_of(c, n, center)[1] = g_all;
}

static void put_dx(const op_call *c, int64_t n, bool center) {
    const tensor *x = &c->in[0], *dy = &c->dout[0];
    const double *sums = sums_of(c, n, center);
    row_stats k = stats_of(c, n, center);
    ACC shares = (ACC)c->attr->norm.all_cols * (ACC)c->attr->norm.copies;
    ACC g_xhat = sums[0] / shares, g_mean = center ? sums[1] / shares : 0.0;
    for (int64_t i = 0; i < x->cols; i++) {
        ACC g = (ACC)load(row_of(dy, n)[i]) * gain(c, i);
        ACC xhat = ((ACC)load(row_of(x, n)[i]) - k.mean) * k.rstd;
        put(row_of(&c->din[0], n) + i, k.rstd * (g - g_mean - xhat * g_xhat), op_accumulates(c, 0));
    }
}

/* Weight gradients of some columns. */
static void put_dw_db(const op_call *c, int64_t first, int64_t len, bool center) {
    const tensor *x = &c->in[0], *dw = &c->din[1], *db = center ? &c->din[2] : NULL;
    ACC sum_w[BLOCK] = {0}, sum_b[BLOCK] = {0};
    for (int64_t n = 0; n < x->rows; n++) {
        row_stats k = stats_of(c, n, center);
        const STORE *xr = row_of(x, n) + first, *gr = row_of(&c->dout[0], n) + first;
        for (int64_t i = 0; i < len; i++) {
            sum_w[i] += (ACC)load(gr[i]) * ((ACC)load(xr[i]) - k.mean) * k.rstd;
            sum_b[i] += (ACC)load(gr[i]);
        }
    }
    for (int64_t i = 0; i < len; i++) {
        if (dw->data) put_real(real_row_of(dw, 0) + first + i, sum_w[i], op_accumulates(c, 1));
        if (db && db->data)
            put_real(real_row_of(db, 0) + first + i, sum_b[i], op_accumulates(c, 2));
    }
}

/* The sums are formed also where no dx is wanted: all ranks must come. */
static void backward(const op_call *c, bool center) {
    int64_t rows = c->in[0].rows, cols = c->in[0].cols;
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < rows; n++) sum_slopes(c, n, center);
    sum_over_ranks(c, center);
    PARALLEL_FOR
    for (int64_t n = 0; n < (c->din[0].data ? rows : 0); n++) put_dx(c, n, center);
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(cols); b++)
        put_dw_db(c, b * BLOCK, block_len(cols, b * BLOCK), center);
}

/* ---- the two ---- */

static void rms_fwd(const op_call *c) {
    forward(c, false);
}
static void rms_bwd(const op_call *c) {
    backward(c, false);
}
static void layer_fwd(const op_call *c) {
    forward(c, true);
}
static void layer_bwd(const op_call *c) {
    backward(c, true);
}
static void rms_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = ws[1] = io->in[0].rows * (int64_t)sizeof(double);
}
static void layer_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = ws[1] = 2 * io->in[0].rows * (int64_t)sizeof(double);
}

const op_impl REF_IMPL(RMSNORM_RANKS) = {rms_fwd, rms_bwd, NULL, rms_workspace};
const op_impl REF_IMPL(LAYERNORM_RANKS) = {layer_fwd, layer_bwd, NULL, layer_workspace};
