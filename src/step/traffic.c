/* Counts what the entries of a step table send (see traffic.h). */
#include "step/traffic.h"

#include "op/collective.h"
#include "step/unit_calls.h"

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

/* ---- units ---- */

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

static void update(tally *t) {
    if (param_weights_in_slots(t->s)) return;
    for (int u = 0; u < param_units(t->s); u++)
        if (!param_unit_at(t->s, u)->frozen) gather(t, u);
}

/* ---- ops ---- */

static void count_ops(tally *t, const prog *p, const step_entry *e) {
    for (int i = e->first; i < e->end; i++) {
        prog_op op = prog_get_op(p, i);
        op_collective k = op_collective_of(op.kind, op.entry == ENTRY_FWD, op.attr, &op.in[0]);
        if (k.call.kind != COMM_KINDS) count_on(t, k.axis, &k.call);
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
            case STEP_OPTIMIZER: update(&t); break;
            case STEP_FILL:
            case STEP_PASS_ON:
            case STEP_LOSS:
            case STEP_PASS_BACK:
            case STEP_GATHERED:
            case STEP_REDUCED: break;
        }
    }
    return t.sum;
}
