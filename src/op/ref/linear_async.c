/* A product of tensor-parallel ranks beside the transfer of its rows (Wang et al. 2023, "Overlap Communication with Dependent
 * Computation via Decomposition"): the kernel of LINEAR works on some rows while others travel.
 *
 * Where the rows of all ranks come, they go round as in RING_ATTENTION, and this rank's own are multiplied first. Where products are summed,
 * each piece is given to a collective as soon as it is there. Rows are computed and summed as in one product and one collective, and the
 * gradient of the weights is one product of all rows, so the bits are the same, but where dx is added to another gradient: then a sum is
 * rounded elsewhere.
 *
 * What is sent: collective.c. */
#include <string.h>

#include "op/collective.h"
#include "op/inner.h"
#include "op/ref/ref.h"

/* One kernel call, and how its workspace is divided. N: rows that this rank has outside of the product; W: the width of what travels. */
typedef struct work {
    const op_call *c;
    const op_async *at;
    const op_impl *linear;
    bool backward;
    int64_t N, W;
    STORE *all;     /* [ranks*N,W] */
    STORE *part[2]; /* summands of a piece of each rank */
    STORE *sum[2];  /* their sums, which NCCL does not add to what is there */
    void *ws;       /* of LINEAR */
    int64_t bytes;  /* of all but ws */
} work;

/* With ws NULL the offset is counted alone. */
static void *take(work *w, void *ws, int64_t elements) {
    char *at = ws ? (char *)ws + w->bytes : NULL;
    w->bytes += (elements * (int64_t)sizeof(STORE) + 63) / 64 * 64;
    return at;
}

static int64_t most_rows(int64_t N, int pieces) {
    return (N + pieces - 1) / pieces;
}

/* A reduce-scatter that adds is no call of NCCL, so that GPUs add afterwards, whatever they send by. */
static bool adds_apart(const dev *d) {
    return dev_get_kind(d) == DEV_CUDA;
}

static work divide(op_kind kind, const op_attr *attr, const tensor *in, const dev *d, bool backward,
                   void *ws) {
    const op_async *at = &attr->async;
    bool gathers = kind == OP_GATHER_LINEAR, shares = at->shares_rows;
    work w = {.at = at, .backward = backward};
    w.linear = op_find_of_kind(d, OP_LINEAR, in[0].dt);
    w.N = in[0].rows / (shares && !gathers ? at->ranks : 1);
    w.W = gathers ? in[0].cols : in[1].rows;
    if (shares && (gathers || backward)) w.all = take(&w, ws, at->ranks * w.N * w.W);
    for (int i = 0; i < 2 && shares && gathers == backward; i++)
        w.part[i] = take(&w, ws, at->ranks * most_rows(w.N, at->pieces) * w.W);
    for (int i = 0; i < 2 && w.part[0] && adds_apart(d); i++)
        w.sum[i] = take(&w, ws, most_rows(w.N, at->pieces) * w.W);
    w.ws = take(&w, ws, 0);
    return w;
}

/* LINEAR's for so many rows, in its place `of`: forward, backward of the input, of the weights. */
static void widen(const op_infer *io, const work *w, int of, int64_t rows, int64_t *most) {
    int64_t ws[3] = {0, 0, 0};
    op_infer one = {.kind = OP_LINEAR, .attr = io->attr, .dev = io->dev};
    memcpy(one.in, io->in, sizeof one.in);
    one.want_grad = io->want_grad;
    one.in[0].rows = rows;
    if (w->linear->workspace) w->linear->workspace(&one, ws);
    if (ws[of] > *most) *most = ws[of];
}

/* Rows that come are multiplied as they come, own ones at once; those that are summed in pieces. Gradients of weights are one
 * product of all rows. */
static int64_t linear_workspace(const op_infer *io, const work *w, bool backward) {
    const op_async *at = &io->attr->async;
    bool comes = (io->kind == OP_GATHER_LINEAR) != backward;
    int cuts = !comes ? at->pieces : at->shares_rows ? op_hop_pieces(at) : 1;
    int64_t most = 0;
    widen(io, w, backward, w->N / cuts, &most);
    widen(io, w, backward, most_rows(w->N, cuts), &most);
    if (comes) widen(io, w, backward, w->N, &most);
    if (backward) widen(io, w, 2, w->N * (at->shares_rows ? at->ranks : 1), &most);
    return most;
}

static void async_workspace(const op_infer *io, int64_t ws[3]) {
    for (int backward = 0; backward < 2; backward++) {
        work w = divide(io->kind, io->attr, io->in, io->dev, backward, NULL);
        ws[backward] = w.bytes + linear_workspace(io, &w, backward);
    }
}

/* ---- products of some rows ---- */

