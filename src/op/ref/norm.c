/* RMSNORM and LAYERNORM, one body: of each group of `width` columns
 *   xn = (x - mean) rstd, rstd = 1/sqrt(mean((x - mean)^2) + eps), with mean = 0 in RMSNORM
 *   y = xn w + b, or xn (1 + w); absent w = 1, absent b = 0
 *
 * Backward, with g = dy w, within a group:
 *   dx = rstd (g - mean(g) - xn mean(g xn)), in RMSNORM without mean(g)
 *   dw = sum over rows and groups of dy xn;  db = the same sum of dy */
#include "op/ref/ref.h"

typedef struct norm_view {
    const op_call *c;
    bool center; /* LAYERNORM */
    int64_t width, groups;
} norm_view;

static norm_view open_norm(const op_call *c, bool center) {
    int64_t width = op_norm_width(c->attr, c->in[0].cols);
    return (norm_view){c, center, width, c->in[0].cols / width};
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

static void forward_group(const norm_view *v, int64_t n, int64_t h) {
    const op_call *c = v->c;
    const STORE *xr = row_of(&c->in[0], n) + h * v->width;
    STORE *yr = row_of(&c->out[0], n) + h * v->width;
    ACC mean = 0, var = 0;
    for (int64_t i = 0; v->center && i < v->width; i++) mean += (ACC)load(xr[i]);
    mean /= (ACC)v->width;
    for (int64_t i = 0; v->center && i < v->width; i++) {
        ACC d = (ACC)load(xr[i]) - mean;
        var += d * d;
    }
    if (!v->center) var = dot(xr, xr, v->width);
    ACC r = 1 / sqrt(var / (ACC)v->width + (ACC)c->attr->norm.eps);
    *rstd_at(v, n, h) = (REAL)r;
    if (v->center) *mean_at(v, n, h) = (REAL)mean;
    for (int64_t i = 0; i < v->width; i++) {
        ACC b = v->center && c->in[2].data ? (ACC)real_row_of(&c->in[2], 0)[i] : 0.0;
        yr[i] = store(((ACC)load(xr[i]) - mean) * r * gain(c, i) + b);
    }
}

static void forward(const op_call *c, bool center) {
    norm_view v = open_norm(c, center);
    int threads = ref_threads(c);
    PARALLEL_FOR_2
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < v.groups; h++) forward_group(&v, n, h);
}

static void dx_of_group(const norm_view *v, int64_t n, int64_t h) {
    const op_call *c = v->c;
    ACC mean = mean_of(v, n, h), r = *rstd_at(v, n, h), g_mean = 0, g_xn = 0;
    int64_t at = h * v->width;
    const STORE *xr = row_of(&c->in[0], n) + at, *gr = row_of(&c->dout[0], n) + at;
    for (int64_t i = 0; i < v->width; i++) {
        ACC g = (ACC)load(gr[i]) * gain(c, i);
        if (v->center) g_mean += g;
        g_xn += g * ((ACC)load(xr[i]) - mean) * r;
    }
    g_mean /= (ACC)v->width;
    g_xn /= (ACC)v->width;
    for (int64_t i = 0; i < v->width; i++) {
        ACC g = (ACC)load(gr[i]) * gain(c, i), xn = ((ACC)load(xr[i]) - mean) * r;
        put(row_of(&c->din[0], n) + at + i, r * (g - g_mean - xn * g_xn), op_accumulates(c, 0));
    }
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

static void backward(const op_call *c, bool center) {
    norm_view v = open_norm(c, center);
    int threads = ref_threads(c);
    if (c->din[0].data) {
        PARALLEL_FOR_2
        for (int64_t n = 0; n < c->in[0].rows; n++)
            for (int64_t h = 0; h < v.groups; h++) dx_of_group(&v, n, h);
    }
    if (!c->din[1].data && !c->din[2].data) return;
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(v.width); b++)
        dw_db(&v, b * BLOCK, block_len(v.width, b * BLOCK));
}

static void rmsnorm_fwd(const op_call *c) {
    forward(c, false);
}
static void rmsnorm_bwd(const op_call *c) {
    backward(c, false);
}
static void layernorm_fwd(const op_call *c) {
    forward(c, true);
}
static void layernorm_bwd(const op_call *c) {
    backward(c, true);
}

const op_impl REF_IMPL(RMSNORM) = {rmsnorm_fwd, rmsnorm_bwd, NULL, NULL};
const op_impl REF_IMPL(LAYERNORM) = {layernorm_fwd, layernorm_bwd, NULL, NULL};
