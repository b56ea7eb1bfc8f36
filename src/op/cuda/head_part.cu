/* HEAD_STATS and HEAD_GRAD: the head over a vocabulary that ranks share, between its products.
 *
 *   stats_r = (m_r, s_r, t_r): largest logit of rank r's part, sum of exp(logit - m_r), the target's
 *   lse = m + log sum_r s_r exp(m_r - m), m = max m_r;  nll = lse - sum_r t_r
 *   dlogit = scale (1 + 2 z lse) exp(logit - lse) - scale [target], times the slope of the cap
 *
 * A block takes a row. HEAD_STATS reads each logit once and writes it (in place without a cap: not at
 * all), HEAD_GRAD reads and writes it once; about 10 FLOPs each, with a cap 30. */
#include "op/cuda/numbers.h"
#include "op/cuda/store.h"

typedef struct part_args {
    mat x, targets, y; /* logits; y: capped logits f32, or dlogits */
    mat stats, nll, lse, dnll;
    int64_t rows;
    int32_t cols, ranks;
    int32_t first, all_rows;
    const run_numbers *run;
    float cap, z_loss, weight;
    int32_t write; /* y is wanted, and not there already */
} part_args;

enum { PART_THREADS = 512, AT_ONCE = 4 }; /* loads that a thread has under way */

GPU_FN float capped(const part_args *a, float x) {
    return a->cap > 0 ? a->cap * tanhf(x / a->cap) : x;
}

/* A running maximum and the sum of exp(x - maximum). */
typedef struct softsum {
    float max, sum;
} softsum;

GPU_FN softsum join(softsum p, softsum q) {
    softsum r;
    r.max = gpu_max(p.max, q.max);
    r.sum =
        p.max == q.max ? p.sum + q.sum : p.sum * expf(p.max - r.max) + q.sum * expf(q.max - r.max);
    return r;
}

GPU_FN softsum join_warp(softsum s) {
    for (int m = 16; m > 0; m >>= 1) {
        softsum other;
        other.max = shuffle_xor(s.max, m);
        other.sum = shuffle_xor(s.sum, m);
        s = join(s, other);
    }
    return s;
}

KERNEL(head_stats, part_args, PART_THREADS) {
    SHARED(softsum, room, PART_THREADS / GPU_WARP);
    int64_t n = block_x();
    const float *x = f32_row_of(a->x, n);
    float *y = f32_row_of(a->y, n);
    softsum mine = {-INFINITY, 0};
    int32_t threads = (int32_t)threads_x();
    for (int32_t v = (int32_t)thread_x(); v < a->cols; v += AT_ONCE * threads) {
        float some[AT_ONCE];
        softsum here = {-INFINITY, 0};
        for (int k = 0; k < AT_ONCE; k++)
            some[k] = v + k * threads < a->cols ? capped(a, x[v + k * threads]) : -INFINITY;
        for (int k = 0; k < AT_ONCE; k++) {
            here.max = gpu_max(here.max, some[k]);
            if (a->write && v + k * threads < a->cols) y[v + k * threads] = some[k];
        }
        for (int k = 0; k < AT_ONCE; k++)
            if (v + k * threads < a->cols) here.sum += expf(some[k] - here.max);
        mine = join(mine, here);
    }
    mine = join_warp(mine);
    if (lane() == 0) room[warp()] = mine;
    sync_block();
    if (thread_x() != 0) return;
    for (uint32_t w = 1; w < threads_x() / GPU_WARP; w++) mine = join(mine, room[w]);
    int32_t target = *i32_row_of(a->targets, n), at = target - a->first;
    kernel_check(target < a->all_rows, "finds a target outside the vocabulary");
    float *stats = f32_row_of(a->stats, n);
    stats[0] = mine.max;
    stats[1] = mine.sum;
    stats[2] = target >= 0 && at >= 0 && at < a->cols ? y[at] : 0.0f;
}

