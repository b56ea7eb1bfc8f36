/* RMSNORM and LAYERNORM, one body: xhat = (x - mean) rstd with mean = 0 for the first, and
 * y = xhat w + b + res.
 *
 * Backward, with g = dy w:  dx = rstd (g - [mean(g)] - xhat mean(g xhat));  dw = sum dy xhat;
 * db = sum dy, summed over rows (and the groups of a row) in slices of fixed size, then over the
 * slices in order. Two passes over a group that stays in cache: bandwidth-bound. Groups of the
 * usual head sizes have loops of their own. */
#include "op/cpu/norm_parts.h"

/* What backward is nearly always asked for: a constant, so that nothing is decided per vector. */
typedef enum norm_wants { WANTS_SOME, WANTS_DX_DW, WANTS_ALL } norm_wants;

/* Calls f(..., group, width, center, dt) for every group of a row. */
#define EACH_GROUP(v, width, f, ...)                                                               \
    for (int64_t g = 0; g < (v).groups; g++) f(__VA_ARGS__, g, width, center, dt)
/* With a constant width where the heads of an RMSNorm usually have it. */
#define FOR_GROUPS(v, f, ...)                                                                      \
    switch (center ? 0 : (v).width) {                                                              \
        case 64: EACH_GROUP(v, 64, f, __VA_ARGS__); break;                                         \
        case 128: EACH_GROUP(v, 128, f, __VA_ARGS__); break;                                       \
        default: EACH_GROUP(v, (v).width, f, __VA_ARGS__); break;                                  \
    }

V_INLINE void forward_group(norm_view v, int64_t i, int64_t group, int64_t width, bool center,
                            dtype dt) {
    int64_t from = group * width, at = i * v.x.ld + from;
    float inv = 1.0f / (float)width;
    float mean = center ? moment(v.x.data, at, width, 0.0f, false, dt) * inv : 0.0f;
    float rstd = 1.0f / __builtin_sqrtf(moment(v.x.data, at, width, mean, true, dt) * inv + v.eps);
    *stat(&v.rstd, i, group) = rstd;
    if (center) *stat(&v.mean, i, group) = mean;
    FOR_VECTORS(width, j, n) {
        vf r = (row_get(&v.x, i, from + j, n, dt) - mean) * rstd * weight_at(&v, j, n);
        if (center && v.b.data) r += get_upto(v.b.data, j, n, DT_F32);
        if (v.res.data) r += row_get(&v.res, i, from + j, n, dt);
        row_put(&v.y, i, from + j, r, n, false, dt);
    }
}

V_INLINE void forward_row(norm_view v, int64_t i, bool center, dtype dt) {
    FOR_GROUPS(v, forward_group, v, i)
}

static void norm_forward(const op_call *c, bool center) {
    norm_view v = norm_open(c, center);
    dtype dt = v.y.dt;
#pragma omp parallel for num_threads(loop_threads(c, v.y.rows *v.y.cols)) schedule(static)
    for (int64_t i = 0; i < v.y.rows; i++) {
        if (v.groups > 1) row_prefetch(&v.x, i + ROWS_AHEAD);
        if (center)
            WITH_DTYPE(dt, forward_row, v, i, true);
        else
            WITH_DTYPE(dt, forward_row, v, i, false);
    }
}

/* mean(g xhat) in *gx; mean(g) returned. */
V_INLINE float group_means(norm_view v, int64_t i, int64_t from, int64_t width, float mean,
                           float rstd, float *gx, dtype dt) {
    vf sum_g = v_zero(), sum_gx = v_zero();
    FOR_VECTORS(width, j, n) {
        vf g = row_get(&v.dy, i, from + j, n, dt) * weight_at(&v, j, n); /* 0 beyond the group */
        sum_g += g;
        sum_gx = v_fma(g, (row_get(&v.x, i, from + j, n, dt) - mean) * rstd, sum_gx);
    }
    *gx = v_sum(sum_gx) / (float)width;
    return v_sum(sum_g) / (float)width;
}

/* dx of one group; adds it to sum_w and sum_b (each [width], or NULL). */
V_INLINE void backward_group(norm_view v, int64_t i, float *sum_w, float *sum_b, norm_wants wants,
                             int64_t group, int64_t width, bool center, dtype dt) {
    int64_t from = group * width;
    float mean = center ? *stat(&v.mean, i, group) : 0.0f, rstd = *stat(&v.rstd, i, group), gx;
    float g_mean = group_means(v, i, from, width, mean, rstd, &gx, dt);
    if (!center) g_mean = 0.0f;
    bool dx = wants != WANTS_SOME || v.dx.data, dw = wants != WANTS_SOME || sum_w;
    bool db = wants == WANTS_ALL || (wants == WANTS_SOME && sum_b);
    FOR_VECTORS(width, j, n) {
        vf d = row_get(&v.dy, i, from + j, n, dt);
        vf xhat = (row_get(&v.x, i, from + j, n, dt) - mean) * rstd;
        if (dw) put_upto(sum_w, j, v_fma(d, xhat, get_upto(sum_w, j, n, DT_F32)), n, DT_F32);
        if (db) put_upto(sum_b, j, d + get_upto(sum_b, j, n, DT_F32), n, DT_F32);
        vf r = rstd * (d * weight_at(&v, j, n) - g_mean - xhat * gx);
        if (dx) row_put(&v.dx, i, from + j, r, n, v.add, dt);
    }
}

V_INLINE void backward_row(norm_view v, int64_t i, float *sum_w, float *sum_b, bool center,
                           dtype dt) {
    if (center && sum_w && sum_b && v.dx.data)
        FOR_GROUPS(v, backward_group, v, i, sum_w, sum_b, WANTS_ALL)
    else if (sum_w && !sum_b && v.dx.data)
        FOR_GROUPS(v, backward_group, v, i, sum_w, sum_b, WANTS_DX_DW)
    else
        FOR_GROUPS(v, backward_group, v, i, sum_w, sum_b, WANTS_SOME)
}

static void norm_backward(const op_call *c, bool center) {
    norm_view v = norm_open(c, center);
    norm_sums sums = norm_sums_open(c, &v, center, c->ws);
    dtype dt = v.dy.dt;
#pragma omp parallel for num_threads(loop_threads(c, v.x.rows *v.x.cols)) schedule(static)
    for (int64_t s = 0; s < sums.slices; s++) {
        norm_slice k = norm_slice_open(&sums, s);
        for (int64_t i = k.first; i < k.end; i++) {
            if (v.groups > 1) norm_fetch_back(&v, i);
            if (center)
                WITH_DTYPE(dt, backward_row, v, i, k.sum_w, k.sum_b, true);
            else
                WITH_DTYPE(dt, backward_row, v, i, k.sum_w, k.sum_b, false);
        }
    }
    norm_sums_join(c, &sums);
}

static void norm_workspace(const op_infer *io, int64_t ws[3]) {
    ws[1] = norm_sums_bytes(io->in[0].rows, op_norm_width(io->attr, io->in[0].cols));
}

static void rmsnorm_fwd(const op_call *c) {
    norm_forward(c, false);
}
static void rmsnorm_bwd(const op_call *c) {
    norm_backward(c, false);
}
static void layernorm_fwd(const op_call *c) {
    norm_forward(c, true);
}
static void layernorm_bwd(const op_call *c) {
    norm_backward(c, true);
}

const op_impl CPU_FN(cpu_rmsnorm) = {rmsnorm_fwd, rmsnorm_bwd, NULL, norm_workspace};
const op_impl CPU_FN(cpu_layernorm) = {layernorm_fwd, layernorm_bwd, NULL, norm_workspace};
