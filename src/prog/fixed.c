/* Gradients in fixed point (graph_options.fixed_grads). An op makes its contribution in a temporary
 * of the frame, and the next op, FIXED_ADD, adds that to the integer sum: each use of a tied or
 * shared parameter is a contribution of its own, rounded once. */
#include "prog/graph_int.h"

/* Adds what op r leaves in the returned value to dw, as r would have added to input i's gradient.
 */
static val append_sum(graph *g, const op_rec *r, int i, val dw) {
    tensor t = g->value[dw].t;
    t.dt = g->opt.dt == DT_F64 ? DT_F64 : DT_F32;
    val made = graph_alloc_like(g, &t, g->value[dw].name);
    op_rec f = graph_empty_op(OP_FIXED_ADD, ENTRY_FWD, r->phase, r->block);
    f.acc = (uint8_t)(r->acc >> i & 1u);
    f.acc_param = (uint8_t)(r->acc_param >> i & 1u);
    f.in[0] = made;
    f.out[0] = dw;
    double n = (double)t.rows * (double)t.cols;
    f.flops = 2 * n;
    f.bytes = n * (double)(dtype_bytes(t.dt) + 2 * dtype_bytes(DT_I64));
    graph_append(g, &f);
    return made;
}

void graph_fix_grads(graph *g, int32_t index) {
    if (!g->opt.fixed_grads) return;
    op_rec r = g->op[index];
    if (op_classes[r.kind].flags & OPF_FIXES) return;
    unsigned sums = 0;
    for (int i = 0; i < OP_MAX_IN; i++) {
        val dw = r.din[i];
        if (dw == VAL_NONE || g->buf[g->value[dw].buf].where != SPACE_GRAD) continue;
        r.din[i] = append_sum(g, &r, i, dw);
        sums |= 1u << i;
    }
    r.acc &= (uint8_t)~sums;
    r.acc_param &= (uint8_t)~sums;
    g->op[index] = r;
}
