/* HEAD_STATS and HEAD_GRAD: what stands between the products of a head whose vocabulary ranks
 * share. Bound by the exponentials, which are computed twice: the first time only a rank's own
 * maximum is known. */
#include "op/cpu/head_rows.h"
#include "op/cpu/ops.h"

static float *f32_row(const tensor *t, int64_t n) {
    return (float *)t->data + n * t->ld;
}

static int64_t target_at(const op_call *c, int64_t n) {
    int64_t target = ((const int32_t *)c->in[1].data)[n * c->in[1].ld];
    CHECK(target < c->attr->head.all_rows, "target %lld is outside the vocabulary of %d",
          (long long)target, (int)c->attr->head.all_rows);
    return target;
}

/* Column of this part that target is; -1: it is in another, or there is none. */
static int64_t column_of(const op_call *c, int64_t target) {
    int64_t at = target - c->attr->head.first;
    return target >= 0 && at >= 0 && at < c->in[0].cols ? at : -1;
}

static void stats_row(const op_call *c, int64_t n) {
    int64_t V = c->in[0].cols, at = column_of(c, target_at(c, n));
    float *logits = f32_row(&c->out[0], n), *stats = f32_row(&c->out[1], n);
    if (logits != f32_row(&c->in[0], n))
        memcpy(logits, f32_row(&c->in[0], n), (size_t)V * sizeof *logits);
    if (c->attr->head.softcap > 0.0f) row_cap(logits, V, c->attr->head.softcap);
    stats[0] = row_max(logits, V);
    stats[1] = row_exp(logits, V, stats[0], true);
    stats[2] = at >= 0 ? logits[at] : 0.0f;
}

static void head_stats_fwd(const op_call *c) {
    int64_t rows = c->in[0].rows;
#pragma omp parallel for num_threads(loop_threads(c, rows * c->in[0].cols)) schedule(static)
    for (int64_t n = 0; n < rows; n++) stats_row(c, n);
}

typedef struct joined {
    double lse, at_target;
    float max, sum;
} joined;

/* Row n of all ranks, in their order. */
static joined join_stats(const op_call *c, int64_t n) {
    const tensor *stats = &c->in[2];
    int64_t rows = c->in[0].rows, ranks = stats->rows / rows;
    float max = -INFINITY;
    for (int64_t r = 0; r < ranks; r++) max = fmaxf(max, f32_row(stats, r * rows + n)[0]);
    double sum = 0.0, at_target = 0.0;
    for (int64_t r = 0; r < ranks; r++) {
        const float *s = f32_row(stats, r * rows + n);
        sum += (double)s[1] * exp((double)s[0] - (double)max);
        at_target += (double)s[2];
    }
    return (joined){(double)max + log(sum), at_target, max, (float)sum};
}

/* (exp(x - max) scale) of a row; `to` may be the same memory with narrower elements. */
V_INLINE void row_softmax(void *to, const float *x, int64_t cols, float max, float scale,
                          dtype dt) {
    FOR_VECTORS(cols, j, n)
    put_upto(to, j, v_exp(get_upto(x, j, n, DT_F32) - max) * scale, n, dt);
}

V_INLINE void grad_row(const op_call *c, int64_t n, int64_t target, joined k, dtype dt) {
    const float *logits = f32_row(&c->in[0], n);
    const tensor *d = &c->out[0];
    void *to = (char *)d->data + n * d->ld * v_element_bytes(dt);
    int64_t V = c->in[0].cols, at = column_of(c, target);
    if (target < 0) {
        memset(to, 0, (size_t)(V * v_element_bytes(dt)));
        return;
    }
    float each = c->run->grad_scale * c->attr->head.weight;
    float s = c->in[3].data ? *f32_row(&c->in[3], n) : each;
    float cap = c->attr->head.softcap;
    float scale = s * (float)(1.0 + 2.0 * (double)c->attr->head.z_loss * k.lse) / k.sum;
    float at_target = at >= 0 ? logits[at] : 0.0f;
    float d_target;
    if (cap > 0.0f) {
        d_target = uncap(v_set1(at_target), k.max, scale, s, 1.0f / cap)[0];
        row_uncap(to, logits, V, k.max, scale, 1.0f / cap, dt);
    } else {
        d_target = v_exp(v_set1(at_target - k.max))[0] * scale - s;
        row_softmax(to, logits, V, k.max, scale, dt);
    }
    if (at >= 0) s_put(to, at, d_target, dt);
}

static void head_grad_fwd(const op_call *c) {
    int64_t rows = c->in[0].rows;
#pragma omp parallel for num_threads(loop_threads(c, rows * c->in[0].cols)) schedule(static)
    for (int64_t n = 0; n < rows; n++) {
        int64_t target = target_at(c, n);
        joined k = join_stats(c, n);
        *f32_row(&c->out[1], n) = target >= 0 ? (float)(k.lse - k.at_target) : 0.0f;
        *f32_row(&c->out[2], n) = (float)k.lse;
        if (c->out[0].data) WITH_DTYPE(c->out[0].dt, grad_row, c, n, target, k);
    }
}

const op_impl CPU_FN(cpu_head_stats) = {head_stats_fwd, NULL, NULL, NULL};
const op_impl CPU_FN(cpu_head_grad) = {head_grad_fwd, NULL, NULL, NULL};
