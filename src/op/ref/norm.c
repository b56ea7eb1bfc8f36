/* RMSNORM and LAYERNORM, and the same over ranks, one body: of each group of `width` columns
 *   xn = (x - mean) rstd, rstd = 1/sqrt(mean((x - mean)^2) + eps), with mean = 0 in RMSNORM
 *   y = xn w + b + res, or xn (1 + w) + res; absent w = 1, absent b and res = 0
 *
 * Backward, with g = dy w, within a group:
 *   dx = rstd (g - mean(g) - xn mean(g xn)), in RMSNORM without mean(g)
 *   dw = sum over rows and groups of dy xn;  db = the same sum of dy
 *
 * RMSNORM_RANKS and LAYERNORM_RANKS: a row is one group, and its columns are shared by ranks. Sums
 * over all columns are over all ranks: of x and x^2, of which each of `copies` ranks with the same
 * columns gives a part; in the backward of g and g xn, of which their dy are parts already. Then the
 * means are shared out again, divided by `copies`, since their dx are summed. What travels is
 * double: the variance is the difference of two sums. */
#include "op/collective.h"
#include "op/ref/ref.h"

typedef struct norm_view {
    const op_call *c;
    bool center; /* LAYERNORM */
    int64_t width, groups;
} norm_view;

static bool centers(op_kind kind) {
    return kind == OP_LAYERNORM || kind == OP_LAYERNORM_RANKS;
}

static norm_view open_norm(const op_call *c) {
    int64_t width = op_norm_width(c->attr, c->in[0].cols);
    return (norm_view){c, centers(c->kind), width, c->in[0].cols / width};
}

static ACC gain(const op_call *c, int64_t i) {
    if (!c->in[1].data) return 1.0;
    return (c->attr->norm.unit_offset ? 1.0 : 0.0) + (ACC)real_row_of(&c->in[1], 0)[i];
}

/* The statistics of group h of row n. */
static REAL *mean_at(const norm_view *v, int64_t n, int64_t h) {
    return v->center ? real_row_of(&v->c->out[1], n) + h : NULL;
}
static REAL *rstd_at(const norm_view *v, int64_t n, int64_t h) {
    return real_row_of(&v->c->out[v->center ? 2 : 1], n) + h;
}
static ACC mean_of(const norm_view *v, int64_t n, int64_t h) {
    return v->center ? *mean_at(v, n, h) : 0;
}

/* ---- forward ---- */

static void put_group(const norm_view *v, int64_t n, int64_t h, ACC mean, ACC var) {
    const op_call *c = v->c;
    const STORE *xr = row_of(&c->in[0], n) + h * v->width;
    STORE *yr = row_of(&c->out[0], n) + h * v->width;
    const tensor *res = &c->in[v->center ? 3 : 2];
    ACC r = 1 / sqrt(var + (ACC)c->attr->norm.eps);
    *rstd_at(v, n, h) = (REAL)r;
    if (v->center) *mean_at(v, n, h) = (REAL)mean;
    for (int64_t i = 0; i < v->width; i++) {
        ACC b = v->center && c->in[2].data ? (ACC)real_row_of(&c->in[2], 0)[i] : 0.0;
        if (res->data) b += (ACC)load(row_of(res, n)[h * v->width + i]);
        yr[i] = store(((ACC)load(xr[i]) - mean) * r * gain(c, i) + b);
    }
}

static void forward_group(const norm_view *v, int64_t n, int64_t h) {
    const STORE *xr = row_of(&v->c->in[0], n) + h * v->width;
    ACC mean = 0, var = 0;
    for (int64_t i = 0; v->center && i < v->width; i++) mean += (ACC)load(xr[i]);
    mean /= (ACC)v->width;
    for (int64_t i = 0; v->center && i < v->width; i++) {
        ACC d = (ACC)load(xr[i]) - mean;
        var += d * d;
    }
    if (!v->center) var = dot(xr, xr, v->width);
    put_group(v, n, h, mean, var / (ACC)v->width);
}

static void forward(const op_call *c) {
    norm_view v = open_norm(c);
    PARALLEL_FOR_2
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < v.groups; h++) forward_group(&v, n, h);
}

/* ---- backward ---- */

/* Sums, or means, of g and g xn; g only where it is wanted. */
typedef struct slopes {
    ACC g, g_xn;
} slopes;

static slopes sum_slopes(const norm_view *v, int64_t n, int64_t h) {
    const op_call *c = v->c;
    ACC mean = mean_of(v, n, h), r = *rstd_at(v, n, h);
    const STORE *xr = row_of(&c->in[0], n) + h * v->width;
    const STORE *gr = row_of(&c->dout[0], n) + h * v->width;
    slopes s = {0};
    for (int64_t i = 0; i < v->width; i++) {
        ACC g = (ACC)load(gr[i]) * gain(c, i);
        if (v->center) s.g += g;
        s.g_xn += g * ((ACC)load(xr[i]) - mean) * r;
    }
    return s;
}

