/* Routers of experts: which experts a token goes through, and how evenly they are used.
 *
 * Backward. Softmax: dl_i = p_i (dp_i - sum_j p_j dp_j); sigmoid: dl = p (1 - p) dp. Weights w_j = c p_j, or
 * c p_j / S with S = sum of the picks' p: dp_j = c dw_j, or c / S (dw_j - sum_i dw_i p_i / S). */
#include "op/ref/ref.h"
#include "op/router.h"

/* ---- probabilities ---- */

static void router_probs_fwd(const op_call *c) {
    const tensor *l = &c->in[0], *probs = &c->out[0];
    PARALLEL_FOR
    for (int64_t n = 0; n < l->rows; n++) {
        const STORE *x = row_of(l, n);
        REAL *p = real_row_of(probs, n), max = -INFINITY;
        ACC sum = 0;
        for (int64_t e = 0; e < l->cols; e++) max = load(x[e]) > max ? load(x[e]) : max;
        for (int64_t e = 0; e < l->cols; e++) {
            p[e] = c->attr->router.sigmoid ? 1 / (1 + r_exp(-load(x[e]))) : r_exp(load(x[e]) - max);
            sum += p[e];
        }
        for (int64_t e = 0; !c->attr->router.sigmoid && e < l->cols; e++) p[e] = (REAL)(p[e] / sum);
    }
}

static void router_probs_bwd(const op_call *c) {
    const tensor *probs = &c->out[0], *dl = &c->din[0];
    if (!dl->data) return;
    bool add = op_accumulates(c, 0), sigmoid = c->attr->router.sigmoid;
    PARALLEL_FOR
    for (int64_t n = 0; n < dl->rows; n++) {
        const REAL *p = real_row_of(probs, n), *dp = real_row_of(&c->dout[0], n);
        ACC mean = 0;
        for (int64_t e = 0; !sigmoid && e < dl->cols; e++) mean += (ACC)p[e] * dp[e];
        for (int64_t e = 0; e < dl->cols; e++)
            put(row_of(dl, n) + e, p[e] * (sigmoid ? (1 - (ACC)p[e]) * dp[e] : dp[e] - mean), add);
    }
}

const op_impl REF_IMPL(ROUTER_PROBS) = {router_probs_fwd, router_probs_bwd, NULL, NULL};

/* ---- picks ---- */

static void weigh(const op_call *c, const REAL *p, const int32_t *pick, REAL *w) {
    const op_router *r = &c->attr->router;
    ACC sum = 0;
    for (int j = 0; j < r->k; j++) sum += p[pick[j]];
    for (int j = 0; j < r->k; j++)
        w[j] = (REAL)((ACC)r->scale * p[pick[j]] / (r->renormalise ? sum + ROUTER_TINY : 1));
}

static void router_pick_fwd(const op_call *c) {
    const tensor *probs = &c->in[0], *picks = &c->out[1];
    const REAL *bias = c->in[1].data ? real_row_of(&c->in[1], 0) : NULL;
    int64_t E = probs->cols;
    PARALLEL_FOR
    for (int64_t n = 0; n < probs->rows; n++) {
        double *score = (double *)c->ws + n * router_room(E, &c->attr->router);
        const REAL *p = real_row_of(probs, n);
        int32_t *pick = (int32_t *)picks->data + n * picks->ld;
        for (int64_t e = 0; e < E; e++) score[e] = (double)p[e] + (bias ? (double)bias[e] : 0);
        router_choose(&c->attr->router, score, E, pick);
        weigh(c, p, pick, real_row_of(&c->out[0], n));
    }
}

static void router_pick_bwd(const op_call *c) {
    const tensor *probs = &c->in[0], *picks = &c->out[1], *dp = &c->din[0];
    const op_router *r = &c->attr->router;
    const tensor *dbias = &c->din[1];
    for (int64_t e = 0; dbias->data && e < dbias->cols; e++)
        put_real(real_row_of(dbias, 0) + e, 0, op_accumulates(c, 1));
    if (!dp->data) return;
    bool add = op_accumulates(c, 0);
    PARALLEL_FOR
    for (int64_t n = 0; n < dp->rows; n++) {
        const REAL *p = real_row_of(probs, n), *dw = real_row_of(&c->dout[0], n);
        const int32_t *pick = (const int32_t *)picks->data + n * picks->ld;
        REAL *to = real_row_of(dp, n);
        ACC sum = 0, mean = 0;
        for (int j = 0; j < r->k; j++) sum += p[pick[j]], mean += (ACC)p[pick[j]] * dw[j];
        sum += ROUTER_TINY;
        for (int64_t e = 0; !add && e < dp->cols; e++) to[e] = 0;
        for (int j = 0; j < r->k; j++)
            to[pick[j]] += (REAL)(r->scale * (r->renormalise ? (dw[j] - mean / sum) / sum : dw[j]));
    }
}

static void router_pick_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] =
        io->in[0].rows * router_room(io->in[0].cols, &io->attr->router) * (int64_t)sizeof(double);
}

