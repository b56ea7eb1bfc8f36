/* Attention to keys and values that go round (Liu et al. 2023, "Ring Attention"), a hop at a time: the
 * kernel of ATTENTION works on those at hand while the next ones travel.
 *
 * Forward: hop h gives o_h and lse_h of its keys alone. lse = log(exp(lse) + exp(lse_h)), and o is the
 * mean of both outputs with the weights exp(lse - new lse), in REAL. In programs of 16 bits each o_h is rounded as
 * ATTENTION rounds it, and the mean once more at the end; dq is rounded after each hop. A sink is a score of hop 0 only.
 *
 * Backward: with the lse and o of all keys, the kernel of ATTENTION gives for each hop what its keys
 * contribute to dq, and their dk and dv from this rank's queries. The sums of dk | dv travel behind the
 * keys, one hop later, and come home after `ranks` hops. Sums run in the order of the hops.
 *
 * FLOPs: those of ATTENTION. What is sent: collective.c. */
#include <string.h>

#include "op/collective.h"
#include "op/ref/ref.h"

/* One kernel call, and how its workspace is divided. */
typedef struct ring {
    const op_call *c;
    const op_impl *attention;
    int ranks;
    int64_t N, Wk, W; /* rows of a rank; columns of keys, and of keys and values */
    STORE *kv[2];     /* [N,W] at hand, and coming */
    STORE *part;      /* o_h [N,H*Dv]; dk | dv of a hop [N,W] */
    REAL *sum[2];     /* o [N,H*Dv]; dk | dv so far [N,W], at hand and coming */
    REAL *lse;        /* lse_h [B*H,Tq] */
    void *ws;         /* of the kernel of ATTENTION */
    int64_t bytes;    /* of all but ws */
} ring;

static void *take(ring *r, char *ws, int64_t bytes) {
    char *at = ws ? ws + r->bytes : NULL;
    r->bytes += (bytes + 63) / 64 * 64;
    return at;
}

/* With ws NULL only the bytes count. A collective's kernel runs on the host, whatever the device. */
static ring divide(const op_attr *attr, const dev *d, dtype dt, bool backward, void *ws) {
    const op_attention *a = &attr->attention;
    int64_t of_o = (int64_t)a->H * a->Dv, kv = (int64_t)sizeof(STORE), real = (int64_t)sizeof(REAL);
    ring r = {.ranks = attr->ring.ranks,
              .N = (int64_t)a->B * a->Tq,
              .Wk = (int64_t)a->K * a->D,
              .W = (int64_t)a->K * (a->D + a->Dv)};
    r.attention = dev_get_kind(d) == DEV_CUDA ? op_find_reference(OP_ATTENTION, dt)
                                              : op_find_of_kind(d, OP_ATTENTION, dt);
    for (int i = 0; i < 2; i++) r.kv[i] = take(&r, ws, r.N * r.W * kv);
    r.part = take(&r, ws, r.N * (backward ? r.W : of_o) * kv);
    for (int i = 0; i <= backward; i++)
        r.sum[i] = take(&r, ws, r.N * (backward ? r.W : of_o) * real);
    if (!backward) r.lse = take(&r, ws, (int64_t)a->B * a->H * a->Tq * real);
    r.ws = take(&r, ws, 0);
    return r;
}

static void ring_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t inner[3] = {0, 0, 0};
    op_infer one = {.kind = OP_ATTENTION, .attr = io->attr, .dev = io->dev};
    memcpy(one.in, io->in, 3 * sizeof *one.in);
    one.in[ATTENTION_SINKS] = io->in[RING_SINKS];
    one.want_grad = io->want_grad & 7u;
    if (io->want_grad >> RING_SINKS & 1u) one.want_grad |= 1u << ATTENTION_SINKS;
    for (int backward = 0; backward < 2; backward++) {
        ring r = divide(io->attr, io->dev, io->in[0].dt, backward, NULL);
        if (r.attention->workspace) r.attention->workspace(&one, inner);
        ws[backward] = r.bytes;
    }
    ws[0] += inner[0];
    ws[1] += inner[1];
}

/* ---- the ring ---- */

static comm_ticket pass_on(const ring *r, const void *in, void *out, dtype dt) {
    comm_call call = {.kind = COMM_SHIFT,
                      .in = in,
                      .out = out,
                      .n = r->N * r->W,
                      .dt = dt,
                      .what = r->c->attr->ring.what};
    return op_start(r->c, MESH_CP, &call);
}

static comm_ticket pass_keys(const ring *r, int hop) {
    if (hop + 1 >= r->ranks) return 0;
    return pass_on(r, r->kv[hop % 2], r->kv[(hop + 1) % 2], r->c->in[0].dt);
}

static void load_own(const op_call *c, const ring *r) {
    const tensor *k = &c->in[1], *v = &c->in[2];
    PARALLEL_FOR
    for (int64_t n = 0; n < r->N; n++) {
        memcpy(r->kv[0] + n * r->W, row_of(k, n), (size_t)k->cols * sizeof(STORE));
        memcpy(r->kv[0] + n * r->W + r->Wk, row_of(v, n), (size_t)v->cols * sizeof(STORE));
    }
}

static tensor bounds_of(const tensor *t, int hop, int64_t N) {
    tensor part = *t;
    if (!t->data) return part;
    part.data = (int32_t *)t->data + hop * N * t->ld;
    part.rows = N;
    return part;
}

static tensor columns(const op_call *c, STORE *at, int64_t N, int64_t cols, int64_t ld) {
    return (tensor){at, c->in[0].dt, N, cols, ld};
}

