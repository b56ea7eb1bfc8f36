/* The head over a vocabulary that ranks share, between its products (see head_ce.c for the
 * mathematics).
 *
 *   stats_r = (m_r, s_r, t_r): largest logit of rank r's part, sum of exp(logit - m_r), the
 * target's lse = m + log sum_r s_r exp(m_r - m), m = max m_r;  nll = lse - sum_r t_r */
#include "op/ref/ref.h"

static void head_stats_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    ACC cap = c->attr->head.softcap;
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        const REAL *from = real_row_of(x, n);
        REAL *to = real_row_of(y, n), *stats = real_row_of(&c->out[1], n), max = -INFINITY;
        for (int64_t v = 0; v < x->cols; v++) {
            to[v] = cap > 0 ? (REAL)(cap * tanh((ACC)from[v] / cap)) : from[v];
            max = to[v] > max ? to[v] : max;
        }
        ACC sum = 0;
        for (int64_t v = 0; v < x->cols; v++) sum += (ACC)r_exp(to[v] - max);
        int64_t target = int_at(&c->in[1], n), at = target - c->attr->head.first;
        CHECK(target < c->attr->head.all_rows, "target %lld is outside the vocabulary of %d",
              (long long)target, (int)c->attr->head.all_rows);
        stats[0] = max;
        stats[1] = (REAL)sum;
        stats[2] = target >= 0 && at >= 0 && at < x->cols ? to[at] : 0;
    }
}

static void grad_row(const op_call *c, int64_t n, int64_t target, ACC lse) {
    const REAL *logits = real_row_of(&c->in[0], n);
    STORE *d = row_of(&c->out[0], n);
    ACC cap = c->attr->head.softcap;
    ACC given = (ACC)c->run->grad_scale * (ACC)c->attr->head.weight;
    if (c->in[3].data) given = (ACC)*real_row_of(&c->in[3], n);
    ACC s = target < 0 ? 0 : given;
    ACC scale = s * (1 + 2 * (ACC)c->attr->head.z_loss * lse);
    for (int64_t v = 0; v < c->in[0].cols; v++) {
        ACC t = cap > 0 ? (ACC)logits[v] / cap : 0;
        ACC g = scale * (ACC)r_exp((REAL)((ACC)logits[v] - lse));
        if (v + c->attr->head.first == target) g -= s;
        d[v] = store(g * (1 - t * t));
    }
}

static void head_grad_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *stats = &c->in[2];
    int64_t ranks = stats->rows / x->rows;
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++) {
        ACC max = -INFINITY, sum = 0, at_target = 0;
        for (int64_t r = 0; r < ranks; r++)
            max = fmax(max, (ACC)real_row_of(stats, r * x->rows + n)[0]);
        for (int64_t r = 0; r < ranks; r++) {
            const REAL *s = real_row_of(stats, r * x->rows + n);
            sum += (ACC)s[1] * exp((ACC)s[0] - max);
            at_target += (ACC)s[2];
        }
        int64_t target = int_at(&c->in[1], n);
        ACC lse = max + log(sum);
        *real_row_of(&c->out[1], n) = target < 0 ? 0 : (REAL)(lse - at_target);
        *real_row_of(&c->out[2], n) = (REAL)lse;
        if (c->out[0].data) grad_row(c, n, target, lse);
    }
}

const op_impl REF_IMPL(HEAD_STATS) = {head_stats_fwd, NULL, NULL, NULL};
const op_impl REF_IMPL(HEAD_GRAD) = {head_grad_fwd, NULL, NULL, NULL};
