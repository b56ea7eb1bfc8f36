/* RMSNORM and LAYERNORM: of each group of `width` columns
 *   xn = (x - mean) rstd, rstd = 1/sqrt(mean((x - mean)^2) + eps), with mean = 0 in RMSNORM
 *   y = xn w + b + res, or xn (1 + w) + res; absent w = 1, absent b and res = 0
 * Backward, with g = dy w, within a group:
 *   dx = rstd (g - mean(g) - xn mean(g xn)), in RMSNORM without mean(g)
 *   dw = sum over rows and groups of dy xn;  db = the same sum of dy
 *
 * A group is the work of a warp, or of a block if it is wide. Forward: x is read twice, the second time
 * from the cache (LAYERNORM: three times); res is read and y written once. Backward: dx in one kernel like the
 * forward, with x and dy. dw and db: a block takes a piece of columns for each lane, and a slice of the
 * groups, and adds up in a fixed order; a last kernel adds the slices. So x and dy come from memory
 * twice, dx goes there once. 5 FLOPs forward, 13 backward (LAYERNORM 7 and 15).
 *
 * RMSNORM_RANKS and LAYERNORM_RANKS: a row is one group, and its columns are shared by ranks. A kernel more, in each
 * direction, makes one number of a row (LAYERNORM: two), in double, which is summed over the ranks by a
 * collective between the two; the kernels above take it as what they would have summed. That reads x (and dy) twice
 * more. As on the CPU, a rank's squares are those of deviations from its own mean. */
#include "op/cuda/pieces.h"

typedef struct norm_args {
    mat x, y, res, dy, dx, mean, rstd; /* mean absent: RMSNORM */
    const float *w, *b;
    float *sum_w, *sum_b; /* [slices, width] */
    float *dw, *db;
    double *sums;       /* [n, 1 + center] over ranks that share rows; NULL: rows are whole */
    double all, copies; /* columns of a whole row, and how many ranks have each */
    int64_t n;          /* groups in all rows */
    int32_t width, groups, wide;
    int32_t slices, by_warp;
    float eps;
    int32_t unit_offset, center, add_dx, add_w, add_b;
} norm_args;

enum { NORM_THREADS = 256, NORM_WARPS = 8 };

/* Column `first` of group i, of row i / groups. */
GPU_FN const STORE *norm_at(const norm_args *a, mat m, int64_t i) {
    return row_of(m, i / a->groups) + i % a->groups * a->width;
}
GPU_FN float *stat_at(const norm_args *a, mat m, int64_t i) {
    return f32_row_of(m, i / a->groups) + i % a->groups;
}

/* Where a thread begins in its group, and how far it goes at a time. */
typedef struct team {
    int64_t group;
    int32_t first, step;
} team;

GPU_FN team my_team(const norm_args *a) {
    int32_t per = a->wide ? VEC : 1;
    team t;
    t.group = a->by_warp ? (int64_t)block_x() * (threads_x() / GPU_WARP) + warp() : block_x();
    t.first = (int32_t)(a->by_warp ? lane() : thread_x()) * per;
    t.step = (int32_t)(a->by_warp ? GPU_WARP : threads_x()) * per;
    return t;
}

/* What the group's threads have summed, and its mean. */
GPU_FN float team_sum(const norm_args *a, float sum, float *room) {
    if (a->by_warp) return warp_sum(sum);
    sum = block_sum(sum, room);
    sync_block(); /* the room is free again */
    return sum;
}
GPU_FN float team_mean(const norm_args *a, float sum, float *room) {
    return team_sum(a, sum, room) / (float)a->width;
}

/* Sums over ranks that a group has, behind each other. */
GPU_FN double *shared_sums(const norm_args *a, int64_t group) {
    return a->sums + group * (a->center ? 2 : 1);
}

/* w or 1 + w, for the piece of columns at c. */
GPU_FN void load_gain(const norm_args *a, int32_t c, float gain[VEC]) {
    for (int k = 0; k < VEC; k++) gain[k] = a->unit_offset && a->w ? 0.0f : 1.0f;
    if (!a->w) return;
    piece_load_f32(gain, a->w + c, a->wide);
    for (int k = 0; k < VEC; k++) gain[k] += a->unit_offset ? 1.0f : 0.0f;
}

