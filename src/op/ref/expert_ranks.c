/* Experts that ranks share out (Lepikhin et al. 2020): each rank sends the rows of its tokens to the ranks that have
 * the experts they picked, multiplies what it gets, and sends the results back.
 *
 * Rounds. From one rank to another at most attr.rows rows go at a time, so memory is fixed. Where more have picked the
 * experts of a rank, the same is done again for the next rows of each, until all are through: no token is dropped. All ranks
 * know all loads (out 1), so they agree on the number of rounds, and on how many rows the last one has.
 *
 * Overlap. Buffers take turns in three sets: while round r is computed, the rows of round r + 1 come and the results of
 * round r - 1 go back.
 *
 *      side stream   | rows 0 | rows 1       | results 0  rows 2 | results 1  ...
 *      computation             | round 0      | round 1           | round 2
 *
 * Backward: rows are sent again, with the gradients of their results, and what is between the two products is computed
 * again. So nothing is kept for it but x and z, however uneven the load.
 *
 * Order of sums. Each sender's rows of a round are products of their own: what they add to the gradient of a weight does not depend
 * on which other ranks are in the group, and it is a product of the kind that one rank takes for as many rows and all experts. With attr.fixed
 * each such summand is added in fixed point (op/fixed.h).
 *
 * FLOPs: of M rows of a rank, H the columns of the first product, F those that the second one reads: 2 M C (H + F) forward, and back
 * twice that and 2 M C H again. What is sent: collective.c. */
#include <string.h>

#include "op/collective.h"
#include "op/inner.h"
#include "op/ref/ref.h"

enum { SETS = 3 };

/* What travels together in a round: parts of `rows` rows, one for each rank. */
typedef struct parcels {
    STORE *out, *in;
} parcels;

/* One kernel call, and how its workspace is divided. */
typedef struct exchange {
    const op_call *c;
    const op_expert_ranks *a;
    const op_impl *product, *act, *fixed;
    op_attr own; /* of the product of this rank's experts */
    int64_t E, C, H, F, cap;
    const int32_t *starts; /* [ranks, experts + 1], of all ranks; memory of the host */
    int64_t most;          /* rows from any rank to any other */
    parcels x[SETS], dz[SETS];
    comm_ticket come[SETS], gone[SETS];
    STORE *h, *g, *y;   /* between the products [cap,H], [cap,F]; what they give [cap,C] */
    STORE *dh, *dg;     /* their gradients */
    REAL *dw;           /* attr.fixed: a summand of a weight's gradient */
    int32_t *of_sender; /* [E + 1] */
    bool begun;         /* something has been added to weight gradients */
    void *ws;           /* of inner kernels */
    int64_t bytes;      /* of all but ws */
} exchange;

static void *take(exchange *x, char *ws, int64_t bytes) {
    char *at = ws ? ws + x->bytes : NULL;
    x->bytes += (bytes + 63) / 64 * 64;
    return at;
}

static void find_kernels(exchange *x, const dev *d, dtype dt) {
    x->product = op_find_of_kind(d, OP_EXPERT_LINEAR, dt);
    x->act = op_find_of_kind(d, x->a->gated ? OP_GATED : OP_ACT, dt);
    x->fixed = op_find_of_kind(d, OP_FIXED_ADD, dt);
}

/* With ws NULL only the bytes count. in: shapes of x, w_in, w_out. */
static exchange divide(const op_attr *attr, const dev *d, const tensor *in, bool back, void *ws) {
    const op_expert_ranks *a = &attr->expert_ranks;
    int64_t store_bytes = (int64_t)sizeof(STORE), ranks = a->ranks, E = a->experts / ranks;
    exchange x = {.a = a, .E = E, .C = in[0].cols, .F = in[2].cols, .cap = a->rows};
    x.H = in[1].rows / E;
    x.own.experts.n = (int32_t)E;
    x.own.experts.by_row = op_experts_have_few(in[0].rows, a->experts);
    find_kernels(&x, d, in[0].dt);
    for (int i = 0; i < SETS * (1 + back); i++) {
        parcels *p = i < SETS ? &x.x[i] : &x.dz[i - SETS];
        p->out = take(&x, ws, ranks * x.cap * x.C * store_bytes);
        p->in = take(&x, ws, ranks * x.cap * x.C * store_bytes);
    }
    x.h = take(&x, ws, x.cap * x.H * store_bytes);
    x.g = take(&x, ws, x.cap * x.F * store_bytes);
    x.y = take(&x, ws, x.cap * x.C * store_bytes);
    if (back) x.dh = take(&x, ws, x.cap * x.H * store_bytes);
    if (back) x.dg = take(&x, ws, x.cap * x.F * store_bytes);
    if (back && a->fixed)
        x.dw = take(&x, ws, E * x.C * (x.H > x.F ? x.H : x.F) * (int64_t)sizeof(REAL));
    x.of_sender = take(&x, ws, (E + 1) * (int64_t)sizeof(int32_t));
    x.ws = take(&x, ws, 0);
    return x;
}

