/* Counts what the entries of a step table send (see traffic.h). */
#include "step/traffic.h"

#include "op/collective.h"

/* ---- the calls of a unit ---- */

bool step_gather_call(const param_store *s, int u, step_call *out) {
    param_transfer t = param_weights_transfer(s, u);
    *out = (step_call){.axis = MESH_SHARD,
                       .call = {.kind = COMM_ALL_GATHER,
                                .dev = param_device(s),
                                .in = t.in,
                                .out = t.out,
                                .n = t.n,
                                .dt = t.dt}};
    return t.n > 0;
}

static comm_call sum_in_place(dev *d, void *x, int64_t n, dtype dt, bool narrow) {
    return (comm_call){
        .kind = COMM_ALL_REDUCE, .dev = d, .in = x, .out = x, .n = n, .dt = dt, .narrow = narrow};
}

static step_call sum_partial(dev *d, const param_transfer *t, const param_partial *k) {
    char *unit = (char *)(uintptr_t)t->in;
    void *at = unit ? unit + k->at * (int64_t)dtype_bytes(t->dt) : NULL;
    return (step_call){
        .axis = MESH_TP, .copies = k->copies, .call = sum_in_place(d, at, k->n, t->dt, false)};
}

bool step_reduce_call(const param_store *s, const step_entry *e, bool narrow, int i,
                      step_call *out) {
    const param_unit *u = param_unit_at(s, e->unit);
    param_transfer t = param_grads_transfer(s, e->unit);
    dev *d = param_device(s);
    narrow = narrow && t.dt == DT_F32; /* sums of integers stay whole */
    if (i < u->n_partial) {
        *out = sum_partial(d, &t, &u->partial[i]);
        return true;
    }
    i -= u->n_partial;
    if (u->whole) {
        void *all = (void *)(uintptr_t)t.in;
        *out = (step_call){.axis = MESH_DATA, .call = sum_in_place(d, all, t.n, t.dt, narrow)};
        return i == 0;
    }
    if (i == 0) {
        *out = (step_call){.axis = MESH_SHARD,
                           .call = {.kind = COMM_REDUCE_SCATTER,
                                    .dev = d,
                                    .in = t.in,
                                    .out = t.out,
                                    .n = t.n,
                                    .dt = t.dt,
                                    .add = e->add,
                                    .narrow = narrow}};
        return true;
    }
    *out = (step_call){.axis = MESH_REPLICATE, .call = sum_in_place(d, t.out, t.n, t.dt, narrow)};
    return i == 1 && e->last;
}

comm_call step_tied_call(const param_store *s, int u, bool narrow) {
    param_transfer t = param_grads_transfer(s, u);
    return sum_in_place(param_device(s), t.out, t.n, t.dt, narrow && t.dt == DT_F32);
}

/* ---- counting ---- */

typedef struct tally {
    comm_counts sum;
    const param_store *s;
    const mesh *ranks;
    bool narrow;
} tally;

static void count(tally *t, const comm_call *call, int rank, int size) {
    int64_t bytes = comm_call_sends(call, rank, size);
    t->sum.calls[call->kind] += size > 1;
    int64_t *sum = &t->sum.sent_bytes[call->kind];
    if (__builtin_add_overflow(*sum, bytes, sum)) *sum = INT64_MAX;
}

static void count_on(tally *t, mesh_axis axis, const comm_call *call) {
    count(t, call, t->ranks->rank[axis], t->ranks->size[axis]);
}

static void count_step(tally *t, const step_call *k) {
    int copies = k->copies;
    if (copies)
        count(t, &k->call, t->ranks->rank[MESH_TP] % copies, copies);
    else
        count_on(t, k->axis, &k->call);
}

static void gather(tally *t, int u) {
    step_call k;
    if (step_gather_call(t->s, u, &k)) count_step(t, &k);
}

static void reduce(tally *t, const step_entry *e) {
    step_call k;
    for (int i = 0; step_reduce_call(t->s, e, t->narrow, i, &k); i++) count_step(t, &k);
}

/* Stages 0 and the last one are ranks 0 and 1 of their group. */
static void tie(tally *t, int u) {
    comm_call call = step_tied_call(t->s, u, t->narrow);
    count(t, &call, t->ranks->rank[MESH_PP] > 0, 2);
}

static void send(tally *t, const prog *p, const step_entry *e) {
    comm_call call = {.kind = COMM_SEND, .dt = DT_U8};
    call.n = prog_find_port(p, e->back ? "grad.x" : "y").bytes;
    count(t, &call, 0, 2);
}

static void update(tally *t) {
    if (param_weights_in_slots(t->s)) return;
    for (int u = 0; u < param_units(t->s); u++)
        if (!param_unit_at(t->s, u)->frozen) gather(t, u);
}

static void count_ops(tally *t, const prog *p, const step_entry *e) {
    for (int i = e->first; i < e->end; i++) {
        prog_op op = prog_get_op(p, i);
        for (int call = 0;; call++) {
            bool forward = op.entry == ENTRY_FWD;
            op_collective k = op_collective_of(op.kind, forward, op.attr, op.in, call);
            if (k.call.kind == COMM_KINDS) break;
            count_on(t, k.axis, &k.call);
        }
    }
}

comm_counts step_traffic(const step_table *table, const step_parts *parts, const mesh *ranks,
                         bool narrow) {
    tally t = {.s = parts->store, .ranks = ranks, .narrow = narrow};
    for (int i = 0; i < table->n; i++) {
        const step_entry *e = &table->entry[i];
        switch (e->action) {
            case STEP_FORWARD:
            case STEP_BACKWARD: count_ops(&t, step_prog_of(parts, e), e); break;
            case STEP_GATHER: gather(&t, e->unit); break;
            case STEP_REDUCE: reduce(&t, e); break;
            case STEP_TIED: tie(&t, e->unit); break;
            case STEP_SEND: send(&t, step_prog_of(parts, e), e); break;
            case STEP_RECEIVE: t.sum.calls[COMM_SEND]++; break; /* it sends nothing */
            case STEP_OPTIMIZER: update(&t); break;
            case STEP_FETCH:
            case STEP_FILL:
            case STEP_TALLY:
            case STEP_COUNTED:
            case STEP_PASS_ON:
            case STEP_SENT:
            case STEP_RECEIVED:
            case STEP_LOSS:
            case STEP_PASS_BACK:
            case STEP_GATHERED:
            case STEP_REDUCED: break;
        }
    }
    return t.sum;
}
