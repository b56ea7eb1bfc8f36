/* RING_ATTENTION on the host: the steps of op/ring.h. */
#include "op/ring.h"

#include <string.h>

#include "op/ref/ref.h"

static const op_impl *find_attention(const dev *d, dtype dt) {
    return op_find_of_kind(d, OP_ATTENTION, dt);
}

static void run_attention(op_fn fn, const op_call *attention) {
    fn(attention);
}

static void take_own(const ring *r) {
    const op_call *c = r->c;
    const tensor *k = &c->in[1], *v = &c->in[2];
    STORE *kv = r->kv[0];
    PARALLEL_FOR
    for (int64_t n = 0; n < r->N; n++) {
        memcpy(kv + n * r->W, row_of(k, n), (size_t)k->cols * sizeof(STORE));
        memcpy(kv + n * r->W + r->Wk, row_of(v, n), (size_t)v->cols * sizeof(STORE));
    }
}

/* Weights of what was there and of what comes; the lse of both becomes *lse. */
static void weigh(REAL *lse, REAL more, REAL weight[2]) {
    REAL max = *lse > more ? *lse : more;
    weight[0] = 1, weight[1] = 0;
    if (more == -(REAL)INFINITY) return;
    REAL all = (REAL)((ACC)max + log(exp((ACC)*lse - (ACC)max) + exp((ACC)more - (ACC)max)));
    weight[0] = r_exp(*lse - all), weight[1] = r_exp(more - all);
    *lse = all;
}

static void join(const ring *r, int hop) {
    const op_call *c = r->c;
    const op_attention *a = &c->attr->attention;
    int64_t H = a->H, Tq = a->Tq, Dv = a->Dv;
    bool last = hop == r->ranks - 1;
    PARALLEL_FOR_2
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t h = 0; h < H; h++) {
            REAL *lse = real_row_of(&c->out[1], n / Tq * H + h) + n % Tq, w[2] = {0, 1};
            const STORE *more = (const STORE *)r->part + (n * H + h) * Dv;
            REAL *sum = (REAL *)r->sum[0] + (n * H + h) * Dv;
            REAL of = ((const REAL *)r->lse)[(n / Tq * H + h) * Tq + n % Tq];
            if (hop == 0)
                *lse = of;
            else
                weigh(lse, of, w);
            for (int64_t i = 0; i < Dv; i++) {
                sum[i] = (hop ? w[0] * sum[i] : 0) + w[1] * load(more[i]);
                if (last) row_of(&c->out[0], n)[h * Dv + i] = store((ACC)sum[i]);
            }
        }
}

static void add_hop(const ring *r, int hop) {
    const op_call *c = r->c;
    REAL *sum = r->sum[hop % 2];
    const STORE *part = r->part;
    PARALLEL_FOR
    for (int64_t i = 0; i < r->N * r->W; i++) sum[i] = (hop ? sum[i] : 0) + load(part[i]);
}

static void give(const ring *r, int input, int64_t first) {
    const op_call *c = r->c;
    const tensor *t = &c->din[input];
    const REAL *sum = (const REAL *)r->sum[r->ranks % 2] + first;
    PARALLEL_FOR
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t j = 0; j < t->cols; j++)
            put(row_of(t, n) + j, (ACC)sum[n * r->W + j], op_accumulates(c, input));
}

static const ring_steps steps = {find_attention, run_attention, take_own, join, add_hop, give};

static void ring_fwd(const op_call *c) {
    ring_forward(c, &steps);
}
static void ring_bwd(const op_call *c) {
    ring_backward(c, &steps);
}
static void workspace(const op_infer *io, int64_t ws[3]) {
    ring_workspace(io, &steps, ws);
}

const op_impl REF_IMPL(RING_ATTENTION) = {ring_fwd, ring_bwd, NULL, workspace};