/* ---- inner kernels ---- */

static tensor rows_at(const exchange *x, const void *at, int64_t cols) {
    return (tensor){(void *)(uintptr_t)at, x->c->in[0].dt, x->cap, cols, cols};
}

static op_call call_of(const exchange *x, op_kind kind, const op_attr *attr) {
    return (op_call){.kind = kind,
                     .attr = attr,
                     .run = x->c->run,
                     .ws = x->ws,
                     .ws_bytes = x->c->ws_bytes - x->bytes};
}

/* The product by weights `w` of one sender's rows; data of a row that is not there is not read, and its results are 0. */
static op_call product_of(const exchange *x, int w, const STORE *rows, int64_t cols) {
    op_call k = call_of(x, OP_EXPERT_LINEAR, &x->own);
    k.in[0] = rows_at(x, rows, cols);
    k.in[1] = x->c->in[w];
    k.in[2] = (tensor){x->of_sender, DT_I32, 1, x->E + 1, x->E + 1};
    return k;
}

/* What is between the products; h: hidden numbers, or their gradients. */
static void set_hidden(const exchange *x, STORE *h, tensor to[2]) {
    to[0] = (tensor){h, x->c->in[0].dt, x->cap, x->F, x->H};
    if (x->a->gated) to[1] = (tensor){h + x->F, x->c->in[0].dt, x->cap, x->F, x->H};
}

static op_call act_of(const exchange *x, const op_attr *attr) {
    op_call k = call_of(x, x->a->gated ? OP_GATED : OP_ACT, attr);
    set_hidden(x, x->h, k.in);
    return k;
}

static op_attr act_attr(const exchange *x) {
    op_attr attr = {.act = {.kind = x->a->act}};
    return attr;
}

static void hidden(const exchange *x, const STORE *rows) {
    op_attr attr = act_attr(x);
    op_call in = product_of(x, 1, rows, x->C), act = act_of(x, &attr);
    in.out[0] = rows_at(x, x->h, x->H);
    inner_run(x->product->fwd, &in);
    act.out[0] = rows_at(x, x->g, x->F);
    inner_run(x->act->fwd, &act);
}

/* ---- loads and rounds ---- */

static const int32_t *starts_of(const exchange *x, int64_t rank) {
    return x->starts + rank * (x->a->experts + 1);
}

static int64_t clamp(int64_t n, int64_t most) {
    return n < 0 ? 0 : n > most ? most : n;
}

/* Rows from one rank to another: all of them, and those of round r. */
static int64_t rows_between(const exchange *x, int64_t from, int64_t to) {
    const int32_t *starts = starts_of(x, from);
    return starts[(to + 1) * x->E] - starts[to * x->E];
}

static int64_t rows_of_round(const exchange *x, int64_t from, int64_t to, int64_t r) {
    return clamp(rows_between(x, from, to) - r * x->cap, x->cap);
}

static int64_t find_most(const exchange *x) {
    int64_t most = 1; /* weights that no row has picked have a gradient of 0, so there is a round */
    for (int64_t from = 0; from < x->a->ranks; from++)
        for (int64_t to = 0; to < x->a->ranks; to++) {
            int64_t n = rows_between(x, from, to);
            most = n > most ? n : most;
        }
    return most;
}

static int64_t rounds_of(const exchange *x) {
    return (x->most + x->cap - 1) / x->cap;
}

/* How long the parts of a round are: as the longest. */
static int64_t part_rows(const exchange *x, int64_t r) {
    return clamp(x->most - r * x->cap, x->cap);
}

/* Where the rows of each own expert begin in what a rank sends in round r. */
static void find_starts(const exchange *x, int64_t from, int64_t r) {
    enum { AT_ONCE = 64 };
    int32_t some[AT_ONCE];
    const int32_t *own = starts_of(x, from) + x->a->rank * x->E;
    int64_t n = rows_of_round(x, from, x->a->rank, r);
    for (int64_t first = 0, now; first <= x->E; first += now) {
        now = x->E + 1 - first < AT_ONCE ? x->E + 1 - first : AT_ONCE;
        for (int64_t i = 0; i < now; i++)
            some[i] = (int32_t)clamp(own[first + i] - own[0] - r * x->cap, n);
        inner_put(x->c, x->of_sender + first, some, (size_t)now * sizeof *some);
    }
}

