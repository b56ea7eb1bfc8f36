/* What a router does with each row: ROUTER_PROBS, ROUTER_PICK, ROUTER_Z.
 *
 *   probs = softmax(logits), or 1 / (1 + e^-logits);  dl = p (dp - sum p dp), or p (1 - p) dp
 *   weights_j = c p_j, or c p_j / s with s the sum of the picks' p;  dp_j = c dw_j, or c / s (dw_j - sum w_i dw_i / c)
 *   z = log sum e^logits, loss = sum of z^2;  dl = 2 dloss z e^(l - z)
 *
 * A row is a warp's work. Probabilities: the logits are read twice, the second time from the cache; 5 FLOPs and 6 to
 * 8 bytes per logit. Picks: scores p + bias in double, as on the CPU, so that both pick the same; each pick is one
 * search of the row, k E comparisons in all, in a room of 8 bytes per score. The z-loss: 6 FLOPs and 2 to 4 bytes
 * per logit; its sum has a fixed order of slices of rows. */
#include "op/cuda/store.h"

typedef struct router_args {
    mat logits, dlogits;   /* of STORE */
    mat probs, dprobs;     /* f32 */
    mat weights, dweights; /* f32 [rows, k] */
    mat picks;             /* i32 [rows, k] */
    const float *bias, *dloss;
    float *dbias, *parts, *loss;
    double *room; /* [rows, E + groups] */
    int64_t rows;
    int32_t E, k, groups, kept, best; /* groups 0: all experts count */
    int32_t sigmoid, renormalise, add, slices;
    float scale;
} router_args;

enum { ROUTER_THREADS = 256, Z_SLICES = 128 };

/* As op/router.h has it. */
#define PICK_TINY 1e-20f

GPU_FN int64_t my_row(void) {
    return (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
}

/* ---- probabilities ---- */

GPU_FN float row_max(const router_args *a, const STORE *x) {
    float max = -INFINITY;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) max = gpu_max(max, load(x[e]));
    return warp_max(max);
}

/* The sum of e^(x - max). */
GPU_FN float row_exps(const router_args *a, const STORE *x, float max) {
    float sum = 0;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) sum += expf(load(x[e]) - max);
    return warp_sum(sum);
}

KERNEL(router_probs_fwd, router_args, ROUTER_THREADS) {
    int64_t n = my_row();
    if (n >= a->rows) return;
    const STORE *x = row_of(a->logits, n);
    float *p = f32_row_of(a->probs, n), max = 0, sum = 0;
    if (!a->sigmoid) max = row_max(a, x), sum = row_exps(a, x, max);
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        p[e] = a->sigmoid ? 1 / (1 + expf(-load(x[e]))) : expf(load(x[e]) - max) / sum;
}

KERNEL(router_probs_bwd, router_args, ROUTER_THREADS) {
    int64_t n = my_row();
    if (n >= a->rows) return;
    const float *p = f32_row_of(a->probs, n), *dp = f32_row_of(a->dprobs, n);
    float mean = 0;
    for (int32_t e = (int32_t)lane(); e < a->E && !a->sigmoid; e += GPU_WARP) mean += p[e] * dp[e];
    mean = warp_sum(mean);
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        put(row_of(a->dlogits, n) + e, p[e] * (a->sigmoid ? (1 - p[e]) * dp[e] : dp[e] - mean),
            a->add);
}

/* ---- picks ---- */

GPU_FN double shuffle_double(double v, int mask) {
    union {
        double d;
        uint32_t u[2];
    } x;
    x.d = v;
    x.u[0] = shuffle_xor_u32(x.u[0], mask);
    x.u[1] = shuffle_xor_u32(x.u[1], mask);
    return x.d;
}

/* Where the largest of n numbers is, of equal ones the first; the same for all lanes. Number i is read by lane
 * i % 32 alone. What lane 0 has found counts: with NaN lanes may disagree. */
GPU_FN int32_t warp_largest(const double *x, int32_t n) {
    int32_t at = (int32_t)lane() < n ? (int32_t)lane() : INT32_MAX;
    double best = at < n ? x[at] : -INFINITY;
    for (int32_t i = at; i < n; i += GPU_WARP)
        if (x[i] > best) best = x[i], at = i;
    for (int m = 16; m > 0; m >>= 1) {
        double other = shuffle_double(best, m);
        int32_t there = (int32_t)shuffle_xor_u32((uint32_t)at, m);
        if (other > best || (other == best && there < at)) best = other, at = there;
    }
    return (int32_t)shuffle_from_u32((uint32_t)at, 0);
}