static void put_dx(const norm_view *v, int64_t n, int64_t h, slopes means) {
    const op_call *c = v->c;
    ACC mean = mean_of(v, n, h), r = *rstd_at(v, n, h);
    int64_t at = h * v->width;
    const STORE *xr = row_of(&c->in[0], n) + at, *gr = row_of(&c->dout[0], n) + at;
    for (int64_t i = 0; i < v->width; i++) {
        ACC g = (ACC)load(gr[i]) * gain(c, i), xn = ((ACC)load(xr[i]) - mean) * r;
        put(row_of(&c->din[0], n) + at + i, r * (g - means.g - xn * means.g_xn),
            op_accumulates(c, 0));
    }
}

static void dx_of_group(const norm_view *v, int64_t n, int64_t h) {
    slopes s = sum_slopes(v, n, h);
    put_dx(v, n, h, (slopes){s.g / (ACC)v->width, s.g_xn / (ACC)v->width});
}

/* Weight gradients of some columns of the groups. */
static void dw_db(const norm_view *v, int64_t first, int64_t len) {
    const op_call *c = v->c;
    const tensor *dw = &c->din[1], *db = &c->din[2];
    ACC sum_w[BLOCK] = {0}, sum_b[BLOCK] = {0};
    for (int64_t k = 0; k < c->in[0].rows * v->groups; k++) {
        int64_t n = k / v->groups, h = k % v->groups, at = h * v->width + first;
        ACC mean = mean_of(v, n, h), r = *rstd_at(v, n, h);
        const STORE *xr = row_of(&c->in[0], n) + at, *gr = row_of(&c->dout[0], n) + at;
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

static void weight_gradients(const norm_view *v) {
    const op_call *c = v->c;
    if (!c->din[1].data && !c->din[2].data) return;
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(v->width); b++)
        dw_db(v, b * BLOCK, block_len(v->width, b * BLOCK));
}

static void backward(const op_call *c) {
    norm_view v = open_norm(c);
    PARALLEL_FOR_2
    for (int64_t n = 0; n < (c->din[0].data ? c->in[0].rows : 0); n++)
        for (int64_t h = 0; h < v.groups; h++) dx_of_group(&v, n, h);
    weight_gradients(&v);
}

/* ---- over ranks ---- */

/* Of a row: squares and products first, then, for LAYERNORM_RANKS, what is summed plainly. */
static double *sums_of(const norm_view *v, int64_t n) {
    return (double *)v->c->ws + n * (v->center ? 2 : 1);
}

static void sum_over_ranks(const op_call *c) {
    op_collect(c, true, &c->in[0], c->ws, c->ws);
}

static void ranks_forward(const op_call *c) {
    const tensor *x = &c->in[0];
    norm_view v = open_norm(c);
    ACC copies = (ACC)c->attr->norm.copies, all = (ACC)c->attr->norm.all_cols;
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        double *sums = sums_of(&v, n);
        sums[0] = dot(row_of(x, n), row_of(x, n), x->cols) / copies;
        if (!v.center) continue;
        sums[1] = 0;
        for (int64_t i = 0; i < x->cols; i++) sums[1] += (ACC)load(row_of(x, n)[i]) / copies;
    }
    sum_over_ranks(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        const double *sums = sums_of(&v, n);
        ACC mean = v.center ? sums[1] / all : 0.0;
        put_group(&v, n, 0, mean, fmax(sums[0] / all - mean * mean, 0.0));
    }
}

/* The sums are formed also where no dx is wanted: all ranks must come. */
static void ranks_backward(const op_call *c) {
    norm_view v = open_norm(c);
    int64_t rows = c->in[0].rows;
    ACC shares = (ACC)c->attr->norm.all_cols * (ACC)c->attr->norm.copies;
    PARALLEL_FOR
    for (int64_t n = 0; n < rows; n++) {
        slopes s = sum_slopes(&v, n, 0);
        sums_of(&v, n)[0] = s.g_xn;
        if (v.center) sums_of(&v, n)[1] = s.g;
    }
    sum_over_ranks(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < (c->din[0].data ? rows : 0); n++) {
        const double *sums = sums_of(&v, n);
        put_dx(&v, n, 0, (slopes){v.center ? sums[1] / shares : 0.0, sums[0] / shares});
    }
    weight_gradients(&v);
}

static void ranks_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = ws[1] = (centers(io->kind) ? 2 : 1) * io->in[0].rows * (int64_t)sizeof(double);
}

const op_impl REF_IMPL(RMSNORM) = {forward, backward, NULL, NULL};
const op_impl REF_IMPL(LAYERNORM) = {forward, backward, NULL, NULL};
const op_impl REF_IMPL(RMSNORM_RANKS) = {ranks_forward, ranks_backward, NULL, ranks_workspace};
const op_impl REF_IMPL(LAYERNORM_RANKS) = {ranks_forward, ranks_backward, NULL, ranks_workspace};
