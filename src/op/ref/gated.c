/* y = act(gate) up; dgate = dy up act'(gate), dup = dy act(gate). */
#include "op/ref/act.h"

static void gated_fwd(const op_call *c) {
    const tensor *gate = &c->in[0], *up = &c->in[1], *y = &c->out[0];
    act_kind kind = c->attr->act.kind;
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        for (int64_t i = 0; i < y->cols; i++)
            row_of(y, n)[i] =
                store(act_value(kind, load(row_of(gate, n)[i]), 0) * load(row_of(up, n)[i]));
}

static void gated_bwd(const op_call *c) {
    const tensor *gate = &c->in[0], *up = &c->in[1], *dy = &c->dout[0];
    const tensor *dgate = &c->din[0], *dup = &c->din[1];
    act_kind kind = c->attr->act.kind;
    bool add_gate = op_accumulates(c, 0), add_up = op_accumulates(c, 1);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < dy->rows; n++) {
        for (int64_t i = 0; i < dy->cols; i++) {
            REAL g = load(row_of(gate, n)[i]), u = load(row_of(up, n)[i]);
            REAL d = load(row_of(dy, n)[i]);
            if (dgate->data) put(row_of(dgate, n) + i, d * u * act_slope(kind, g, 0), add_gate);
            if (dup->data) put(row_of(dup, n) + i, d * act_value(kind, g, 0), add_up);
        }
    }
}

const op_impl REF_IMPL(GATED) = {gated_fwd, gated_bwd, NULL, NULL};