/* The sum of d, or of d^2, over what a piece has of a row. */
GPU_FN float piece_sum(const norm_args *a, const float d[VEC], bool squares) {
    float sum = squares ? d[0] * d[0] : d[0];
    for (int k = 1; k < VEC && a->wide; k++) sum += squares ? d[k] * d[k] : d[k];
    return sum;
}

/* The mean of the group's columns; 0 in RMSNORM. */
GPU_FN float mean_of(const norm_args *a, const team *t, const STORE *x, float *room) {
    float v[VEC], sum = 0;
    if (!a->center) return 0;
    for (int32_t c = t->first; c < a->width; c += t->step) {
        piece_load(v, x + c, a->wide);
        sum += piece_sum(a, v, false);
    }
    return team_mean(a, sum, room);
}

/* Sums over the columns of x - mean and of its squares, of this thread alone. */
typedef struct moments {
    float first, second;
} moments;

GPU_FN moments moments_of(const norm_args *a, const team *t, const STORE *x, float mean) {
    float v[VEC];
    moments m = {0, 0};
    for (int32_t c = t->first; c < a->width; c += t->step) {
        piece_load(v, x + c, a->wide);
        for (int k = 0; k < VEC; k++) v[k] -= mean;
        m.first += piece_sum(a, v, false);
        m.second += piece_sum(a, v, true);
    }
    return m;
}

/* rstd of a row that ranks share. */
GPU_FN float shared_rstd(const norm_args *a, const double *sums, float *mean) {
    double m = a->center ? sums[1] / a->all : 0, var = sums[0] / a->all - m * m;
    *mean = (float)m;
    return (float)(1.0 / sqrt((var > 0 ? var : 0) + (double)a->eps));
}

KERNEL(norm_fwd, norm_args, NORM_THREADS) {
    SHARED(float, room, 32);
    team t = my_team(a);
    if (t.group >= a->n) return;
    const STORE *x = norm_at(a, a->x, t.group);
    STORE *y = (STORE *)norm_at(a, a->y, t.group);
    const STORE *res = a->res.p ? norm_at(a, a->res, t.group) : NULL;
    float v[VEC], gain[VEC], bias[VEC], mean, rstd;
    if (a->sums) {
        rstd = shared_rstd(a, shared_sums(a, t.group), &mean);
    } else {
        mean = mean_of(a, &t, x, room);
        rstd = 1.0f / sqrtf(team_mean(a, moments_of(a, &t, x, mean).second, room) + a->eps);
    }
    if (t.first == 0) {
        *stat_at(a, a->rstd, t.group) = rstd;
        if (a->center) *stat_at(a, a->mean, t.group) = mean;
    }
    for (int32_t c = t.first; c < a->width; c += t.step) {
        piece_load(v, x + c, a->wide);
        load_gain(a, c, gain);
        for (int k = 0; k < VEC; k++) bias[k] = 0;
        if (a->b) piece_load_f32(bias, a->b + c, a->wide);
        for (int k = 0; k < VEC; k++) v[k] = (v[k] - mean) * rstd * gain[k] + bias[k];
        if (res) {
            piece_load(bias, res + c, a->wide);
            for (int k = 0; k < VEC; k++) v[k] += bias[k];
        }
        piece_store(y + c, v, a->wide);
    }
}

/* Sums over the columns of g and of g xn, of this thread alone. */
GPU_FN moments slopes_of(const norm_args *a, const team *t, float mean, float rstd) {
    const STORE *x = norm_at(a, a->x, t->group), *dy = norm_at(a, a->dy, t->group);
    float xn[VEC], g[VEC], gain[VEC];
    moments m = {0, 0};
    for (int32_t c = t->first; c < a->width; c += t->step) {
        piece_load(xn, x + c, a->wide);
        piece_load(g, dy + c, a->wide);
        load_gain(a, c, gain);
        for (int k = 0; k < VEC; k++) {
            g[k] *= gain[k];
            xn[k] = g[k] * (xn[k] - mean) * rstd;
        }
        m.first += piece_sum(a, g, false);
        m.second += piece_sum(a, xn, false);
    }
    return m;
}

/* What this rank has of a row's sums. Ranks with the same columns have parts of their dy, so that only forward
 * they count more than once. */
