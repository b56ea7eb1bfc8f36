/* Counting a step's collectives (see traffic.h). Which calls a unit makes is decided by
 * train/ranks/peers.c, which calls an op makes by op/ref/comm.c; tests hold the three together. */
#include "step/traffic.h"

typedef struct tally {
    comm_counts sum;
    const param_store *s;
    const mesh *ranks;
    bool narrow;
} tally;

static void count(tally *t, const comm_call *call, int rank, int size) {
    int64_t bytes = comm_call_sends(call, rank, size);
    t->sum.calls[call->kind] += size > 1;
    t->sum.sent_bytes[call->kind] += bytes;
}

static void count_on(tally *t, mesh_axis axis, const comm_call *call) {
    count(t, call, t->ranks->rank[axis], t->ranks->size[axis]);
}

/* ---- units ---- */

static void gather(tally *t, int u) {
    param_transfer k = param_weights_transfer(t->s, u);
    comm_call call = {.kind = COMM_ALL_GATHER, .n = k.n, .dt = k.dt};
    if (k.n > 0) count_on(t, MESH_SHARD, &call);
}

/* Over the tensor-parallel ranks that have summands of the same. */
static void sum_partial(tally *t, const param_unit *u, dtype dt) {
    for (int i = 0; i < u->n_partial; i++) {
        comm_call call = {.kind = COMM_ALL_REDUCE, .n = u->partial[i].n, .dt = dt};
        int copies = u->partial[i].copies;
        count(t, &call, t->ranks->rank[MESH_TP] % copies, copies);
    }
}

static void reduce(tally *t, const step_entry *e) {
    const param_unit *u = param_unit_at(t->s, e->unit);
    param_transfer k = param_grads_transfer(t->s, e->unit);
    comm_call scatter = {.kind = COMM_REDUCE_SCATTER, .n = k.n, .dt = k.dt, .narrow = t->narrow};
    comm_call sum = scatter;
    sum.kind = COMM_ALL_REDUCE;
    sum_partial(t, u, k.dt);
    if (u->whole) {
        count_on(t, MESH_DP, &sum);
        return;
    }
    count_on(t, MESH_SHARD, &scatter);
    if (e->last) count_on(t, MESH_REPLICATE, &sum);
}

static void update(tally *t) {
    if (param_weights_in_slots(t->s)) return;
    for (int u = 0; u < param_units(t->s); u++) gather(t, u);
}

/* ---- ops ---- */

static int64_t size_of(const tensor *t) {
    return t->rows * t->cols;
}

/* The call that an op makes; COMM_KINDS: none. */
static comm_call call_of(const prog_op *op) {
    const tensor *x = &op->in[0], *y = &op->out[0];
    bool forward = op->entry == ENTRY_FWD;
    comm_call c = {.kind = COMM_KINDS, .dt = x->dt};
    switch (op->kind) {
        case OP_FAN_OUT:
            if (!forward) c.kind = COMM_ALL_REDUCE, c.n = size_of(x);
            break;
        case OP_ALL_REDUCE: c.kind = COMM_ALL_REDUCE, c.n = size_of(y); break;
        case OP_GATHER_ROWS:
            c.kind = forward ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER, c.n = size_of(x);
            break;
        case OP_SCATTER_SUM:
            c.kind = forward ? COMM_REDUCE_SCATTER : COMM_ALL_GATHER, c.n = size_of(y);
            break;
        case OP_GATHER_COLS: {
            int64_t widest =
                (op->attr->comm.cols + op->attr->comm.ranks - 1) / op->attr->comm.ranks;
            c.kind = COMM_ALL_GATHER, c.n = x->rows * widest;
            break;
        }
        case OP_RMSNORM_RANKS: c.kind = COMM_ALL_REDUCE, c.n = x->rows, c.dt = DT_F64; break;
        case OP_LAYERNORM_RANKS: c.kind = COMM_ALL_REDUCE, c.n = 2 * x->rows, c.dt = DT_F64; break;
        default: break;
    }
    return c;
}

static void count_ops(tally *t, const prog *p, const step_entry *e) {
    for (int i = e->first; i < e->end; i++) {
        prog_op op = prog_get_op(p, i);
        comm_call call = call_of(&op);
        if (call.kind == COMM_KINDS) continue;
        bool norm = op.kind == OP_RMSNORM_RANKS || op.kind == OP_LAYERNORM_RANKS;
        count_on(t, (mesh_axis)(norm ? op.attr->norm.axis : op.attr->comm.axis), &call);
    }
}

comm_counts step_traffic(const step_table *table, const param_store *s, const prog *p,
                         const mesh *ranks, bool narrow) {
    tally t = {.s = s, .ranks = ranks, .narrow = narrow && !param_grads_are_fixed(s)};
    for (int i = 0; i < table->n; i++) {
        const step_entry *e = &table->entry[i];
        switch (e->action) {
            case STEP_FORWARD:
            case STEP_BACKWARD: count_ops(&t, p, e); break;
            case STEP_GATHER: gather(&t, e->unit); break;
            case STEP_REDUCE: reduce(&t, e); break;
            case STEP_OPTIMIZER: update(&t); break;
            case STEP_FILL:
            case STEP_LOSS:
            case STEP_GATHERED:
            case STEP_REDUCED: break;
        }
    }
    return t.sum;
}
