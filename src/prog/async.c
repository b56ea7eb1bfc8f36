/* Asynchronous tensor parallelism: what was recorded as a product with a collective before or behind it becomes one op, in which
 * pieces of the rows travel while others are multiplied (GATHER_LINEAR, LINEAR_SUM).
 *
 * That is done where the product alone reads what the collective gives, or gives what it sums, and where both gradients are wanted.
 * Elsewhere (the head, experts, several products of the same rows) the collective stays an op of its own. */
#include "prog/graph_int.h"

/* Pieces of a transfer: the last one of a sum is not hidden, and short products are slow. */
enum { PIECES = 4 };

/* Ops of the recording that read each value, or a part of it. */
static int32_t *count_readers(const graph *g) {
    int32_t *n = ARENA_ARRAY(g->a, int32_t, g->n_values + 1);
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int k = 0; k < OP_MAX_IN; k++)
            for (val v = g->op[i].in[k]; v != VAL_NONE;) {
                const value *x = &g->value[v];
                n[v]++;
                v = x->parent != VAL_NONE ? x->parent : x->same_as;
            }
    return n;
}

static bool is_plain_product(const graph *g, const op_rec *r) {
    if (r->kind != OP_LINEAR || r->entry != ENTRY_FWD || r->attr.linear.exact) return false;
    const value *x = &g->value[r->in[0]], *w = &g->value[r->in[1]];
    bool trains = x->needs_grad && w->needs_grad;
    return r->in[3] == VAL_NONE && w->t.dt == x->t.dt && x->t.ld == x->t.cols &&
           (trains || !g->opt.train);
}

/* a's output is read by b, and by nothing else. */
static bool passes_only_to(const graph *g, const int32_t *readers, const op_rec *a,
                           const op_rec *b) {
    const value *v = &g->value[a->out[0]];
    return b->in[0] == a->out[0] && readers[a->out[0]] == 1 && a->block == b->block && !v->port &&
           v->given_grad == VAL_NONE && v->aux == 0.0f;
}

static bool gathers_for(const graph *g, const op_rec *a, const op_rec *b) {
    bool gathers = a->kind == OP_GATHER_ROWS || a->kind == OP_FAN_OUT;
    return gathers && is_plain_product(g, b);
}

static bool sums_of(const graph *g, const op_rec *a, const op_rec *b) {
    bool sums = b->kind == OP_SCATTER_SUM || b->kind == OP_ALL_REDUCE;
    return sums && is_plain_product(g, a) && a->in[2] == VAL_NONE;
}

static op_rec merged(graph *g, const op_rec *a, const op_rec *b) {
    bool gathers = b->kind == OP_LINEAR;
    const op_rec *moves = gathers ? a : b, *product = gathers ? b : a;
    op_rec r =
        graph_empty_op(gathers ? OP_GATHER_LINEAR : OP_LINEAR_SUM, ENTRY_FWD, PHASE_F, b->block);
    bool shares = moves->kind == OP_GATHER_ROWS || moves->kind == OP_SCATTER_SUM;
    int64_t rows = g->value[a->in[0]].t.rows / (shares && !gathers ? graph_tp(g) : 1);
    r.attr.async = (op_async){.linear = product->attr.linear,
                              .shares_rows = shares,
                              .ranks = graph_tp(g),
                              .rank = graph_tp_rank(g),
                              .pieces = (int32_t)(rows < PIECES ? rows : PIECES),
                              .what = moves->attr.comm.what};
    r.in[0] = a->in[0], r.in[1] = product->in[1], r.in[2] = product->in[2];
    r.out[0] = b->out[0];
    return r;
}

static void infer(graph *g, op_rec *r) {
    op_infer io = {.kind = r->kind, .attr = &r->attr, .dev = g->opt.dev};
    err e = {0};
    for (int i = 0; i < 3; i++) {
        if (r->in[i] == VAL_NONE) continue;
        io.in[i] = g->value[r->in[i]].t;
        if (g->value[r->in[i]].needs_grad) io.want_grad |= (uint8_t)(1u << i);
    }
    status st = op_infer_call(&io, &e);
    if (st != ST_OK) {
        graph_fail(g, st, "%s", e.message);
        return;
    }
    graph_set_cost(g, r, &io.fwd);
    r->bwd_input = io.bwd_input;
}

void graph_merge_transfers(graph *g) {
    if (g->failed || !g->opt.async_products || graph_tp(g) == 1) return;
    const int32_t *readers = count_readers(g);
    int32_t *moved = ARENA_ARRAY(g->a, int32_t, g->n_ops + 1), n = 0;
    for (int32_t i = 0; i < g->n_ops && !g->failed; i++) {
        const op_rec *a = &g->op[i], *b = i + 1 < g->n_ops ? a + 1 : NULL;
        bool pair =
            b && passes_only_to(g, readers, a, b) && (gathers_for(g, a, b) || sums_of(g, a, b));
        op_rec r = pair ? merged(g, a, b) : *a;
        moved[i] = n;
        if (pair) {
            infer(g, &r);
            moved[++i] = n;
        }
        g->op[n++] = r;
    }
    g->n_ops = n;
    for (val v = 0; v < g->n_values; v++)
        if (g->value[v].producer >= 0) g->value[v].producer = moved[g->value[v].producer];
}