static tensor rows_at(const tensor *t, int64_t first, int64_t n) {
    tensor part = *t;
    part.data = row_of(t, first);
    part.rows = n;
    return part;
}

/* Rows of what travels. */
static tensor moving(const work *w, STORE *at, int64_t n) {
    return (tensor){at, w->c->in[0].dt, n, w->W, w->W};
}

static op_call call_of(const work *w) {
    const op_call *c = w->c;
    op_call one = {.kind = OP_LINEAR, .attr = c->attr, .run = c->run, .ws = w->ws};
    one.ws_bytes = c->ws_bytes - w->bytes;
    one.in[1] = c->in[1];
    return one;
}

static void multiply(const work *w, tensor x, tensor y) {
    op_call one = call_of(w);
    one.in[0] = x, one.in[2] = w->c->in[2], one.out[0] = y;
    if (x.rows > 0) inner_run(w->linear->fwd, &one);
}

static void multiply_back(const work *w, tensor dy, tensor dx, bool add) {
    op_call one = call_of(w);
    one.dout[0] = dy, one.din[0] = dx, one.acc = add;
    if (dy.rows > 0) inner_run(w->linear->bwd_input, &one);
}

static void weight_gradients(const work *w, tensor x, tensor dy) {
    op_call one = call_of(w);
    one.in[0] = x, one.dout[0] = dy;
    one.din[1] = w->c->din[1], one.din[2] = w->c->din[2];
    one.acc = w->c->acc, one.acc_param = w->c->acc_param;
    inner_run(w->linear->bwd_weight, &one);
}

/* ---- rows that come ---- */

static op_collective collective(const work *w, int i) {
    return op_collective_of(w->c->kind, !w->backward, w->c->attr, w->c->in, i);
}

/* The rows that call i brings. */
static op_part coming(const work *w, int i) {
    int each = op_hop_pieces(w->at), hop = i / each, ranks = w->at->ranks;
    op_part p = op_part_of(w->N, each, i % each);
    p.first += (w->at->rank - hop - 1 + ranks) % ranks * w->N;
    return p;
}

static comm_ticket pass_on(const work *w, int i) {
    op_collective k = collective(w, i);
    if (k.call.kind == COMM_KINDS) return 0;
    op_part to = coming(w, i);
    int64_t from = to.first + w->N < w->at->ranks * w->N ? to.first + w->N
                                                         : to.first + w->N - w->at->ranks * w->N;
    k.call.in = w->all + from * w->W;
    k.call.out = w->all + to.first * w->W;
    return op_start(w->c, k.axis, &k.call);
}

typedef void (*rows_fn)(const work *w, op_part rows);

/* The rows of all ranks, `own` among them, come to w->all. Those that are there are used while others travel. */
static void gather(const work *w, const tensor *own, rows_fn use) {
    op_part mine = {w->at->rank * w->N, w->N};
    inner_copy(w->c, w->all + mine.first * w->W, own->data, (size_t)(w->N * w->W) * sizeof(STORE));
    comm_ticket under_way[2] = {pass_on(w, 0), pass_on(w, 1)};
    use(w, mine);
    for (int i = 0; i < (w->at->ranks - 1) * op_hop_pieces(w->at); i++) {
        op_await(w->c, under_way[i % 2]);
        under_way[i % 2] = pass_on(w, i + 2);
        use(w, coming(w, i));
    }
}

/* ---- sums ---- */

typedef void (*summand_fn)(const work *w, op_part rows, STORE *to);

/* Piece k, which has been summed, to what is there. */
static void add_piece(const work *w, const tensor *sum, int k) {
    static const op_attr none;
    op_part p = op_part_of(w->N, w->at->pieces, k);
    op_call one = {.kind = OP_ADD, .attr = &none, .run = w->c->run};
    one.in[0] = moving(w, w->sum[k % 2], p.n);
    one.in[1] = one.out[0] = rows_at(sum, p.first, p.n);
    if (p.n > 0) inner_run(op_find_of_kind(w->c->run->dev, OP_ADD, sum->dt)->fwd, &one);
}

/* Waits for piece k, if there is one, and adds it where that is done apart. */
static void end_piece(const work *w, const tensor *sum, bool apart, int k, comm_ticket t) {
    if (k < 0) return;
    op_await(w->c, t);
    if (apart) add_piece(w, sum, k);
}