const op_impl REF_IMPL(ROUTER_PICK) = {router_pick_fwd, router_pick_bwd, NULL,
                                       router_pick_workspace};

/* Pick number i, token by token. */
static int32_t *pick_at(const tensor *t, int64_t i) {
    return (int32_t *)t->data + i / t->cols * t->ld + i % t->cols;
}

/* Counts in starts[e + 1] the picks that expert e takes; the others get slot -1. */
static void take_picks(const op_call *c, int32_t *starts) {
    const tensor *picks = &c->in[1];
    int32_t *taken = c->ws, E = c->attr->router.experts, capacity = c->attr->router.capacity;
    int64_t M = picks->rows * picks->cols, of_sequence = M / router_sequences(&c->attr->router);
    for (int32_t e = 0; e <= E; e++) starts[e] = 0;
    for (int64_t i = 0; i < M; i++) {
        int32_t e = *pick_at(picks, i);
        CHECK(e >= 0 && e < E, "expert %d of %d", e, E);
        for (int32_t j = 0; i % of_sequence == 0 && j < E; j++) taken[j] = 0;
        bool takes = capacity == 0 || taken[e] < capacity;
        taken[e] += takes, starts[e + 1] += takes;
        *pick_at(&c->out[1], i) = takes ? 0 : -1;
    }
}

static void router_sort_fwd(const op_call *c) {
    const tensor *picks = &c->in[1], *rows = &c->out[0], *slots = &c->out[1];
    int32_t *starts = c->out[2].data, E = c->attr->router.experts;
    take_picks(c, starts);
    for (int32_t e = 0; e < E; e++) starts[e + 1] += starts[e];
    for (int64_t place = starts[E]; place < rows->rows; place++) *pick_at(rows, place) = -1;
    for (int64_t i = 0; i < picks->rows * picks->cols; i++) {
        if (*pick_at(slots, i) < 0) continue;
        int32_t place = starts[*pick_at(picks, i)]++;
        *pick_at(rows, place) = (int32_t)(i / picks->cols);
        *pick_at(slots, i) = place;
    }
    for (int32_t e = E; e > 0; e--) starts[e] = starts[e - 1];
    starts[0] = 0;
}

static void router_sort_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = io->attr->router.experts * (int64_t)sizeof(int32_t);
}

const op_impl REF_IMPL(ROUTER_SORT) = {router_sort_fwd, NULL, NULL, router_sort_workspace};

/* ---- load and balance ---- */

/* What the probs of row n are divided by. */
static ACC share_of(const op_call *c, const tensor *probs, int64_t n) {
    ACC sum = 0;
    if (!c->attr->router.sigmoid) return 1;
    for (int64_t e = 0; e < probs->cols; e++) sum += real_row_of(probs, n)[e];
    return sum + ROUTER_TINY;
}

/* The same of all rows, in the workspace. */
static const double *all_shares(const op_call *c) {
    double *share = c->ws;
    PARALLEL_FOR
    for (int64_t n = 0; n < c->in[0].rows; n++) share[n] = (double)share_of(c, &c->in[0], n);
    return share;
}

static void shares_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = io->in[0].rows * (int64_t)sizeof(double);
}

/* Picks and probs of expert e in the rows of sequence s. */
static void load_of(const op_call *c, const double *share, int64_t s, int64_t e, ACC *count,
                    ACC *sum) {
    const tensor *probs = &c->in[0], *picks = &c->in[1];
    int64_t rows = probs->rows / router_sequences(&c->attr->router);
    for (int64_t n = s * rows; n < (s + 1) * rows; n++) {
        const int32_t *pick = (const int32_t *)picks->data + n * picks->ld;
        *sum += real_row_of(probs, n)[e] / (ACC)share[n];
        for (int64_t j = 0; j < picks->cols; j++) *count += pick[j] == e;
    }
}

static void router_load_fwd(const op_call *c) {
    const tensor *out = &c->out[0];
    const double *share = all_shares(c);
    int64_t S = router_sequences(&c->attr->router);
    PARALLEL_FOR_2
    for (int64_t s = 0; s < S; s++) {
        for (int64_t e = 0; e < out->cols; e++) {
            ACC sum = 0, count = 0;
            load_of(c, share, s, e, &count, &sum);
            if (c->in[2].data) {
                count += real_row_of(&c->in[2], s)[e];
                sum += real_row_of(&c->in[2], S + s)[e];
            }
            real_row_of(out, s)[e] = (REAL)count;
            real_row_of(out, S + s)[e] = (REAL)sum;
        }
    }
}

/* Of q = p / sum of p: dp_e = (dq_e - sum_i dq_i q_i) / sum of p. */
static void router_load_bwd(const op_call *c) {
    const tensor *dp = &c->din[0], *probs = &c->in[0];
    if (!dp->data) return;
    bool add = op_accumulates(c, 0), sigmoid = c->attr->router.sigmoid;
    int64_t S = router_sequences(&c->attr->router), rows = dp->rows / S;
    PARALLEL_FOR
    for (int64_t n = 0; n < dp->rows; n++) {
        const REAL *dq = real_row_of(&c->dout[0], S + n / rows);
        ACC by = share_of(c, probs, n), mean = 0;
        for (int64_t e = 0; sigmoid && e < dp->cols; e++)
            mean += (ACC)dq[e] * real_row_of(probs, n)[e] / by;
        for (int64_t e = 0; e < dp->cols; e++)
            put_real(real_row_of(dp, n) + e, (dq[e] - mean) / by, add);
    }
}