/* The call of ATTENTION for a hop, but its outputs and gradients. */
static op_call call_of(const ring *r, int hop) {
    const op_call *c = r->c;
    STORE *kv = r->kv[hop % 2];
    op_call one = {.kind = OP_ATTENTION, .attr = c->attr, .run = c->run, .ws = r->ws};
    one.ws_bytes = c->ws_bytes - r->bytes;
    one.in[0] = c->in[0];
    one.in[1] = columns(c, kv, r->N, r->Wk, r->W);
    one.in[2] = columns(c, kv + r->Wk, r->N, r->W - r->Wk, r->W);
    one.in[3] = bounds_of(&c->in[3], hop, r->N);
    one.in[5] = bounds_of(&c->in[4], hop, r->N);
    if (hop == 0) one.in[ATTENTION_SINKS] = c->in[RING_SINKS];
    return one;
}

/* ---- forward ---- */

/* Weights of what was there and of what comes; the lse of both becomes *lse. */
static void weigh(REAL *lse, REAL more, REAL weight[2]) {
    REAL max = *lse > more ? *lse : more;
    weight[0] = 1, weight[1] = 0;
    if (more == -(REAL)INFINITY) return;
    REAL all = (REAL)((ACC)max + log(exp((ACC)*lse - (ACC)max) + exp((ACC)more - (ACC)max)));
    weight[0] = r_exp(*lse - all), weight[1] = r_exp(more - all);
    *lse = all;
}

static void join(const op_call *c, const ring *r, int hop) {
    const op_attention *a = &c->attr->attention;
    int64_t H = a->H, Tq = a->Tq, Dv = a->Dv;
    PARALLEL_FOR_2
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t h = 0; h < H; h++) {
            REAL *lse = real_row_of(&c->out[1], n / Tq * H + h) + n % Tq, w[2] = {0, 1};
            const STORE *more = r->part + (n * H + h) * Dv;
            REAL *sum = r->sum[0] + (n * H + h) * Dv, of = r->lse[(n / Tq * H + h) * Tq + n % Tq];
            if (hop == 0)
                *lse = of;
            else
                weigh(lse, of, w);
            for (int64_t i = 0; i < Dv; i++)
                sum[i] = (hop ? w[0] * sum[i] : 0) + w[1] * load(more[i]);
        }
}

static void ring_fwd(const op_call *c) {
    const op_attention *a = &c->attr->attention;
    ring r = divide(c->attr, c->run->dev, c->in[0].dt, false, c->ws);
    r.c = c;
    load_own(c, &r);
    for (int hop = 0; hop < r.ranks; hop++) {
        comm_ticket next = pass_keys(&r, hop);
        op_call one = call_of(&r, hop);
        one.out[0] = columns(c, r.part, r.N, c->out[0].cols, c->out[0].cols);
        one.out[1] = (tensor){r.lse, c->out[1].dt, c->out[1].rows, a->Tq, a->Tq};
        r.attention->fwd(&one);
        join(c, &r, hop);
        op_await(c, next);
    }
    PARALLEL_FOR
    for (int64_t n = 0; n < r.N; n++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            row_of(&c->out[0], n)[i] = store((ACC)r.sum[0][n * c->out[0].cols + i]);
}

/* ---- backward ---- */

static void add_hop(const op_call *c, const ring *r, int hop) {
    REAL *sum = r->sum[hop % 2];
    PARALLEL_FOR
    for (int64_t i = 0; i < r->N * r->W; i++) sum[i] = (hop ? sum[i] : 0) + load(r->part[i]);
}

/* What has come home becomes the gradient of input i, from column `first` of the sums on. */
static void give(const op_call *c, const ring *r, int i, int64_t first) {
    const tensor *t = &c->din[i];
    const REAL *sum = r->sum[r->ranks % 2] + first;
    if (!t->data) return;
    PARALLEL_FOR
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t j = 0; j < t->cols; j++)
            put(row_of(t, n) + j, (ACC)sum[n * r->W + j], op_accumulates(c, i));
}

static void set_gradients(const ring *r, int hop, op_call *one) {
    const op_call *c = r->c;
    one->out[0] = c->out[0], one->out[1] = c->out[1], one->dout[0] = c->dout[0];
    one->din[0] = c->din[0];
    one->din[1] = columns(c, r->part, r->N, r->Wk, r->W);
    one->din[2] = columns(c, r->part + r->Wk, r->N, r->W - r->Wk, r->W);
    one->acc = hop > 0 || op_accumulates(c, 0);
    if (hop > 0 || !c->din[RING_SINKS].data) return;
    one->din[ATTENTION_SINKS] = c->din[RING_SINKS];
    if (op_accumulates(c, RING_SINKS)) one->acc |= (uint8_t)(1u << ATTENTION_SINKS);
}

static void ring_bwd(const op_call *c) {
    ring r = divide(c->attr, c->run->dev, c->in[0].dt, true, c->ws);
    dtype real = sizeof(REAL) == sizeof(double) ? DT_F64 : DT_F32;
    comm_ticket sums = 0;
    r.c = c;
    load_own(c, &r);
    for (int hop = 0; hop < r.ranks; hop++) {
        comm_ticket next = pass_keys(&r, hop);
        op_call one = call_of(&r, hop);
        set_gradients(&r, hop, &one);
        r.attention->bwd_input(&one);
        op_await(c, sums);
        add_hop(c, &r, hop);
        op_await(c, next); /* before it the sums of this hop: one stream, one order */
        sums = pass_on(&r, r.sum[hop % 2], r.sum[(hop + 1) % 2], real);
    }
    op_await(c, sums);
    give(c, &r, 1, 0);
    give(c, &r, 2, r.Wk);
}

const op_impl REF_IMPL(RING_ATTENTION) = {ring_fwd, ring_bwd, NULL, ring_workspace};
