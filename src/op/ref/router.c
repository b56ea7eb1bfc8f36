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

static void router_sort_fwd(const op_call *c) {
    const tensor *picks = &c->in[1], *rows = &c->out[0];
    int32_t *starts = c->out[2].data, E = c->attr->router.experts;
    int64_t M = picks->rows * picks->cols;
    for (int32_t e = 0; e <= E; e++) starts[e] = 0;
    for (int64_t i = 0; i < M; i++) {
        int32_t e = *pick_at(picks, i);
        CHECK(e >= 0 && e < E, "expert %d of %d", e, E);
        starts[e + 1]++;
    }
    for (int32_t e = 0; e < E; e++) starts[e + 1] += starts[e];
    for (int64_t i = 0; i < M; i++) {
        int32_t place = starts[*pick_at(picks, i)]++;
        *pick_at(rows, place) = (int32_t)(i / picks->cols);
        *pick_at(&c->out[1], i) = place;
    }
    for (int32_t e = E; e > 0; e--) starts[e] = starts[e - 1];
    starts[0] = 0;
}

const op_impl REF_IMPL(ROUTER_SORT) = {router_sort_fwd, NULL, NULL, NULL};

/* ---- load and balance ---- */

static void router_load_fwd(const op_call *c) {
    const tensor *probs = &c->in[0], *picks = &c->in[1], *out = &c->out[0];
    PARALLEL_FOR
    for (int64_t e = 0; e < probs->cols; e++) {
        ACC sum = 0, count = 0;
        for (int64_t n = 0; n < probs->rows; n++) {
            const int32_t *pick = (const int32_t *)picks->data + n * picks->ld;
            sum += real_row_of(probs, n)[e];
            for (int64_t j = 0; j < picks->cols; j++) count += pick[j] == e;
        }
        if (c->in[2].data) {
            count += real_row_of(&c->in[2], 0)[e];
            sum += real_row_of(&c->in[2], 1)[e];
        }
        real_row_of(out, 0)[e] = (REAL)count;
        real_row_of(out, 1)[e] = (REAL)sum;
    }
}

static void router_load_bwd(const op_call *c) {
    const tensor *dp = &c->din[0];
    if (!dp->data) return;
    bool add = op_accumulates(c, 0);
    PARALLEL_FOR
    for (int64_t n = 0; n < dp->rows; n++)
        for (int64_t e = 0; e < dp->cols; e++)
            put_real(real_row_of(dp, n) + e, real_row_of(&c->dout[0], 1)[e], add);
}

const op_impl REF_IMPL(ROUTER_LOAD) = {router_load_fwd, router_load_bwd, NULL, NULL};

/* Rows that a load is of: its counts, k of each. */
static ACC rows_of_load(const op_call *c) {
    ACC n = 0;
    for (int64_t e = 0; e < c->in[0].cols; e++) n += real_row_of(&c->in[0], 0)[e];
    return n / c->attr->router.k;
}

static void router_balance_fwd(const op_call *c) {
    const tensor *l = &c->in[0];
    ACC n = rows_of_load(c), sum = 0;
    for (int64_t e = 0; e < l->cols; e++) sum += (ACC)real_row_of(l, 0)[e] * real_row_of(l, 1)[e];
    *real_row_of(&c->out[0], 0) = (REAL)((ACC)l->cols * sum / n / c->attr->router.layers);
}

static void router_balance_bwd(const op_call *c) {
    const tensor *l = &c->in[0], *dl = &c->din[0];
    if (!dl->data) return;
    bool add = op_accumulates(c, 0);
    ACC by = *real_row_of(&c->dout[0], 0) * (ACC)l->cols / rows_of_load(c) / c->attr->router.layers;
    for (int64_t e = 0; e < l->cols; e++) {
        put_real(real_row_of(dl, 0) + e, 0, add);
        put_real(real_row_of(dl, 1) + e, by * real_row_of(l, 0)[e], add);
    }
}

const op_impl REF_IMPL(ROUTER_BALANCE) = {router_balance_fwd, router_balance_bwd, NULL, NULL};
