/* The head over a vocabulary that tensor-parallel ranks share, or whose weights are in a file's own
 * format: recorded as primitive ops, a chunk of rows at a time, so that the logits of a whole batch
 * never exist and every transfer is in the program.
 *
 *   logits = x w^T + bias            this rank's part of the vocabulary
 *   stats  = (max, sum, target)      of every row; those of all ranks are gathered: 12 bytes a row
 *   nll, dlogits                     from all stats; dlogits lies where the logits lay
 *   dx = dlogits w; dw += dlogits^T x
 *
 * The gradients are made in the forward pass, as in OP_HEAD_CE, or in the backward pass, as in
 * OP_HEAD_NLL: the stats of all ranks are kept until then, and the logits are made again. dx is this
 * rank's summand: x came from a tp_in, and the backward of that sums dx over the ranks.
 *
 * Reading order: chunk, graph_head_parts, backward_chunk, graph_head_parts_backward. */
#include "prog/graph_int.h"

/* Each is some ten ops of the program. */
enum { MOST_CHUNKS = 8192 };

typedef struct head_parts {
    graph *g;
    op_attr attr;
    val x, w, bias, targets; /* whole */
    val nll, dx;             /* whole; dx VAL_NONE: not wanted */
    val dnll;                /* whole, in the backward pass; VAL_NONE in the forward pass */
    val *stats;              /* [chunks] of all ranks, kept for the backward; NULL: not needed */
    op_phase phase;
    int64_t n0, rows, each; /* of the chunk; rows of a whole one */
} head;

static val whole(graph *g, dtype dt, int64_t rows, int64_t cols) {
    tensor t = {.dt = dt, .rows = rows, .cols = cols};
    return graph_alloc_like(g, &t, NULL);
}

static bool next_chunk(head *h) {
    int64_t left = h->g->value[h->x].t.rows - h->n0;
    h->rows = left < h->each ? left : h->each;
    return left > 0 && !h->g->failed;
}

static int64_t chunks_of(const head *h) {
    return (h->g->value[h->x].t.rows + h->each - 1) / h->each;
}

static val of_chunk(const head *h, val v) {
    return v == VAL_NONE ? v : graph_view_rows(h->g, v, h->n0, h->rows);
}

/* ---- the products ---- */

/* logits of a chunk. */
static op_rec *product(const head *h) {
    op_attr exact = {.linear = {.exact = true}};
    return graph_emit(h->g, OP_LINEAR, &exact, (val[]){of_chunk(h, h->x), h->w, h->bias}, 3, -1);
}

/* A backward entry of the product that made the logits. */
static op_rec product_backward(const head *h, const op_rec *f, op_entry entry, val dlogits) {
    op_rec r = graph_empty_op(OP_LINEAR, entry, h->phase, h->g->block);
    r.attr = f->attr;
    for (int i = 0; i < 3; i++) r.in[i] = r.shape_in[i] = f->in[i];
    r.shape_out[0] = f->out[0];
    r.dout[0] = dlogits;
    graph_set_cost(h->g, &r, entry == ENTRY_BWD_WEIGHT ? &f->bwd_weight : &f->bwd_input);
    return r;
}

static void chunk_gradients(const head *h, op_rec made, val dlogits) {
    if (h->dx != VAL_NONE) {
        op_rec r = product_backward(h, &made, ENTRY_BWD_INPUT, dlogits);
        r.din[0] = of_chunk(h, h->dx);
        graph_append(h->g, &r);
    }
    op_rec r = product_backward(h, &made, ENTRY_BWD_WEIGHT, dlogits);
    for (int i = 1; i < 3; i++) graph_write_param_grad(h->g, &r, i);
    if (r.din[1] == VAL_NONE && r.din[2] == VAL_NONE) return;
    graph_append(h->g, &r);
    graph_fix_grads(h->g, h->g->n_ops - 1);
}

/* ---- forward ---- */

static void chunk(const head *h) {
    graph *g = h->g;
    val targets = of_chunk(h, h->targets);
    const op_rec *found = product(h);
    if (!found) return;
    op_rec made = *found;
    const op_rec *stats =
        graph_emit(g, OP_HEAD_STATS, &h->attr, (val[]){made.out[0], targets}, 2, 0);
    if (!stats) return;
    val capped = stats->out[0], all = graph_tp_rows(g, stats->out[1]);
    int in_place = h->attr.head.with_grad ? 0 : -1;
    op_rec *grad =
        graph_emit(g, OP_HEAD_GRAD, &h->attr, (val[]){capped, targets, all}, 3, in_place);
    if (!grad) return;
    val dlogits = grad->out[0];
    grad->out[1] = of_chunk(h, h->nll);
    if (h->stats) h->stats[h->n0 / h->each] = all;
    if (h->attr.head.with_grad) chunk_gradients(h, made, dlogits);
}

