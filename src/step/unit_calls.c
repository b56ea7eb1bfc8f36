/* The collectives that gather or reduce a unit (see unit_calls.h). */
#include "step/unit_calls.h"

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
        *out = (step_call){.axis = MESH_DP, .call = sum_in_place(d, all, t.n, t.dt, narrow)};
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