/* Pieces of the summands of all ranks, call number `first` and later; returns the last ticket, or 0 where all is done. */
static comm_ticket scatter(const work *w, tensor *sum, bool add, int first, summand_fn make) {
    comm_ticket t[2] = {0, 0};
    int pieces = w->at->pieces;
    bool apart = add && adds_apart(w->c->run->dev);
    for (int k = 0; k < pieces; k++) {
        op_part p = op_part_of(w->N, pieces, k);
        end_piece(w, sum, apart, k - 2, t[k % 2]);
        for (int r = 0; r < w->at->ranks; r++)
            make(w, (op_part){r * w->N + p.first, p.n}, w->part[k % 2] + r * p.n * w->W);
        op_collective call = collective(w, first + k);
        call.call.in = w->part[k % 2], call.call.add = add && !apart;
        call.call.out = apart ? w->sum[k % 2] : row_of(sum, p.first);
        t[k % 2] = op_start(w->c, call.axis, &call.call);
    }
    for (int k = pieces - 2; k < pieces && apart; k++) end_piece(w, sum, true, k, t[k % 2]);
    return apart ? 0 : t[(pieces - 1) % 2];
}

/* The same where all ranks get all rows, at `sum`. */
static comm_ticket reduce(const work *w, STORE *sum, summand_fn make) {
    comm_ticket t = 0;
    for (int k = 0; k < w->at->pieces; k++) {
        op_part p = op_part_of(w->N, w->at->pieces, k);
        STORE *at = sum + p.first * w->W;
        make(w, p, at);
        op_collective call = collective(w, k);
        call.call.in = call.call.out = at;
        t = op_start(w->c, call.axis, &call.call);
    }
    return t;
}

/* ---- GATHER_LINEAR ---- */

static work begin(const op_call *c, bool backward) {
    work w = divide(c->kind, c->attr, c->in, c->run->dev, backward, c->ws);
    w.c = c;
    return w;
}

static void rows_to_y(const work *w, op_part p) {
    multiply(w, moving(w, w->all + p.first * w->W, p.n), rows_at(&w->c->out[0], p.first, p.n));
}

static void gather_linear_fwd(const op_call *c) {
    work w = begin(c, false);
    if (w.at->shares_rows)
        gather(&w, &c->in[0], rows_to_y);
    else
        multiply(&w, c->in[0], c->out[0]);
}

/* What is in dx already is the same on all ranks: one of them adds to it. */
static void summand_of_dx(const work *w, op_part p, STORE *to) {
    bool adds = !w->at->shares_rows && w->at->rank == 0 && op_accumulates(w->c, 0);
    multiply_back(w, rows_at(&w->c->dout[0], p.first, p.n), moving(w, to, p.n), adds);
}

/* x is gathered as a whole, since all rows of it are wanted at the end. */
static void gather_linear_shared_bwd(const op_call *c, const work *w) {
    tensor dx = c->din[0];
    op_collective rows = collective(w, 0);
    rows.call.in = c->in[0].data, rows.call.out = w->all;
    comm_ticket here = op_start(c, rows.axis, &rows.call);
    comm_ticket sums = scatter(w, &dx, op_accumulates(c, 0), 1, summand_of_dx);
    op_await(c, here);
    weight_gradients(w, moving(w, w->all, w->at->ranks * w->N), c->dout[0]);
    op_await(c, sums);
}

static void gather_linear_bwd(const op_call *c) {
    work w = begin(c, true);
    if (w.at->shares_rows) {
        gather_linear_shared_bwd(c, &w);
        return;
    }
    comm_ticket sums = reduce(&w, c->din[0].data, summand_of_dx);
    weight_gradients(&w, c->in[0], c->dout[0]);
    op_await(c, sums);
}

/* ---- LINEAR_SUM ---- */

static void summand_of_y(const work *w, op_part p, STORE *to) {
    multiply(w, rows_at(&w->c->in[0], p.first, p.n), moving(w, to, p.n));
}

static void linear_sum_fwd(const op_call *c) {
    work w = begin(c, false);
    tensor y = c->out[0];
    op_await(c, w.at->shares_rows ? scatter(&w, &y, false, 0, summand_of_y)
                                  : reduce(&w, y.data, summand_of_y));
}

static void rows_to_dx(const work *w, op_part p) {
    multiply_back(w, moving(w, w->all + p.first * w->W, p.n), rows_at(&w->c->din[0], p.first, p.n),
                  op_accumulates(w->c, 0));
}

static void linear_sum_bwd(const op_call *c) {
    work w = begin(c, true);
    tensor dy = c->dout[0];
    if (w.at->shares_rows) {
        gather(&w, &dy, rows_to_dx);
        dy = moving(&w, w.all, w.at->ranks * w.N);
    } else {
        multiply_back(&w, dy, c->din[0], op_accumulates(c, 0));
    }
    weight_gradients(&w, c->in[0], dy);
}

const op_impl REF_IMPL(GATHER_LINEAR) = {gather_linear_fwd, gather_linear_bwd, NULL,
                                         async_workspace};
const op_impl REF_IMPL(LINEAR_SUM) = {linear_sum_fwd, linear_sum_bwd, NULL, async_workspace};