/* The sum of the `best` largest of n numbers. */
GPU_FN double sum_of_best(const double *x, int32_t n, int32_t best) {
    double sum = 0, below = INFINITY;
    int32_t after = -1; /* the last one that was taken of those equal to `below` */
    for (int32_t b = 0; b < best; b++) {
        int32_t at = -1;
        for (int32_t i = 0; i < n; i++) {
            bool is_left = x[i] < below || (x[i] == below && i > after);
            if (is_left && (at < 0 || x[i] > x[at])) at = i;
        }
        if (at < 0) break; /* only NaN is left */
        sum += x[at], below = x[at], after = at;
    }
    return sum;
}

/* Experts of the groups that are not kept get -infinity. */
GPU_FN void keep_groups(const router_args *a, double *score) {
    double *group = score + a->E;
    int32_t of_group = a->E / a->groups;
    for (int32_t g = (int32_t)lane(); g < a->groups; g += GPU_WARP)
        group[g] = sum_of_best(score + g * of_group, of_group, a->best);
    sync_warp();
    for (int32_t i = 0; i < a->kept; i++) {
        int32_t g = warp_largest(group, a->groups);
        if ((int32_t)lane() == g % GPU_WARP) group[g] = -INFINITY;
    }
    sync_warp();
    /* Kept ones are marked with -infinity; the scores of the others are taken away. */
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        if (group[e / of_group] != -INFINITY) score[e] = -INFINITY;
}

KERNEL(router_pick_fwd, router_args, ROUTER_THREADS) {
    int64_t n = my_row();
    if (n >= a->rows) return;
    const float *p = f32_row_of(a->probs, n);
    double *score = a->room + n * (a->E + a->groups);
    int32_t *picks = (int32_t *)i32_row_of(a->picks, n);
    float sum = 0;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        score[e] = (double)p[e] + (a->bias ? (double)a->bias[e] : 0);
    if (a->groups) {
        sync_warp();
        keep_groups(a, score);
    }
    for (int32_t j = 0; j < a->k; j++) {
        int32_t e = warp_largest(score, a->E);
        if ((int32_t)lane() == e % GPU_WARP) score[e] = -INFINITY;
        if (lane() == 0) picks[j] = e;
        sum += p[e];
    }
    sync_warp();
    for (int32_t j = (int32_t)lane(); j < a->k; j += GPU_WARP)
        f32_row_of(a->weights, n)[j] =
            a->scale * p[picks[j]] / (a->renormalise ? sum + PICK_TINY : 1);
}

/* In double, as the two terms may cancel: with k = 1 to 0. */
KERNEL(router_pick_bwd, router_args, ROUTER_THREADS) {
    int64_t n = my_row();
    if (n >= a->rows) return;
    const float *p = f32_row_of(a->probs, n), *dw = f32_row_of(a->dweights, n);
    const int32_t *picks = i32_row_of(a->picks, n);
    double sum = (double)PICK_TINY, mean = 0;
    for (int32_t j = 0; j < a->k; j++)
        sum += (double)p[picks[j]], mean += (double)p[picks[j]] * (double)dw[j];
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP) {
        float d = 0;
        for (int32_t j = 0; j < a->k; j++)
            if (picks[j] == e)
                d += a->scale *
                     (a->renormalise ? (float)(((double)dw[j] - mean / sum) / sum) : dw[j]);
        put_f32(f32_row_of(a->dprobs, n) + e, d, a->add);
    }
}

/* A bias that chooses has no gradient. */
KERNEL(router_bias_bwd, router_args, ROUTER_THREADS) {
    int32_t e = (int32_t)(block_x() * threads_x() + thread_x());
    if (e < a->E) a->dbias[e] = 0;
}

/* ---- the z-loss ---- */

KERNEL(router_z_parts, router_args, ROUTER_THREADS) {
    SHARED(float, room, 32);
    int64_t first = a->rows * block_x() / a->slices, end = a->rows * (block_x() + 1) / a->slices;
    float sum = 0;
    for (int64_t n = first + warp(); n < end; n += threads_x() / GPU_WARP) {
        const STORE *x = row_of(a->logits, n);
        float max = row_max(a, x), z = max + logf(row_exps(a, x, max));
        sum += z * z;
    }
    sum = block_sum(lane() == 0 ? sum : 0.0f, room);
    if (thread_x() == 0) a->parts[block_x()] = sum;
}

KERNEL(router_z_join, router_args, GPU_WARP) {
    float sum = 0;
    for (int32_t s = (int32_t)lane(); s < a->slices; s += GPU_WARP) sum += a->parts[s];
    sum = warp_sum(sum);
    if (lane() == 0) *a->loss = sum;
}