const op_impl REF_IMPL(ROUTER_LOAD) = {router_load_fwd, router_load_bwd, NULL, shares_workspace};

/* What the sums of probs of sequence s are multiplied by: E f_e / layers. */
static ACC weight_of(const op_call *c, int64_t s, int64_t e) {
    const tensor *from = c->in[1].data ? &c->in[1] : &c->in[0];
    const REAL *count = real_row_of(from, c->in[1].data ? 0 : s);
    ACC sum = 0;
    for (int64_t i = 0; i < from->cols; i++) sum += count[i];
    ACC f = sum > 0 ? (ACC)c->attr->router.k * count[e] / sum : 0;
    return (ACC)from->cols * f / c->attr->router.layers;
}

static void router_balance_fwd(const op_call *c) {
    const tensor *l = &c->in[0];
    ACC sum = 0;
    for (int64_t s = 0; s < l->rows / 2; s++)
        for (int64_t e = 0; e < l->cols; e++)
            sum += weight_of(c, s, e) * real_row_of(l, l->rows / 2 + s)[e];
    *real_row_of(&c->out[0], 0) = (REAL)sum;
}

static void router_balance_bwd(const op_call *c) {
    const tensor *l = &c->in[0], *dl = &c->din[0];
    if (!dl->data) return;
    bool add = op_accumulates(c, 0);
    ACC by = *real_row_of(&c->dout[0], 0);
    for (int64_t s = 0; s < l->rows / 2; s++) {
        for (int64_t e = 0; e < l->cols; e++) {
            put_real(real_row_of(dl, s) + e, 0, add);
            put_real(real_row_of(dl, l->rows / 2 + s) + e, by * weight_of(c, s, e), add);
        }
    }
}

const op_impl REF_IMPL(ROUTER_BALANCE) = {router_balance_fwd, router_balance_bwd, NULL, NULL};

/* ---- the z-loss ---- */

static ACC log_sum_exp(const STORE *x, int64_t n) {
    ACC max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < n; e++) max = load(x[e]) > max ? load(x[e]) : max;
    for (int64_t e = 0; e < n; e++) sum += r_exp((REAL)(load(x[e]) - max));
    return max + r_log((REAL)sum);
}

static void router_z_fwd(const op_call *c) {
    const tensor *l = &c->in[0];
    ACC sum = 0;
    for (int64_t n = 0; n < l->rows; n++) {
        ACC z = log_sum_exp(row_of(l, n), l->cols);
        sum += z * z;
    }
    *real_row_of(&c->out[0], 0) = (REAL)sum;
}

static void router_z_bwd(const op_call *c) {
    const tensor *l = &c->in[0], *dl = &c->din[0];
    if (!dl->data) return;
    bool add = op_accumulates(c, 0);
    ACC by = 2 * (ACC)*real_row_of(&c->dout[0], 0);
    PARALLEL_FOR
    for (int64_t n = 0; n < l->rows; n++) {
        ACC z = log_sum_exp(row_of(l, n), l->cols);
        for (int64_t e = 0; e < l->cols; e++)
            put(row_of(dl, n) + e, by * z * r_exp((REAL)(load(row_of(l, n)[e]) - z)), add);
    }
}

const op_impl REF_IMPL(ROUTER_Z) = {router_z_fwd, router_z_bwd, NULL, NULL};

/* ---- for reports ---- */

static void router_tally_fwd(const op_call *c) {
    const tensor *probs = &c->in[0], *out = &c->out[0];
    const int32_t *starts = c->in[2].data;
    const double *share = all_shares(c);
    PARALLEL_FOR
    for (int64_t e = 0; e < probs->cols; e++) {
        ACC sum = 0, count = 0, entropy = 0;
        for (int64_t n = 0; n < probs->rows; n++) {
            const int32_t *pick = (const int32_t *)c->in[1].data + n * c->in[1].ld;
            ACC p = real_row_of(probs, n)[e] / (ACC)share[n];
            sum += p;
            entropy -= p > 0 ? p * r_log((REAL)p) : 0;
            for (int64_t j = 0; j < c->in[1].cols; j++) count += pick[j] == e;
        }
        real_row_of(out, 0)[e] = (REAL)count;
        real_row_of(out, 1)[e] = (REAL)sum;
        real_row_of(out, 2)[e] = (REAL)entropy;
        real_row_of(out, 3)[e] = (REAL)(starts[e + 1] - starts[e]);
    }
}

const op_impl REF_IMPL(ROUTER_TALLY) = {router_tally_fwd, NULL, NULL, shares_workspace};
