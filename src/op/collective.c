#include "op/collective.h"

#include <limits.h>

static op_collective call_of(const op_attr *attr, const tensor *x, comm_kind kind, int64_t n) {
    return (op_collective){.axis = attr->comm.axis,
                           .call = {.kind = kind, .n = n, .dt = x->dt, .what = attr->comm.what}};
}

/* `numbers` of a row are summed, in double whatever the dtype of x. */
static op_collective norm_call(const op_attr *attr, const tensor *x, int numbers) {
    return (op_collective){.axis = attr->norm.axis,
                           .call = {.kind = COMM_ALL_REDUCE,
                                    .n = x->rows * numbers,
                                    .dt = DT_F64,
                                    .what = "a norm's sums"}};
}

/* Keys and values go on ranks - 1 times, and in the backward their gradients do so ranks times. */
static op_collective ring_call(bool forward, const op_attr *attr, const tensor *in, int i) {
    int hops = attr->ring.ranks - 1, all = forward ? hops : 2 * hops + 1;
    dtype real = in[0].dt == DT_F64 ? DT_F64 : DT_F32;
    return (op_collective){.axis = MESH_CP,
                           .call = {.kind = i < all && hops > 0 ? COMM_SHIFT : COMM_KINDS,
                                    .n = in[1].rows * (in[1].cols + in[2].cols),
                                    .dt = i < hops ? in[0].dt : real,
                                    .what = attr->ring.what}};
}

/* Loads, then in each round rows and, in the backward, gradients of their results; results. Plans count an even load. */
static op_collective expert_call(bool forward, const op_attr *attr, const tensor *in, int i) {
    const op_expert_ranks *a = &attr->expert_ranks;
    op_collective k = {.axis = MESH_EP, .call = {.kind = COMM_KINDS, .what = a->what}};
    int64_t rows = (in[0].rows + a->ranks - 1) / a->ranks, each = forward ? 2 : 3;
    if (forward && i-- == 0) {
        k.call.kind = COMM_ALL_GATHER, k.call.dt = DT_I32, k.call.n = a->experts + 1;
        return k;
    }
    rows -= i / each * a->rows;
    if (rows <= 0) return k;
    k.call.kind = COMM_ALL_TO_ALL, k.call.dt = in[0].dt;
    k.call.n = (rows < a->rows ? rows : a->rows) * in[0].cols;
    return k;
}

static op_collective async_call(const op_attr *attr, const tensor *x, comm_kind kind, int64_t n) {
    return (op_collective){.axis = MESH_TP,
                           .call = {.kind = kind, .n = n, .dt = x->dt, .what = attr->async.what}};
}

/* Call i of those in which the rows of all ranks come, `rows` of each and `cols` wide: hop by hop, and in each the pieces of one
 * rank. */
static op_collective async_shift(const op_attr *attr, const tensor *x, int64_t rows, int64_t cols,
                                 int i) {
    int hop_pieces = op_hop_pieces(&attr->async);
    bool any = i < (attr->async.ranks - 1) * hop_pieces;
    return async_call(attr, x, any ? COMM_SHIFT : COMM_KINDS,
                      op_part_of(rows, hop_pieces, i % hop_pieces).n * cols);
}

/* Call i of those that sum pieces of `rows` rows, of which each rank keeps its own if they are shared. */
static op_collective async_sum(const op_attr *attr, const tensor *x, int64_t rows, int64_t cols,
                               int i) {
    const op_async *a = &attr->async;
    comm_kind kind = a->shares_rows ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE;
    bool any = i >= 0 && i < a->pieces;
    return async_call(attr, x, any ? kind : COMM_KINDS,
                      any ? op_part_of(rows, a->pieces, i).n * cols : 0);
}

static op_collective gather_linear_call(bool forward, const op_attr *attr, const tensor *in,
                                        int i) {
    bool shares = attr->async.shares_rows;
    int64_t N = in[0].rows, I = in[0].cols;
    if (forward) return async_shift(attr, in, N, I, shares ? i : INT_MAX);
    if (shares && i == 0) return async_call(attr, in, COMM_ALL_GATHER, N * I);
    return async_sum(attr, in, N, I, i - shares);
}

static op_collective linear_sum_call(bool forward, const op_attr *attr, const tensor *in, int i) {
    bool shares = attr->async.shares_rows;
    int64_t N = in[0].rows / (shares ? attr->async.ranks : 1), O = in[1].rows;
    if (forward) return async_sum(attr, in, N, O, i);
    return async_shift(attr, in, N, O, shares ? i : INT_MAX);
}

op_collective op_collective_of(op_kind kind, bool forward, const op_attr *attr, const tensor *in,
                               int i) {
    static const op_collective none = {.call = {.kind = COMM_KINDS}};
    comm_kind gathers = forward ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER;
    comm_kind scatters = forward ? COMM_REDUCE_SCATTER : COMM_ALL_GATHER;
    int64_t size = in[0].rows * in[0].cols;
    if (kind == OP_RING_ATTENTION) return ring_call(forward, attr, in, i);
    if (kind == OP_EXPERT_RANKS) return expert_call(forward, attr, in, i);
    if (kind == OP_GATHER_LINEAR) return gather_linear_call(forward, attr, in, i);
    if (kind == OP_LINEAR_SUM) return linear_sum_call(forward, attr, in, i);
    if (i > 0) return none;
    switch (kind) {
        case OP_FAN_OUT: return forward ? none : call_of(attr, in, COMM_ALL_REDUCE, size);
        case OP_ALL_REDUCE: return call_of(attr, in, COMM_ALL_REDUCE, size);
        case OP_GATHER_ROWS: return call_of(attr, in, gathers, size);
        case OP_SCATTER_SUM: return call_of(attr, in, scatters, size / attr->comm.ranks);
        case OP_GATHER_COLS: return call_of(attr, in, gathers, in[0].rows * op_piece_cols(attr));
        case OP_GATHER_KV: return call_of(attr, in, gathers, size + in[1].rows * in[1].cols);
        case OP_SPLIT_HEADS:
        case OP_JOIN_HEADS: return call_of(attr, in, COMM_ALL_TO_ALL, size / attr->comm.ranks);
        case OP_RMSNORM_RANKS: return norm_call(attr, in, 1);
        case OP_LAYERNORM_RANKS: return norm_call(attr, in, 2);
        default: return none;
    }
}

/* The device that has the arrays of a call, if the host does not reach them. */
static dev *memory_of(const op_call *c) {
    return dev_host_enters(c->run->dev) ? NULL : c->run->dev;
}

void op_exchange(const op_call *c, mesh_axis axis, const comm_call *call) {
    comm_call one = *call;
    one.dev = memory_of(c);
    comm_run(c->run->mesh->axis[axis], &one);
}

void op_collect(const op_call *c, bool forward, const tensor *in, const void *from, void *to) {
    op_collective k = op_collective_of(c->kind, forward, c->attr, in, 0);
    k.call.in = from;
    k.call.out = to;
    op_exchange(c, k.axis, &k.call);
}

comm_ticket op_start(const op_call *c, mesh_axis axis, const comm_call *call) {
    const mesh *m = c->run->mesh;
    comm_call one = *call;
    one.dev = memory_of(c);
    if (m->size[MESH_PP] == 1) return comm_start(m->axis[axis], &one);
    op_exchange(c, axis, call);
    return 0;
}

void op_await(const op_call *c, comm_ticket t) {
    if (t) comm_wait(c->run->mesh->world, t);
}
