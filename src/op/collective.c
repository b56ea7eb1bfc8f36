#include "op/collective.h"

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

op_collective op_collective_of(op_kind kind, bool forward, const op_attr *attr, const tensor *x) {
    static const op_collective none = {.call = {.kind = COMM_KINDS}};
    comm_kind gathers = forward ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER;
    comm_kind scatters = forward ? COMM_REDUCE_SCATTER : COMM_ALL_GATHER;
    int64_t size = x->rows * x->cols;
    switch (kind) {
        case OP_FAN_OUT: return forward ? none : call_of(attr, x, COMM_ALL_REDUCE, size);
        case OP_ALL_REDUCE: return call_of(attr, x, COMM_ALL_REDUCE, size);
        case OP_GATHER_ROWS: return call_of(attr, x, gathers, size);
        case OP_SCATTER_SUM: return call_of(attr, x, scatters, size / attr->comm.ranks);
        case OP_GATHER_COLS: return call_of(attr, x, gathers, x->rows * op_piece_cols(attr));
        case OP_RMSNORM_RANKS: return norm_call(attr, x, 1);
        case OP_LAYERNORM_RANKS: return norm_call(attr, x, 2);
        default: return none;
    }
}

void op_collect(const op_call *c, bool forward, const tensor *x, const void *in, void *out) {
    op_collective k = op_collective_of(c->kind, forward, c->attr, x);
    k.call.in = in;
    k.call.out = out;
    comm_run(c->run->mesh->axis[k.axis], &k.call);
}
