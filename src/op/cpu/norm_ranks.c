/* RMSNORM_RANKS and LAYERNORM_RANKS, one body: norms of rows whose columns ranks share (what is
 * summed over them: op/ref/norm.c).
 *
 * A rank's sum of squares is made of deviations from its own mean, which is exact enough in fp32,
 * and put together in double, which is what travels. */
#include "op/collective.h"
#include "op/cpu/norm_parts.h"

/* Numbers of a row that are summed over ranks. */
static int64_t sums_per_row(bool center) {
    return center ? 2 : 1;
}

static void sum_over_ranks(const op_call *c) {
    op_collect(c, true, &c->in[0], c->ws, c->ws);
}

/* ---- forward ---- */

/* Of this rank's columns: the sum of squares, and for LAYERNORM_RANKS the sum. */
V_INLINE void sum_row(norm_view v, int64_t i, double copies, double *sums, bool center, dtype dt) {
    int64_t at = i * v.x.ld, n = v.width;
    float mean = center ? moment(v.x.data, at, n, 0.0f, false, dt) / (float)n : 0.0f;
    double square = (double)moment(v.x.data, at, n, mean, true, dt);
    if (center) {
        double rest = (double)moment(v.x.data, at, n, mean, false, dt); /* what rounding left */
        sums[1] = ((double)n * (double)mean + rest) / copies;
        square += (double)mean * ((double)n * (double)mean + 2 * rest);
    }
    sums[0] = square / copies;
}

V_INLINE void finish_row(norm_view v, int64_t i, double all, const double *sums, bool center,
                         dtype dt) {
    double mean = center ? sums[1] / all : 0.0, var = sums[0] / all - mean * mean;
    float shift = (float)mean;
    float rstd = (float)(1.0 / __builtin_sqrt((var > 0 ? var : 0) + (double)v.eps));
    *stat(&v.rstd, i, 0) = rstd;
    if (center) *stat(&v.mean, i, 0) = shift;
    FOR_VECTORS(v.width, j, n) {
        vf r = (row_get(&v.x, i, j, n, dt) - shift) * rstd * weight_at(&v, j, n);
        if (center && v.b.data) r += get_upto(v.b.data, j, n, DT_F32);
        row_put(&v.y, i, j, r, n, false, dt);
    }
}

static void forward(const op_call *c, bool center) {
    norm_view v = norm_open(c, center);
    dtype dt = v.y.dt;
    double *sums = c->ws, all = (double)c->attr->norm.all_cols, copies = c->attr->norm.copies;
    int64_t each = sums_per_row(center), elements = v.x.rows * v.x.cols;
#pragma omp parallel for num_threads(loop_threads(c, elements)) schedule(static)
    for (int64_t i = 0; i < v.x.rows; i++)
        WITH_DTYPE(dt, sum_row, v, i, copies, sums + i * each, center);
    sum_over_ranks(c);
#pragma omp parallel for num_threads(loop_threads(c, elements)) schedule(static)
    for (int64_t i = 0; i < v.x.rows; i++)
        WITH_DTYPE(dt, finish_row, v, i, all, sums + i * each, center);
}

/* ---- backward ---- */

/* sum(g xhat), and for LAYERNORM_RANKS sum(g), of this rank's columns. */
V_INLINE void sum_slopes(norm_view v, int64_t i, double *sums, bool center, dtype dt) {
    float mean = center ? *stat(&v.mean, i, 0) : 0.0f, rstd = *stat(&v.rstd, i, 0);
    vf sum_g = v_zero(), sum_gx = v_zero();
    FOR_VECTORS(v.width, j, n) {
        vf g = row_get(&v.dy, i, j, n, dt) * weight_at(&v, j, n); /* 0 beyond the row */
        sum_g += g;
        sum_gx = v_fma(g, (row_get(&v.x, i, j, n, dt) - mean) * rstd, sum_gx);
    }
    sums[0] = (double)v_sum(sum_gx);
    if (center) sums[1] = (double)v_sum(sum_g);
}

/* dx of a row; adds it to sum_w and sum_b (each [width], or NULL). */
V_INLINE void backward_row(norm_view v, int64_t i, double shares, const double *sums, float *sum_w,
                           float *sum_b, bool center, dtype dt) {
    float mean = center ? *stat(&v.mean, i, 0) : 0.0f, rstd = *stat(&v.rstd, i, 0);
    float gx = (float)(sums[0] / shares), g_mean = center ? (float)(sums[1] / shares) : 0.0f;
    FOR_VECTORS(v.width, j, n) {
        vf d = row_get(&v.dy, i, j, n, dt), xhat = (row_get(&v.x, i, j, n, dt) - mean) * rstd;
        if (sum_w) put_upto(sum_w, j, v_fma(d, xhat, get_upto(sum_w, j, n, DT_F32)), n, DT_F32);
        if (sum_b) put_upto(sum_b, j, d + get_upto(sum_b, j, n, DT_F32), n, DT_F32);
        vf r = rstd * (d * weight_at(&v, j, n) - g_mean - xhat * gx);
        if (v.dx.data) row_put(&v.dx, i, j, r, n, v.add, dt);
    }
}

static int64_t sums_bytes(int64_t rows, bool center) {
    return rows * sums_per_row(center) * (int64_t)sizeof(double);
}

/* The sums are formed also where no dx is wanted: all ranks must come. */
static void backward(const op_call *c, bool center) {
    norm_view v = norm_open(c, center);
    int64_t rows = v.x.rows, each = sums_per_row(center), elements = rows * v.x.cols;
    double *sums = c->ws, shares = (double)c->attr->norm.all_cols * c->attr->norm.copies;
    norm_sums weights = norm_sums_open(c, &v, center, (char *)c->ws + sums_bytes(rows, center));
    dtype dt = v.dy.dt;
#pragma omp parallel for num_threads(loop_threads(c, elements)) schedule(static)
    for (int64_t i = 0; i < rows; i++) WITH_DTYPE(dt, sum_slopes, v, i, sums + i * each, center);
    sum_over_ranks(c);
#pragma omp parallel for num_threads(loop_threads(c, elements)) schedule(static)
    for (int64_t s = 0; s < weights.slices; s++) {
        norm_slice k = norm_slice_open(&weights, s);
        for (int64_t i = k.first; i < k.end; i++)
            WITH_DTYPE(dt, backward_row, v, i, shares, sums + i * each, k.sum_w, k.sum_b, center);
    }
    norm_sums_join(c, &weights);
}

static void workspace(const op_infer *io, int64_t ws[3], bool center) {
    int64_t rows = io->in[0].rows;
    ws[0] = sums_bytes(rows, center);
    ws[1] = ws[0] + norm_sums_bytes(rows, io->in[0].cols);
}

/* ---- the two ---- */

static void rmsnorm_fwd(const op_call *c) {
    forward(c, false);
}
static void rmsnorm_bwd(const op_call *c) {
    backward(c, false);
}
static void rmsnorm_workspace(const op_infer *io, int64_t ws[3]) {
    workspace(io, ws, false);
}
static void layernorm_fwd(const op_call *c) {
    forward(c, true);
}
static void layernorm_bwd(const op_call *c) {
    backward(c, true);
}
static void layernorm_workspace(const op_infer *io, int64_t ws[3]) {
    workspace(io, ws, true);
}

const op_impl CPU_FN(cpu_rmsnorm_ranks) = {rmsnorm_fwd, rmsnorm_bwd, NULL, rmsnorm_workspace};
const op_impl CPU_FN(cpu_layernorm_ranks) = {layernorm_fwd, layernorm_bwd, NULL,
                                             layernorm_workspace};
