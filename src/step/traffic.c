/* Counts what the entries of a step table send (see traffic.h). */
#include "step/traffic.h"

#include "op/collective.h"

/* ---- the calls of a unit ---- */

bool step_gather_call(const param_store *s, int u, step_call *out) {
    param_transfer t = param_weights_transfer(s, u);
    bool experts = param_unit_at(s, u)->of_experts;
    *out = (step_call){.axis = experts ? MESH_EP_SHARD : MESH_SHARD,
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
        *out = (step_call){.axis = u->of_experts ? MESH_EP_DATA : MESH_DATA,
                           .call = sum_in_place(d, all, t.n, t.dt, narrow)};
        return i == 0;
    }
    if (i == 0) {
        *out = (step_call){.axis = u->of_experts ? MESH_EP_SHARD : MESH_SHARD,
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

/* ---- the calls of an entry ---- */

static void visit(const step_caller *c, step_call k, bool side) {
    k.side = side;
    c->visit(c->ctx, &k);
}

static void gather(const step_caller *c, int u) {
    step_call k;
    if (step_gather_call(c->parts->store, u, &k)) visit(c, k, true);
}

static void reduce(const step_caller *c, const step_entry *e) {
    step_call k;
    for (int i = 0; step_reduce_call(c->parts->store, e, c->narrow, i, &k); i++) visit(c, k, true);
}

static void tie(const step_caller *c, int u) {
    int last = c->ranks->size[MESH_PP] - 1;
    visit(c,
          (step_call){.pair = true,
                      .stage = c->ranks->rank[MESH_PP] ? 0 : last,
                      .call = step_tied_call(c->parts->store, u, c->narrow)},
          false);
}

/* The lower stage is rank 0 of the two. */
static void pass(const step_caller *c, const step_entry *e, bool sends) {
    const char *port = sends ? (e->back ? "grad.x" : "y") : e->back ? "grad.y" : "x";
    comm_call call = {.kind = COMM_SEND, .dt = DT_U8, .what = e->what};
    call.n = prog_find_port(step_prog_of(c->parts, e), port).bytes;
    call.root = sends == (c->ranks->rank[MESH_PP] > e->stage);
    visit(c, (step_call){.pair = true, .stage = e->stage, .call = call}, true);
}

static void update(const step_caller *c) {
    const param_store *s = c->parts->store;
    if (param_weights_in_slots(s)) return;
    for (int u = 0; u < param_units(s); u++)
        if (!param_unit_at(s, u)->frozen) gather(c, u);
}

static void run_ops(const step_caller *c, const step_entry *e) {
    const prog *p = step_prog_of(c->parts, e);
    for (int i = e->first; i < e->end; i++) {
        if (!(op_classes[prog_op_kind(p, i)].flags & OPF_COMMUNICATES)) continue;
        prog_op op = prog_get_op(p, i);
        for (int call = 0;; call++) {
            bool forward = op.entry == ENTRY_FWD;
            op_collective k = op_collective_of(op.kind, forward, op.attr, op.in, call);
            if (k.call.kind == COMM_KINDS) break;
            visit(c, (step_call){.axis = k.axis, .call = k.call}, false);
        }
    }
}

void step_visit_calls(const step_caller *c, const step_entry *e) {
    switch (e->action) {
        case STEP_FORWARD:
        case STEP_BACKWARD: run_ops(c, e); break;
        case STEP_GATHER: gather(c, e->unit); break;
        case STEP_REDUCE: reduce(c, e); break;
        case STEP_TIED: tie(c, e->unit); break;
        case STEP_SEND:
        case STEP_RECEIVE: pass(c, e, e->action == STEP_SEND); break;
        case STEP_OPTIMIZER: update(c); break;
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

mesh_line step_call_ranks(const step_call *k, const mesh *m, int *first) {
    mesh_line line = mesh_line_of(&m->shape, k->pair ? MESH_PP : k->copies ? MESH_TP : k->axis);
    int rank = m->rank[MESH_WORLD], own = m->rank[MESH_PP], low = own < k->stage ? own : k->stage;
    if (k->pair) {
        *first = rank + (low - own) * line.stride;
        return (mesh_line){2, (own + k->stage - 2 * low) * line.stride};
    }
    int place = rank / line.stride % line.size;
    if (k->copies) line.size = k->copies;
    *first = rank - place % line.size * line.stride;
    return line;
}

/* ---- counting ---- */

typedef struct tally {
    comm_counts sum;
    const mesh *ranks;
} tally;

static void count(void *ctx, const step_call *k) {
    tally *t = ctx;
    int first, kind = k->call.kind;
    mesh_line line = step_call_ranks(k, t->ranks, &first);
    int place = (t->ranks->rank[MESH_WORLD] - first) / line.stride;
    int64_t bytes = comm_call_sends(&k->call, place, line.size);
    t->sum.calls[kind] += line.size > 1;
    int64_t *sum = &t->sum.sent_bytes[kind];
    if (__builtin_add_overflow(*sum, bytes, sum)) *sum = INT64_MAX;
}

comm_counts step_traffic(const step_table *table, const step_parts *parts, const mesh *ranks,
                         bool narrow) {
    tally t = {.ranks = ranks};
    step_caller c = {.parts = parts, .ranks = ranks, .narrow = narrow, .visit = count, .ctx = &t};
    for (int i = 0; i < table->n; i++) step_visit_calls(&c, &table->entry[i]);
    return t.sum;
}

int64_t step_file_bytes(const step_table *table, const param_store *s) {
    int64_t sum = 0;
    for (int i = 0; i < table->n; i++) {
        if (table->entry[i].action != STEP_GATHER) continue;
        param_transfer t = param_weights_transfer(s, table->entry[i].unit);
        if (t.from_file) sum += t.n * (int64_t)dtype_bytes(t.dt);
    }
    return sum;
}