/* ---- what travels ---- */

/* Rows of t that are of round r, to or from parts. */
static void copy_rows(const exchange *x, const tensor *t, STORE *parts, int64_t r, bool pack) {
    for (int64_t to = 0; to < x->a->ranks; to++) {
        int64_t first = starts_of(x, x->a->rank)[to * x->E] + r * x->cap;
        int64_t n = rows_of_round(x, x->a->rank, to, r);
        inner_copy_rows(x->c, t, first, n, parts + to * part_rows(x, r) * x->C, pack);
    }
}

static comm_ticket swap(const exchange *x, const STORE *from, STORE *to, int64_t r) {
    comm_call call = {.kind = COMM_ALL_TO_ALL,
                      .in = from,
                      .out = to,
                      .n = part_rows(x, r) * x->C,
                      .dt = x->c->in[0].dt,
                      .what = x->a->what};
    return op_start(x->c, MESH_EP, &call);
}

/* Sends the rows of round r, with dz the gradients of their results, too. */
static void dispatch(exchange *x, int64_t r, const tensor *dz) {
    int set = (int)(r % SETS);
    if (r >= rounds_of(x)) return;
    copy_rows(x, &x->c->in[0], x->x[set].out, r, true);
    x->come[set] = swap(x, x->x[set].out, x->x[set].in, r);
    if (!dz) return;
    copy_rows(x, dz, x->dz[set].out, r, true);
    x->come[set] = swap(x, x->dz[set].out, x->dz[set].in, r);
}

/* Results lie where the rows came, and go where they were sent from. */
static void combine(exchange *x, int64_t r) {
    int set = (int)(r % SETS);
    x->gone[set] = swap(x, x->x[set].in, x->x[set].out, r);
}

static void take_back(const exchange *x, int64_t r, const tensor *to) {
    int set = (int)(r % SETS);
    if (r < 0) return;
    op_await(x->c, x->gone[set]);
    if (!to->data) return;
    copy_rows(x, to, x->x[set].out, r, false);
}

static void zero_dropped(const exchange *x, const tensor *t) {
    int64_t rows = starts_of(x, x->a->rank)[x->a->experts];
    if (t->data) inner_clear_rows(x->c, t, rows, t->rows - rows);
}

/* y of one sender's rows to where these rows are. */
static void put_results(const exchange *x, int64_t from, int64_t r, STORE *rows) {
    int64_t n = rows_of_round(x, from, x->a->rank, r);
    inner_copy(x->c, rows, x->y, (size_t)(n * x->C) * sizeof(STORE));
}

typedef void (*sender_fn)(exchange *x, STORE *rows, const STORE *dz);

/* All rounds: `one` puts what comes of a sender's rows into x->y. */
static void run_rounds(exchange *x, const tensor *dz, const tensor *results, sender_fn one) {
    int64_t rounds = rounds_of(x);
    dispatch(x, 0, dz);
    for (int64_t r = 0; r < rounds; r++) {
        int set = (int)(r % SETS);
        op_await(x->c, x->come[set]);
        take_back(x, r - 2, results); /* whose buffers round r + 1 takes */
        dispatch(x, r + 1, dz);
        for (int64_t from = 0; from < x->a->ranks; from++) {
            int64_t at = from * part_rows(x, r) * x->C;
            find_starts(x, from, r);
            one(x, x->x[set].in + at, dz ? x->dz[set].in + at : NULL);
            put_results(x, from, r, x->x[set].in + at);
        }
        combine(x, r);
    }
    for (int64_t r = rounds > 1 ? rounds - 2 : 0; r < rounds; r++) take_back(x, r, results);
    zero_dropped(x, results);
}

/* ---- forward ---- */

static void forward_of(exchange *x, STORE *rows, const STORE *dz) {
    (void)dz;
    hidden(x, rows);
    op_call out = product_of(x, 2, x->g, x->F);
    out.out[0] = rows_at(x, x->y, x->C);
    inner_run(x->product->fwd, &out);
}

static exchange begin(const op_call *c, bool back) {
    exchange x = divide(c->attr, c->run->dev, c->in, back, c->ws);
    x.c = c;
    return x;
}

/* Of what ranks have gathered; the host waits for that. */
static void look_at_loads(exchange *x) {
    int64_t n = x->a->ranks * (x->a->experts + 1);
    x->starts = inner_look(x->c, x->c->out[1].data, (size_t)n * sizeof *x->starts);
    x->most = find_most(x);
}

