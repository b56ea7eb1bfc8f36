/* The head over a vocabulary that tensor-parallel ranks share, or whose weights are in a file's own
 * format: recorded as primitive ops, a chunk of rows at a time, so that the logits of a whole batch
 * never exist and every transfer is in the program.
 *
 *   logits = x w^T + bias            this rank's part of the vocabulary
 *   stats  = (max, sum, target)      of every row; those of all ranks are gathered: 12 bytes a row
 *   nll, dlogits                     from all stats; dlogits lies where the logits lay
 *   dx = dlogits w; dw += dlogits^T x
 *
 * The gradients are made in the forward pass, as in OP_HEAD_CE. dx is this rank's summand: x came
 * from a tp_in, and the backward of that sums dx over the ranks. */
#include "prog/graph_int.h"

/* Each is some ten ops of the program. */
enum { MOST_CHUNKS = 8192 };

typedef struct head {
    graph *g;
    op_attr attr;
    val x, w, bias, targets; /* whole */
    val nll, dx;             /* whole; dx VAL_NONE: not wanted */
    int64_t n0, rows;        /* of the chunk */
} head;

static val whole(graph *g, dtype dt, int64_t rows, int64_t cols) {
    tensor t = {.dt = dt, .rows = rows, .cols = cols};
    return graph_alloc_like(g, &t, NULL);
}

/* A backward entry of the product that made the logits, run in the forward pass. */
static op_rec product_backward(const head *h, const op_rec *f, op_entry entry, val dlogits) {
    op_rec r = graph_empty_op(OP_LINEAR, entry, PHASE_F, h->g->block);
    r.attr = f->attr;
    for (int i = 0; i < 3; i++) r.in[i] = r.shape_in[i] = f->in[i];
    r.shape_out[0] = f->out[0];
    r.dout[0] = dlogits;
    graph_set_cost(h->g, &r, entry == ENTRY_BWD_WEIGHT ? &f->bwd_weight : &f->bwd_input);
    return r;
}

/* The first chunk writes gradients of parameters, the others add to them. */
static void chunk_gradients(const head *h, op_rec product, val dlogits) {
    if (h->dx != VAL_NONE) {
        op_rec r = product_backward(h, &product, ENTRY_BWD_INPUT, dlogits);
        r.din[0] = graph_view_rows(h->g, h->dx, h->n0, h->rows);
        graph_append(h->g, &r);
    }
    op_rec r = product_backward(h, &product, ENTRY_BWD_WEIGHT, dlogits);
    for (int i = 1; i < 3; i++) graph_write_param_grad(h->g, &r, i);
    if (r.din[1] == VAL_NONE && r.din[2] == VAL_NONE) return;
    if (h->n0 > 0) r.acc = r.acc_param, r.acc_param = 0;
    graph_append(h->g, &r);
    graph_fix_grads(h->g, h->g->n_ops - 1);
}

static void chunk(const head *h) {
    graph *g = h->g;
    val x = graph_view_rows(g, h->x, h->n0, h->rows);
    val targets = graph_view_rows(g, h->targets, h->n0, h->rows);
    op_attr exact = {.linear = {.exact = true}};
    const op_rec *made = graph_emit(g, OP_LINEAR, &exact, (val[]){x, h->w, h->bias}, 3, -1);
    if (!made) return;
    op_rec product = *made;
    const op_rec *stats =
        graph_emit(g, OP_HEAD_STATS, &h->attr, (val[]){product.out[0], targets}, 2, 0);
    if (!stats) return;
    val capped = stats->out[0], all = graph_tp_rows(g, stats->out[1]);
    int in_place = h->attr.head.with_grad ? 0 : -1;
    op_rec *grad =
        graph_emit(g, OP_HEAD_GRAD, &h->attr, (val[]){capped, targets, all}, 3, in_place);
    if (!grad) return;
    val dlogits = grad->out[0];
    val nll = graph_view_rows(g, h->nll, h->n0, h->rows);
    g->op[g->n_ops - 1].out[1] = nll;
    if (h->attr.head.with_grad) chunk_gradients(h, product, dlogits);
}

val graph_head_parts(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets) {
    if (g->failed || x == VAL_NONE || w == VAL_NONE) return VAL_NONE;
    op_part part = op_part_of(s->vocab, graph_tp(g), graph_tp_rank(g));
    tensor t = g->value[x].t;
    if (graph_rows(g, w) != part.n) {
        graph_fail(g, ST_USAGE, "head: this rank's part of %lld tokens is %lld rows, w has %lld",
                   (long long)s->vocab, (long long)part.n, (long long)graph_rows(g, w));
        return VAL_NONE;
    }
    dtype real = t.dt == DT_F64 ? DT_F64 : DT_F32;
    head h = {.g = g, .x = x, .w = w, .bias = bias, .targets = targets, .dx = VAL_NONE};
    h.attr.head.chunk_rows = s->chunk_rows;
    h.attr.head.z_loss = s->z_loss, h.attr.head.softcap = s->softcap;
    h.attr.head.with_grad = g->opt.train, h.attr.head.dt = t.dt;
    h.attr.head.all_rows = (int32_t)s->vocab, h.attr.head.first = (int32_t)part.first;
    h.nll = whole(g, real, t.rows, 1);
    if (g->opt.train && g->value[x].needs_grad) {
        h.dx = whole(g, t.dt, t.rows, t.cols);
        g->value[x].given_grad = h.dx;
    }
    /* Parts may differ by a row, chunks must not: they are collectives. */
    int64_t widest = (s->vocab + graph_tp(g) - 1) / graph_tp(g);
    int64_t each = op_head_chunk_rows(&h.attr, t.rows, widest);
    if ((t.rows + each - 1) / each > MOST_CHUNKS)
        graph_fail(g, ST_USAGE,
                   "the loss of %lld tokens, %lld at a time, takes more than %d chunks on "
                   "tensor-parallel ranks",
                   (long long)t.rows, (long long)each, MOST_CHUNKS);
    for (; h.n0 < t.rows && !g->failed; h.n0 += each) {
        h.rows = t.rows - h.n0 < each ? t.rows - h.n0 : each;
        chunk(&h);
    }
    return g->failed ? VAL_NONE : h.nll;
}