KERNEL(norm_share, norm_args, NORM_THREADS) {
    SHARED(float, room, 32);
    team t = my_team(a);
    if (t.group >= a->n) return;
    const STORE *x = norm_at(a, a->x, t.group);
    bool forward = !a->dy.p;
    float mean = forward ? mean_of(a, &t, x, room) : a->center ? *stat_at(a, a->mean, t.group) : 0;
    moments m = forward ? moments_of(a, &t, x, mean)
                        : slopes_of(a, &t, mean, *stat_at(a, a->rstd, t.group));
    double second = (double)team_sum(a, m.second, room);
    double first = a->center ? (double)team_sum(a, m.first, room) : 0;
    if (t.first != 0) return;
    if (forward) { /* of x, not of x - mean */
        double n = a->width, shift = mean;
        second = (second + shift * (n * shift + 2 * first)) / a->copies;
        first = (n * shift + first) / a->copies;
    }
    shared_sums(a, t.group)[0] = second;
    if (a->center) shared_sums(a, t.group)[1] = first;
}

KERNEL(norm_bwd, norm_args, NORM_THREADS) {
    SHARED(float, room, 32);
    team t = my_team(a);
    if (t.group >= a->n) return;
    const STORE *x = norm_at(a, a->x, t.group), *dy = norm_at(a, a->dy, t.group);
    STORE *dx = (STORE *)norm_at(a, a->dx, t.group);
    float rstd = *stat_at(a, a->rstd, t.group);
    float mean = a->center ? *stat_at(a, a->mean, t.group) : 0;
    float xn[VEC], g[VEC], gain[VEC], mean_gx, mean_g = 0;
    if (a->sums) {
        const double *sums = shared_sums(a, t.group);
        mean_gx = (float)(sums[0] / (a->all * a->copies));
        if (a->center) mean_g = (float)(sums[1] / (a->all * a->copies));
    } else {
        moments m = slopes_of(a, &t, mean, rstd);
        mean_gx = team_mean(a, m.second, room);
        if (a->center) mean_g = team_mean(a, m.first, room);
    }
    for (int32_t c = t.first; c < a->width; c += t.step) {
        piece_load(xn, x + c, a->wide);
        piece_load(g, dy + c, a->wide);
        load_gain(a, c, gain);
        for (int k = 0; k < VEC; k++)
            g[k] = rstd * (g[k] * gain[k] - mean_g - (xn[k] - mean) * rstd * mean_gx);
        piece_put(dx + c, g, a->wide, a->add_dx);
    }
}

/* Adds the sums of the block's warps for the piece of columns at c, and writes them for the first warp. */
GPU_FN void join_warps(const norm_args *a, float sum[VEC], float *room, int32_t c, float *out) {
    int32_t threads = (int32_t)threads_x();
    for (int k = 0; k < VEC; k++) room[k * threads + (int32_t)thread_x()] = sum[k];
    sync_block();
    if (warp() == 0 && c < a->width) {
        for (int32_t w = 1; w < threads / GPU_WARP; w++)
            for (int k = 0; k < VEC; k++)
                sum[k] += room[k * threads + w * GPU_WARP + (int32_t)lane()];
        piece_put_f32(out + (int64_t)block_y() * a->width + c, sum, a->wide, false);
    }
    sync_block();
}

KERNEL(norm_sums, norm_args, NORM_THREADS) {
    SHARED(float, room, NORM_WARPS *GPU_WARP *VEC);
    int32_t c = (int32_t)(block_x() * GPU_WARP + lane()) * (a->wide ? VEC : 1);
    int64_t first = a->n * block_y() / a->slices, end = a->n * (block_y() + 1) / a->slices;
    float sum_w[VEC], sum_b[VEC], x[VEC], dy[VEC];
    for (int k = 0; k < VEC; k++) sum_w[k] = sum_b[k] = 0;
    for (int64_t i = first + warp(); i < end && c < a->width; i += threads_x() / GPU_WARP) {
        float mean = a->center ? *stat_at(a, a->mean, i) : 0, rstd = *stat_at(a, a->rstd, i);
        piece_load(x, norm_at(a, a->x, i) + c, a->wide);
        piece_load(dy, norm_at(a, a->dy, i) + c, a->wide);
        for (int k = 0; k < VEC; k++) {
            sum_w[k] += dy[k] * (x[k] - mean) * rstd;
            sum_b[k] += dy[k];
        }
    }
    if (a->dw) join_warps(a, sum_w, room, c, a->sum_w);
    if (a->db) join_warps(a, sum_b, room, c, a->sum_b);
}