static void expert_ranks_fwd(const op_call *c) {
    exchange x = begin(c, false);
    /* Where the world fails, it gathers nothing: then no rows are moved, in place of as many as old memory says. */
    inner_clear(c, c->out[1].data, (size_t)(x.a->ranks * (x.a->experts + 1)) * sizeof(int32_t));
    comm_call loads = {.kind = COMM_ALL_GATHER,
                       .in = c->in[3].data,
                       .out = c->out[1].data,
                       .n = c->in[3].cols,
                       .dt = DT_I32,
                       .what = x.a->what};
    op_exchange(c, MESH_EP, &loads);
    look_at_loads(&x);
    int32_t rounds = (int32_t)rounds_of(&x);
    inner_put(c, c->out[2].data, &rounds, sizeof rounds);
    run_rounds(&x, NULL, &c->out[0], forward_of);
}

/* ---- backward ---- */

/* Adds what k makes to the gradient of weights w. */
static void add_weights(const exchange *x, int w, op_call *k) {
    const tensor *dw = &x->c->din[w];
    bool add = x->begun || op_accumulates(x->c, w);
    if (!dw->data) return;
    k->din[1] = *dw;
    k->acc = (uint8_t)(add ? 2 : 0);
    if (x->a->fixed) {
        k->din[1].data = x->dw;
        k->din[1].dt = sizeof(REAL) == sizeof(double) ? DT_F64 : DT_F32;
        k->acc = 0;
    }
    inner_run(x->product->bwd_weight, k);
    if (!x->a->fixed) return;
    op_call sum = call_of(x, OP_FIXED_ADD, NULL);
    sum.in[0] = k->din[1];
    sum.out[0] = *dw;
    sum.acc = add;
    inner_run(x->fixed->fwd, &sum);
}

static void backward_of(exchange *x, STORE *rows, const STORE *dz) {
    op_attr attr = act_attr(x);
    op_call in = product_of(x, 1, rows, x->C), act = act_of(x, &attr);
    op_call out = product_of(x, 2, x->g, x->F);
    hidden(x, rows);
    out.dout[0] = rows_at(x, dz, x->C);
    add_weights(x, 2, &out);
    out.din[0] = rows_at(x, x->dg, x->F), out.din[1].data = NULL, out.acc = 0;
    inner_run(x->product->bwd_input, &out);
    act.dout[0] = rows_at(x, x->dg, x->F);
    set_hidden(x, x->dh, act.din);
    inner_run(x->act->bwd_input, &act);
    in.dout[0] = rows_at(x, x->dh, x->H);
    add_weights(x, 1, &in);
    in.din[0] = rows_at(x, x->y, x->C), in.din[1].data = NULL, in.acc = 0;
    inner_run(x->product->bwd_input, &in);
    x->begun = true;
}

static void expert_ranks_bwd(const op_call *c) {
    exchange x = begin(c, true);
    CHECK(!op_accumulates(c, 0), "rows that go to other ranks are read by nobody else");
    look_at_loads(&x);
    run_rounds(&x, &c->dout[0], &c->din[0], backward_of);
}

/* ---- workspace ---- */

/* Of the inner kernels, forward and back. */
static void inner_workspace(const op_infer *io, const exchange *x, int w, int64_t most[2]) {
    int64_t ws[3] = {0, 0, 0};
    op_infer one = {.kind = OP_EXPERT_LINEAR, .attr = &x->own, .dev = io->dev, .want_grad = 3};
    one.in[0] = (tensor){NULL, io->in[0].dt, x->cap, io->in[w].cols, io->in[w].cols};
    one.in[1] = io->in[w];
    one.in[2] = (tensor){NULL, DT_I32, 1, x->E + 1, x->E + 1};
    if (x->product->workspace) x->product->workspace(&one, ws);
    for (int i = 0; i < 3; i++) {
        if (i == 0 && ws[i] > most[0]) most[0] = ws[i];
        if (ws[i] > most[1]) most[1] = ws[i];
    }
}

static void expert_ranks_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t most[2] = {0, 0};
    for (int back = 0; back < 2; back++) {
        exchange x = divide(io->attr, io->dev, io->in, back, NULL);
        CHECK(!x.act->workspace && !x.fixed->workspace, "activations of experts have workspace");
        for (int w = 1; w <= 2; w++) inner_workspace(io, &x, w, most);
        ws[back] = x.bytes + most[back];
    }
}

const op_impl REF_IMPL(EXPERT_RANKS) = {expert_ranks_fwd, expert_ranks_bwd, NULL,
                                        expert_ranks_workspace};
