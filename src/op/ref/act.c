/* y = act(x); dx = dy act'(x). */
#include "op/ref/act.h"

static void act_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    act_kind kind = c->attr->act.kind;
    REAL limit = c->attr->act.c;
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++)
        for (int64_t i = 0; i < x->cols; i++)
            row_of(y, n)[i] = store(act_value(kind, load(row_of(x, n)[i]), limit));
}

static void act_bwd(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dx = &c->din[0];
    if (!dx->data) return;
    act_kind kind = c->attr->act.kind;
    REAL limit = c->attr->act.c;
    bool add = op_accumulates(c, 0);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++)
        for (int64_t i = 0; i < x->cols; i++)
            put(row_of(dx, n) + i,
                load(row_of(dy, n)[i]) * act_slope(kind, load(row_of(x, n)[i]), limit), add);
}

const op_impl REF_IMPL(ACT) = {act_fwd, act_bwd, NULL, NULL};
