#include "op/ring.h"

#include <string.h>

#include "op/collective.h"

static void *take(ring *r, char *ws, int64_t bytes) {
    char *at = ws ? ws + r->bytes : NULL;
    r->bytes += (bytes + 63) / 64 * 64;
    return at;
}

/* With ws NULL only the bytes count. */
static ring divide(const op_attr *attr, const dev *d, dtype dt, const ring_steps *steps,
                   bool backward, void *ws) {
    const op_attention *a = &attr->attention;
    ring r = {.steps = steps,
              .attention = steps->find(d, dt),
              .ranks = attr->ring.ranks,
              .N = (int64_t)a->B * a->Tq,
              .Wk = (int64_t)a->K * a->D,
              .W = (int64_t)a->K * (a->D + a->Dv),
              .real = dt == DT_F64 ? DT_F64 : DT_F32};
    int64_t of_o = (int64_t)a->H * a->Dv, cols = backward ? r.W : of_o;
    int64_t kv = (int64_t)dtype_bytes(dt), real = (int64_t)dtype_bytes(r.real);
    for (int i = 0; i < 2; i++) r.kv[i] = take(&r, ws, r.N * r.W * kv);
    r.part = take(&r, ws, r.N * cols * kv);
    for (int i = 0; i <= backward; i++) r.sum[i] = take(&r, ws, r.N * cols * real);
    if (!backward) r.lse = take(&r, ws, (int64_t)a->B * a->H * a->Tq * real);
    r.ws = take(&r, ws, 0);
    return r;
}

static ring begin(const op_call *c, const ring_steps *steps, bool backward) {
    ring r = divide(c->attr, c->run->dev, c->in[0].dt, steps, backward, c->ws);
    r.c = c;
    steps->take(&r);
    return r;
}

void ring_workspace(const op_infer *io, const ring_steps *steps, int64_t ws[3]) {
    int64_t inner[3] = {0, 0, 0};
    op_infer one = {.kind = OP_ATTENTION, .attr = io->attr, .dev = io->dev};
    memcpy(one.in, io->in, 3 * sizeof *one.in);
    one.in[ATTENTION_SINKS] = io->in[RING_SINKS];
    one.want_grad = io->want_grad & 7u;
    if (io->want_grad >> RING_SINKS & 1u) one.want_grad |= 1u << ATTENTION_SINKS;
    for (int backward = 0; backward < 2; backward++) {
        ring r = divide(io->attr, io->dev, io->in[0].dt, steps, backward, NULL);
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

static tensor bounds_of(const tensor *t, int hop, int64_t N) {
    tensor part = *t;
    if (!t->data) return part;
    part.data = (int32_t *)t->data + hop * N * t->ld;
    part.rows = N;
    return part;
}

/* Columns of k | v: those of keys, or of values. */
static tensor columns(const ring *r, void *at, bool values) {
    dtype dt = r->c->in[0].dt;
    char *first = (char *)at + (values ? r->Wk * (int64_t)dtype_bytes(dt) : 0);
    return (tensor){first, dt, r->N, values ? r->W - r->Wk : r->Wk, r->W};
}

/* The call of ATTENTION for a hop, but its outputs and gradients. */
static op_call call_of(const ring *r, int hop) {
    const op_call *c = r->c;
    op_call one = {.kind = OP_ATTENTION, .attr = c->attr, .run = c->run, .ws = r->ws};
    one.ws_bytes = c->ws_bytes - r->bytes;
    one.in[0] = c->in[0];
    one.in[1] = columns(r, r->kv[hop % 2], false);
    one.in[2] = columns(r, r->kv[hop % 2], true);
    one.in[3] = bounds_of(&c->in[3], hop, r->N);
    one.in[5] = bounds_of(&c->in[4], hop, r->N);
    if (hop == 0) one.in[ATTENTION_SINKS] = c->in[RING_SINKS];
    return one;
}

void ring_forward(const op_call *c, const ring_steps *steps) {
    int64_t Tq = c->attr->attention.Tq, of_o = c->out[0].cols;
    ring r = begin(c, steps, false);
    for (int hop = 0; hop < r.ranks; hop++) {
        comm_ticket next = pass_keys(&r, hop);
        op_call one = call_of(&r, hop);
        one.out[0] = (tensor){r.part, c->in[0].dt, r.N, of_o, of_o};
        one.out[1] = (tensor){r.lse, r.real, c->out[1].rows, Tq, Tq};
        steps->run(r.attention->fwd, &one);
        steps->join(&r, hop);
        op_await(c, next);
    }
}

static void set_gradients(const ring *r, int hop, op_call *one) {
    const op_call *c = r->c;
    one->out[0] = c->out[0], one->out[1] = c->out[1], one->dout[0] = c->dout[0];
    one->din[0] = c->din[0];
    one->din[1] = columns(r, r->part, false);
    one->din[2] = columns(r, r->part, true);
    one->acc = hop > 0 || op_accumulates(c, 0);
    if (hop > 0 || !c->din[RING_SINKS].data) return;
    one->din[ATTENTION_SINKS] = c->din[RING_SINKS];
    if (op_accumulates(c, RING_SINKS)) one->acc |= (uint8_t)(1u << ATTENTION_SINKS);
}

void ring_backward(const op_call *c, const ring_steps *steps) {
    comm_ticket sums = 0;
    ring r = begin(c, steps, true);
    for (int hop = 0; hop < r.ranks; hop++) {
        comm_ticket next = pass_keys(&r, hop);
        op_call one = call_of(&r, hop);
        set_gradients(&r, hop, &one);
        steps->run(r.attention->bwd_input, &one);
        op_await(c, sums);
        steps->add(&r, hop);
        op_await(c, next); /* before it the sums of this hop: one stream, one order */
        sums = pass_on(&r, r.sum[hop % 2], r.sum[(hop + 1) % 2], r.real);
    }
    op_await(c, sums);
    for (int i = 1; i <= 2; i++)
        if (c->din[i].data) steps->give(&r, i, i == 1 ? 0 : r.Wk);
}