KERNEL(router_z_bwd, router_args, ROUTER_THREADS) {
    int64_t n = my_row();
    if (n >= a->rows) return;
    const STORE *x = row_of(a->logits, n);
    float max = row_max(a, x), z = max + logf(row_exps(a, x, max)), by = 2 * *a->dloss * z;
    for (int32_t e = (int32_t)lane(); e < a->E; e += GPU_WARP)
        put(row_of(a->dlogits, n) + e, by * expf(load(x[e]) - z), a->add);
}

#ifndef __CUDACC__
#include "op/cuda/host.h"
#include "op/router.h"

static router_args router_open(const op_call *c, int64_t rows, int64_t E) {
    const op_router *r = &c->attr->router;
    router_args a = {.rows = rows, .E = (int32_t)E, .k = r->k, .scale = r->scale};
    if (r->groups > 1) a.groups = r->groups, a.kept = r->kept, a.best = r->best;
    a.sigmoid = r->sigmoid, a.renormalise = r->renormalise, a.add = op_accumulates(c, 0);
    return a;
}

/* A warp for each row. */
static void launch_rows(const op_call *c, const gpu_kernel *k, const router_args *a) {
    uint32_t threads = threads_for(a->rows * GPU_WARP, ROUTER_THREADS);
    launch(c, k, (gpu_grid){blocks_for(a->rows, threads / GPU_WARP), 1, 1, threads, 0}, a);
}

static void probs_fwd(const op_call *c) {
    router_args a = router_open(c, c->in[0].rows, c->in[0].cols);
    a.logits = mat_of(&c->in[0]), a.probs = mat_of(&c->out[0]);
    launch_rows(c, &router_probs_fwd, &a);
}

static void probs_bwd(const op_call *c) {
    router_args a = router_open(c, c->din[0].rows, c->din[0].cols);
    if (!c->din[0].data) return;
    a.probs = mat_of(&c->out[0]), a.dprobs = mat_of(&c->dout[0]), a.dlogits = mat_of(&c->din[0]);
    launch_rows(c, &router_probs_bwd, &a);
}

const op_impl CUDA_IMPL(ROUTER_PROBS) = {probs_fwd, probs_bwd, NULL, NULL};

static void pick_fwd(const op_call *c) {
    router_args a = router_open(c, c->in[0].rows, c->in[0].cols);
    a.probs = mat_of(&c->in[0]), a.bias = c->in[1].data, a.room = c->ws;
    a.weights = mat_of(&c->out[0]), a.picks = mat_of(&c->out[1]);
    launch_rows(c, &router_pick_fwd, &a);
}

static void pick_bwd(const op_call *c) {
    router_args a = router_open(c, c->in[0].rows, c->in[0].cols);
    a.probs = mat_of(&c->in[0]), a.picks = mat_of(&c->out[1]), a.dweights = mat_of(&c->dout[0]);
    a.dprobs = mat_of(&c->din[0]), a.dbias = c->din[1].data;
    uint32_t threads = threads_for(a.E, ROUTER_THREADS);
    if (a.dbias && !op_accumulates(c, 1))
        launch(c, &router_bias_bwd, (gpu_grid){blocks_for(a.E, threads), 1, 1, threads, 0}, &a);
    if (a.dprobs.p) launch_rows(c, &router_pick_bwd, &a);
}

static void pick_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] =
        io->in[0].rows * router_room(io->in[0].cols, &io->attr->router) * (int64_t)sizeof(double);
}

const op_impl CUDA_IMPL(ROUTER_PICK) = {pick_fwd, pick_bwd, NULL, pick_workspace};

static int32_t z_slices(int64_t rows) {
    int64_t s = rows / 32;
    return (int32_t)(s < 1 ? 1 : s > Z_SLICES ? Z_SLICES : s);
}

static void z_fwd(const op_call *c) {
    router_args a = router_open(c, c->in[0].rows, c->in[0].cols);
    a.logits = mat_of(&c->in[0]), a.parts = c->ws, a.loss = c->out[0].data;
    a.slices = z_slices(a.rows);
    uint32_t threads = threads_for(a.rows * GPU_WARP, ROUTER_THREADS);
    launch(c, &router_z_parts, (gpu_grid){(uint32_t)a.slices, 1, 1, threads, 0}, &a);
    launch(c, &router_z_join, (gpu_grid){1, 1, 1, GPU_WARP, 0}, &a);
}

static void z_bwd(const op_call *c) {
    router_args a = router_open(c, c->in[0].rows, c->in[0].cols);
    if (!c->din[0].data) return;
    a.logits = mat_of(&c->in[0]), a.dloss = c->dout[0].data, a.dlogits = mat_of(&c->din[0]);
    launch_rows(c, &router_z_bwd, &a);
}

static void z_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = z_slices(io->in[0].rows) * (int64_t)sizeof(float);
}

const op_impl CUDA_IMPL(ROUTER_Z) = {z_fwd, z_bwd, NULL, z_workspace};
#endif