/* x, w: not VAL_NONE. */
static head head_of(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets) {
    op_part part = op_part_of(s->vocab, graph_tp(g), graph_tp_rank(g));
    tensor t = g->value[x].t;
    if (graph_rows(g, w) != part.n)
        graph_fail(g, ST_USAGE, "head: this rank's part of %lld tokens is %lld rows, w has %lld",
                   (long long)s->vocab, (long long)part.n, (long long)graph_rows(g, w));
    head h = {.g = g, .x = x, .w = w, .bias = bias, .targets = targets, .phase = PHASE_F};
    h.dx = h.dnll = VAL_NONE;
    h.attr.head.chunk_rows = s->chunk_rows;
    h.attr.head.z_loss = s->z_loss, h.attr.head.softcap = s->softcap;
    h.attr.head.weight = s->weight;
    h.attr.head.dt = t.dt;
    h.attr.head.all_rows = (int32_t)s->vocab, h.attr.head.first = (int32_t)part.first;
    h.nll = whole(g, t.dt == DT_F64 ? DT_F64 : DT_F32, t.rows, 1);
    /* Parts may differ by a row, chunks must not: they are collectives. */
    int64_t widest = (s->vocab + graph_tp(g) - 1) / graph_tp(g);
    h.each = op_head_chunk_rows(&h.attr, t.rows, widest);
    if (chunks_of(&h) > MOST_CHUNKS)
        graph_fail(g, ST_USAGE,
                   "the loss of %lld tokens, %lld at a time, takes more than %d chunks on "
                   "tensor-parallel ranks",
                   (long long)t.rows, (long long)h.each, MOST_CHUNKS);
    return h;
}

static void want_dx(head *h) {
    const value *x = &h->g->value[h->x];
    if (!x->needs_grad) return;
    h->dx = whole(h->g, x->t.dt, x->t.rows, x->t.cols);
    h->g->value[h->x].given_grad = h->dx;
}

val graph_head_parts(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets) {
    if (g->failed || x == VAL_NONE || w == VAL_NONE) return VAL_NONE;
    head h = head_of(g, s, x, w, bias, targets);
    h.attr.head.with_grad = g->opt.train;
    if (g->opt.train) want_dx(&h);
    for (; next_chunk(&h); h.n0 += h.each) chunk(&h);
    return g->failed ? VAL_NONE : h.nll;
}

val graph_head_parts_nll(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets) {
    if (g->failed || x == VAL_NONE || w == VAL_NONE) return VAL_NONE;
    CHECK(!g->deferred, "a second head without gradients in the forward pass");
    if (s->z_loss != 0)
        graph_fail(g, ST_USAGE, "head: z_loss is %g but this loss has none", (double)s->z_loss);
    head h = head_of(g, s, x, w, bias, targets);
    g->value[h.nll].needs_grad = g->value[x].needs_grad || g->value[w].needs_grad;
    if (g->opt.train) {
        g->deferred = ARENA_NEW(g->a, head);
        h.stats = ARENA_ARRAY(g->a, val, chunks_of(&h));
    }
    for (; next_chunk(&h); h.n0 += h.each) chunk(&h);
    if (g->deferred) *g->deferred = h;
    return g->failed ? VAL_NONE : h.nll;
}

/* ---- backward ---- */

/* The op that was recorded last belongs to the backward. */
static void move_to_backward(graph *g, bool again) {
    op_rec *r = &g->op[g->n_ops - 1];
    r->phase = PHASE_B;
    if (again) r->flops_again = r->flops;
}

/* Logits with a cap are capped again, which HEAD_STATS does. */
static val logits_again(const head *h, op_rec *made) {
    graph *g = h->g;
    const op_rec *found = product(h);
    if (!found) return VAL_NONE;
    *made = *found;
    move_to_backward(g, true);
    if (h->attr.head.softcap == 0) return made->out[0];
    val in[] = {made->out[0], of_chunk(h, h->targets)};
    const op_rec *stats = graph_emit(g, OP_HEAD_STATS, &h->attr, in, 2, 0);
    if (!stats) return VAL_NONE;
    val capped = stats->out[0];
    move_to_backward(g, true);
    return capped;
}

static void backward_chunk(const head *h) {
    graph *g = h->g;
    op_rec made;
    val logits = logits_again(h, &made);
    if (logits == VAL_NONE) return;
    val in[] = {logits, of_chunk(h, h->targets), h->stats[h->n0 / h->each], of_chunk(h, h->dnll)};
    const op_rec *grad = graph_emit(g, OP_HEAD_GRAD, &h->attr, in, 4, 0);
    if (!grad) return;
    val dlogits = grad->out[0];
    move_to_backward(g, false);
    chunk_gradients(h, made, dlogits);
}

void graph_head_parts_backward(graph *g) {
    if (g->failed || !g->deferred) return;
    head h = *g->deferred;
    h.dnll = g->value[h.nll].given_grad;
    if (h.dnll == VAL_NONE) return;
    h.phase = PHASE_B;
    h.attr.head.with_grad = true;
    want_dx(&h);
    for (h.n0 = 0; next_chunk(&h); h.n0 += h.each) backward_chunk(&h);
}