KERNEL(norm_join, norm_args, NORM_THREADS) {
    int32_t c = (int32_t)(block_x() * threads_x() + thread_x());
    if (c >= a->width) return;
    float w = 0, b = 0;
    for (int32_t s = 0; s < a->slices; s++) {
        if (a->dw) w += a->sum_w[(int64_t)s * a->width + c];
        if (a->db) b += a->sum_b[(int64_t)s * a->width + c];
    }
    if (a->dw) put_f32(&a->dw[c], w, a->add_w);
    if (a->db) put_f32(&a->db[c], b, a->add_b);
}

#ifndef __CUDACC__
#include <string.h>

#include "op/collective.h"
#include "op/cuda/tables.h"

/* Whether all pieces of 16 bytes lie in one group. */
static bool is_norm_wide(const op_call *c, const tensor *p, const tensor *q) {
    return is_wide(&c->in[0]) && is_wide(p) && is_wide(q) &&
           op_norm_width(c->attr, c->in[0].cols) % VEC == 0 &&
           (!c->in[1].data || is_wide_f32(&c->in[1])) && (!c->in[2].data || is_wide_f32(&c->in[2]));
}

/* Where the second half of an op over ranks finds their sums. */
enum { SUMS = OP_MAX_IN - 1 };

static norm_args norm_open(const op_call *c, bool center) {
    int64_t width = op_norm_width(c->attr, c->in[0].cols);
    norm_args a = {.x = mat_of(&c->in[0]), .y = mat_of(&c->out[0]), .center = center};
    a.w = c->in[1].data;
    if (center) a.b = c->in[2].data, a.mean = mat_of(&c->out[1]);
    a.rstd = mat_of(&c->out[center ? 2 : 1]);
    a.width = (int32_t)width;
    a.groups = (int32_t)(c->in[0].cols / width);
    a.n = c->in[0].rows * a.groups;
    a.eps = c->attr->norm.eps;
    a.unit_offset = c->attr->norm.unit_offset;
    a.sums = c->in[SUMS].data;
    a.all = (double)c->attr->norm.all_cols, a.copies = c->attr->norm.copies;
    return a;
}

/* Up to four pieces of each lane are a warp's work: the heads of a norm per head. */
static void launch_groups(const op_call *c, const gpu_kernel *k, norm_args *a) {
    int32_t pieces_of_group = a->width / (a->wide ? VEC : 1);
    a->by_warp = pieces_of_group <= 4 * GPU_WARP;
    uint32_t threads = threads_for(pieces_of_group, NORM_THREADS), blocks = (uint32_t)a->n;
    if (a->by_warp) {
        threads = threads_for(a->n * GPU_WARP, NORM_WARPS * GPU_WARP);
        blocks = blocks_for(a->n, threads / GPU_WARP);
    }
    launch(c, k, (gpu_grid){blocks, 1, 1, threads, 0}, a);
}

static void forward(const op_call *c, bool center) {
    norm_args a = norm_open(c, center);
    const tensor *res = &c->in[center ? 3 : 2];
    a.wide = is_norm_wide(c, &c->out[0], &c->out[0]) && (!res->data || is_wide(res));
    if (res->data) a.res = mat_of(res);
    launch_groups(c, &norm_fwd, &a);
}

/* Enough slices for all multiprocessors of the largest devices, whatever the number of columns. */
static int32_t slices_for(int64_t n) {
    int64_t s = n / 64;
    return (int32_t)(s < 1 ? 1 : s > 128 ? 128 : s);
}

static void sum_gradients(const op_call *c, norm_args *a) {
    a->slices = slices_for(a->n);
    a->sum_w = c->ws;
    a->sum_b = a->sum_w + ((int64_t)a->slices * a->width + 3) / 4 * 4;
    uint32_t across = blocks_for(a->width, (int64_t)GPU_WARP * (a->wide ? VEC : 1));
    uint32_t threads = threads_for(a->n / a->slices * GPU_WARP, NORM_WARPS * GPU_WARP);
    launch(c, &norm_sums, (gpu_grid){across, (uint32_t)a->slices, 1, threads, 0}, a);
    threads = threads_for(a->width, NORM_THREADS);
    launch(c, &norm_join, (gpu_grid){blocks_for(a->width, threads), 1, 1, threads, 0}, a);
}