/* Of all ranks, in their order; and the sum of the target's logits. */
GPU_FN softsum all_stats(const part_args *a, int64_t n, float *at_target) {
    softsum all = {-INFINITY, 0};
    *at_target = 0;
    for (int32_t r = 0; r < a->ranks; r++) {
        const float *s = f32_row_of(a->stats, r * a->rows + n);
        softsum part = {s[0], s[1]};
        all = join(all, part);
        *at_target += s[2];
    }
    return all;
}

/* Elements may become narrower in place: a row's are read before those that lie there are written. */
KERNEL(head_grad, part_args, PART_THREADS) {
    int64_t n = block_x();
    float at_target;
    softsum all = all_stats(a, n, &at_target);
    float lse = all.max + logf(all.sum);
    int32_t target = *i32_row_of(a->targets, n);
    if (thread_x() == 0) {
        *f32_row_of(a->nll, n) = target < 0 ? 0.0f : lse - at_target;
        *f32_row_of(a->lse, n) = lse;
    }
    if (!a->write) return;
    const float *x = f32_row_of(a->x, n);
    STORE *y = row_of(a->y, n);
    float given = a->dnll.p ? *f32_row_of(a->dnll, n) : a->run->grad_scale * a->weight;
    float scale = target < 0 ? 0.0f : given, each = scale * (1 + 2 * a->z_loss * lse);
    int32_t threads = (int32_t)threads_x();
    for (int32_t v = (int32_t)thread_x(); v - (int32_t)thread_x() < a->cols;
         v += AT_ONCE * threads) {
        float g[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++)
            g[k] = v + k * threads < a->cols ? x[v + k * threads] : 0.0f;
        for (int k = 0; k < AT_ONCE; k++) {
            float t = a->cap > 0 ? g[k] / a->cap : 0.0f;
            bool is_target = v + k * threads + a->first == target;
            g[k] = (each * expf(g[k] - lse) - (is_target ? scale : 0.0f)) * (1 - t * t);
        }
        sync_block();
        for (int k = 0; k < AT_ONCE; k++)
            if (v + k * threads < a->cols) y[v + k * threads] = store(g[k]);
    }
}

#ifndef __CUDACC__
#include "op/cuda/host.h"

static part_args part_open(const op_call *c) {
    const tensor *x = &c->in[0];
    part_args a = {.x = mat_of(x), .targets = mat_of(&c->in[1]), .y = mat_of(&c->out[0])};
    a.rows = x->rows, a.cols = (int32_t)x->cols;
    a.first = c->attr->head.first, a.all_rows = c->attr->head.all_rows;
    a.cap = c->attr->head.softcap, a.z_loss = c->attr->head.z_loss, a.weight = c->attr->head.weight;
    return a;
}

static void run_rows(const op_call *c, const gpu_kernel *k, const part_args *a) {
    uint32_t threads = threads_for(a->cols / 4, PART_THREADS);
    launch(c, k, (gpu_grid){(uint32_t)a->rows, 1, 1, threads, 0}, a);
}

static void head_stats_fwd(const op_call *c) {
    part_args a = part_open(c);
    a.stats = mat_of(&c->out[1]);
    a.write = a.cap > 0 || a.x.p != a.y.p;
    run_rows(c, &head_stats, &a);
}

static void head_grad_fwd(const op_call *c) {
    part_args a = part_open(c);
    a.stats = mat_of(&c->in[2]), a.dnll = mat_of(&c->in[3]), a.nll = mat_of(&c->out[1]),
    a.lse = mat_of(&c->out[2]);
    a.ranks = (int32_t)(c->in[2].rows / a.rows);
    a.run = cuda_numbers(c->run->dev);
    a.write = c->out[0].data != NULL;
    run_rows(c, &head_grad, &a);
}

const op_impl CUDA_IMPL(HEAD_STATS) = {head_stats_fwd, NULL, NULL, NULL};
const op_impl CUDA_IMPL(HEAD_GRAD) = {head_grad_fwd, NULL, NULL, NULL};
#endif
