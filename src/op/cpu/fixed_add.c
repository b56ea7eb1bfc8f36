/* FIXED_ADD: a contribution to a parameter gradient joins its integer sum. Bandwidth-bound. */
#include "op/cpu/ops.h"
#include "op/cpu/wide.h"

/* What is the same for all elements. */
typedef struct fixed_rule {
    bool add;
    float unscale, limit;
} fixed_rule;

/* VW elements; lanes of *beyond are set where x is not within the limit. */
V_INLINE void add_vector(const float *x, int64_t *sum, fixed_rule rule, vi *beyond) {
    vf v = v_load(x) * rule.unscale, limit = v_set1(rule.limit);
    vf_half half[2];
    *beyond |= ~(v_abs(v) <= limit);
    v = v_min(v_max(v, -limit), limit);
    memcpy(half, &v, sizeof half);
    for (int h = 0; h < 2; h++) {
        vs f = fixed_from_float(half[h]);
        if (rule.add) f = (vs)((vq)f + (vq)vs_load(sum + h * VQ_LANES));
        vs_store(sum + h * VQ_LANES, f);
    }
}

/* The last n < VW elements. */
V_INLINE void add_rest(const float *x, int64_t *sum, int64_t n, fixed_rule rule, vi *beyond) {
    float from[VW] = {0};
    int64_t to[VW] = {0};
    memcpy(from, x, (size_t)n * sizeof *from);
    if (rule.add) memcpy(to, sum, (size_t)n * sizeof *to);
    add_vector(from, to, rule, beyond);
    memcpy(sum, to, (size_t)n * sizeof *to);
}

/* Whether all were within the limit. */
static bool add_block(const float *x, int64_t *sum, int64_t n, fixed_rule rule) {
    vi beyond = {0};
    int64_t i = 0;
    for (; i + VW <= n; i += VW) add_vector(x + i, sum + i, rule, &beyond);
    if (i < n) add_rest(x + i, sum + i, n - i, rule, &beyond);
    for (int k = 1; k < VW; k++) beyond[0] |= beyond[k];
    return beyond[0] == 0;
}

static void fixed_add_fwd(const op_call *c) {
    enum { BLOCK = 1 << 12 };
    const tensor *x = &c->in[0], *sum = &c->out[0];
    fixed_rule rule = {op_accumulates(c, 0), c->run->fixed_unscale, c->run->fixed_limit};
    bool beyond = false;
    int64_t n = x->rows * x->cols;
#pragma omp parallel for num_threads(loop_threads(c, n)) schedule(static) reduction(|| : beyond)
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t some = n - i < BLOCK ? n - i : BLOCK;
        beyond |= !add_block((const float *)x->data + i, (int64_t *)sum->data + i, some, rule);
    }
    if (beyond) *c->run->fixed_overflow = true;
}

const op_impl CPU_FN(cpu_fixed_add) = {fixed_add_fwd, NULL, NULL, NULL};