static void backward(const op_call *c, bool center) {
    norm_args a = norm_open(c, center);
    a.dy = mat_of(&c->dout[0]);
    a.dx = mat_of(&c->din[0]);
    a.wide = is_norm_wide(c, &c->dout[0], &c->din[0]);
    a.add_dx = op_accumulates(c, 0);
    a.dw = c->din[1].data, a.add_w = op_accumulates(c, 1);
    if (center) a.db = c->din[2].data, a.add_b = op_accumulates(c, 2);
    if (a.dx.p) launch_groups(c, &norm_bwd, &a);
    if (a.dw || a.db) sum_gradients(c, &a);
}

static void norm_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t width = op_norm_width(io->attr, io->in[0].cols);
    int64_t rows = slices_for(io->in[0].rows * (io->in[0].cols / width));
    ws[1] = 2 * (int64_t)sizeof(float) * ((rows * width + 3) / 4 * 4);
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

/* ---- over ranks: two calls, and a collective between them; what comes by it was written by no kernel ---- */

static int64_t sums_bytes(int64_t rows, int64_t each) {
    return (rows * each * (int64_t)sizeof(double) + 15) / 16 * 16;
}

/* To `sums`, an output or the gradient of an input. */
static void share(const op_call *c, bool center, const tensor *sums) {
    norm_args a = norm_open(c, center);
    if (c->dout[0].data) a.dy = mat_of(&c->dout[0]);
    a.wide = is_norm_wide(c, &c->dout[0], &c->dout[0]);
    a.sums = sums->data;
    launch_groups(c, &norm_share, &a);
}

static void rmsnorm_share_fwd(const op_call *c) {
    share(c, false, &c->out[0]);
}
static void rmsnorm_share_bwd(const op_call *c) {
    share(c, false, &c->din[0]);
}
static void layernorm_share_fwd(const op_call *c) {
    share(c, true, &c->out[0]);
}
static void layernorm_share_bwd(const op_call *c) {
    share(c, true, &c->din[0]);
}

static void over_ranks(const op_call *c, int64_t each, op_fn first, op_fn second) {
    op_call own = *c, rest = *c;
    tensor sums = {c->ws, DT_F64, c->in[0].rows, each, each};
    int64_t bytes = sums_bytes(sums.rows, each);
    bool backward = c->dout[0].data != NULL;
    own.ws = NULL, own.ws_bytes = 0, own.acc = 0;
    memset(own.din, 0, sizeof own.din);
    if (!backward) memset(own.out, 0, sizeof own.out);
    *(backward ? &own.din[0] : &own.out[0]) = sums;
    cuda_op_launch(c->run->dev, first, &own);
    op_collect(c, true, &c->in[0], c->ws, c->ws);
    rest.in[SUMS] = sums;
    rest.ws = (char *)c->ws + bytes, rest.ws_bytes -= bytes;
    cuda_op_launch(c->run->dev, second, &rest);
}

static void rmsnorm_ranks_fwd(const op_call *c) {
    over_ranks(c, 1, rmsnorm_share_fwd, rmsnorm_fwd);
}
static void rmsnorm_ranks_bwd(const op_call *c) {
    over_ranks(c, 1, rmsnorm_share_bwd, rmsnorm_bwd);
}
static void layernorm_ranks_fwd(const op_call *c) {
    over_ranks(c, 2, layernorm_share_fwd, layernorm_fwd);
}
static void layernorm_ranks_bwd(const op_call *c) {
    over_ranks(c, 2, layernorm_share_bwd, layernorm_bwd);
}

static void ranks_workspace(const op_infer *io, int64_t ws[3]) {
    norm_workspace(io, ws);
    ws[0] = sums_bytes(io->in[0].rows, io->kind == OP_LAYERNORM_RANKS ? 2 : 1);
    ws[1] += ws[0];
}

const op_impl CUDA_IMPL(RMSNORM_RANKS) = {rmsnorm_ranks_fwd, rmsnorm_ranks_bwd, NULL,
                                          ranks_workspace};
const op_impl CUDA_IMPL(LAYERNORM_RANKS) = {layernorm_ranks_fwd, layernorm_ranks_bwd, NULL,
                                            ranks_workspace};
const op_impl CUDA_IMPL(RMSNORM) = {rmsnorm_fwd, rmsnorm_bwd, NULL, norm_workspace};
const op_impl CUDA_IMPL(LAYERNORM) = {layernorm_fwd, layernorm_bwd, NULL, norm_workspace};
#endif
