/* rstd = 1/sqrt(mean(x^2) + eps) of each group of `width` columns; y = x rstd w, or x rstd (1 + w);
 * absent w = 1.
 *
 * Backward, with xn = x rstd and g = dy w, within a group:
 *   dx = rstd (g - xn mean(g xn));  dw = sum over rows and groups of dy xn
 *
 * Where ranks share the columns, the sums behind both means are over all ranks: of sum(x^2), of
 * which each of `copies` ranks with the same columns gives a part, and of sum(g xn), of which their
 * dy are parts already; then the mean is shared out again, since their dx are summed. */
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

/* ---- columns on several ranks ---- */

/* Sums [rows] over the ranks, in place. */
static void sum_over_ranks(const op_call *c, REAL *sums) {
    comm_call call = {.kind = COMM_ALL_REDUCE,
                      .in = sums,
                      .out = sums,
                      .n = c->in[0].rows,
                      .dt = sizeof(REAL) == sizeof(double) ? DT_F64 : DT_F32,
                      .what = "a norm's sums"};
    comm_run(c->run->mesh->axis[c->attr->norm.axis], &call);
}

static void ranks_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    REAL *sums = c->ws;
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++)
        sums[n] = (REAL)(dot(row_of(x, n), row_of(x, n), x->cols) / (ACC)c->attr->norm.copies);
    sum_over_ranks(c, sums);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        ACC mean = (ACC)sums[n] / (ACC)c->attr->norm.all_cols;
        ACC r = 1 / sqrt(mean + (ACC)c->attr->norm.eps);
        *real_row_of(&c->out[1], n) = (REAL)r;
        for (int64_t i = 0; i < x->cols; i++)
            row_of(y, n)[i] = store((ACC)load(row_of(x, n)[i]) * r * gain(c, i));
    }
}

/* sums[n] becomes sum(g xn) of row n, over all ranks. */
static void ranks_slopes(const op_call *c, REAL *sums) {
    const tensor *x = &c->in[0], *dy = &c->dout[0];
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        ACC sum = 0, r = *real_row_of(&c->out[1], n);
        for (int64_t i = 0; i < x->cols; i++)
            sum += (ACC)load(row_of(dy, n)[i]) * gain(c, i) * (ACC)load(row_of(x, n)[i]) * r;
        sums[n] = (REAL)sum;
    }
    sum_over_ranks(c, sums);
}

static void ranks_bwd(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dx = &c->din[0];
    REAL *sums = c->ws;
    ranks_slopes(c, sums); /* also where no dx is wanted: all ranks must come */
    int threads = ref_threads(c);
    bool add = op_accumulates(c, 0);
    ACC shares = (ACC)c->attr->norm.all_cols * (ACC)c->attr->norm.copies;
    PARALLEL_FOR
    for (int64_t n = 0; n < (dx->data ? x->rows : 0); n++) {
        ACC r = *real_row_of(&c->out[1], n), g_xn = (ACC)sums[n] / shares;
        for (int64_t i = 0; i < x->cols; i++) {
            ACC g = (ACC)load(row_of(dy, n)[i]) * gain(c, i);
            put(row_of(dx, n) + i, r * (g - (ACC)load(row_of(x, n)[i]) * r * g_xn), add);
        }
    }
    if (c->din[1].data) rmsnorm_dw(c);
}

static void ranks_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = ws[1] = io->in[0].rows * (int64_t)sizeof(REAL);
}

const op_impl REF_IMPL(RMSNORM_RANKS) = {ranks_fwd, ranks_bwd, NULL, ranks_workspace};
const op_impl REF_IMPL(RMSNORM) = {rmsnorm_fwd, rmsnorm_bwd, NULL, NULL};
