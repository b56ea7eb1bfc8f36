/* Backward, derived from the op table, and recompute.
 *
 * Gradients begin where they are given: by the head in the forward pass, from outside (roots), or
 * as the constant of an auxiliary loss. They end at parameters that are trained, and at inputs
 * whose gradient is kept.
 *
 * The forward ops are visited last to first. For each, the gradients of its outputs are complete
 * when it is reached. Its weight gradient is emitted first (phase W): afterwards its input is often
 * no longer needed, and the memory is used again. Its input gradient is next (phase B). What the
 * backward reads of the forward goes through `resolve`. A value that the policy of its block keeps
 * is used as it is. For any other value, its producer is emitted again, once, in phase B. The same
 * kernel on the same inputs gives the same bits, so recompute never changes a gradient.
 *
 * An addition only passes gradients on: in y = a + b the gradients of both are the buffer of dy. An
 * op may add to such a shared buffer only if no later op reads its old contents; otherwise the
 * buffer is copied first.
 *
 * With split_backward, weight gradients that have entries of their own are emitted behind all others.
 * What they read stays until then: nothing is added to it, and nothing takes its place. */
#include "prog/graph_int.h"

#include <string.h>

typedef struct derive {
    graph *g;
    /* [values of the forward] */
    val *grad;        /* its gradient; VAL_NONE: none yet */
    int64_t *covered; /* columns of its gradient that views have written */
    val *clone;       /* recomputed copy */
    bool *param_used; /* this parameter gradient has been written in this program */
    val *passed_on;   /* forward values whose gradient is another's buffer */
    int32_t n_passed_on, cap_passed_on;
    op_rec *later; /* split_backward: weight gradients that are still to be emitted */
    int32_t n_later, cap_later;
} derive;

static int32_t buf_of(const derive *d, val v) {
    return d->g->value[v].buf;
}

static bool reads(const derive *d, const val *v, int n, int32_t buf) {
    for (int i = 0; i < n; i++)
        if (v[i] != VAL_NONE && buf_of(d, v[i]) == buf) return true;
    return false;
}

static bool is_read_later(const derive *d, int32_t buf) {
    for (int32_t i = 0; i < d->n_later; i++) {
        const op_rec *r = &d->later[i];
        if (reads(d, r->in, OP_MAX_IN, buf) || reads(d, r->out, OP_MAX_OUT, buf) ||
            reads(d, r->dout, OP_MAX_OUT, buf))
            return true;
    }
    return false;
}

/* ---- recompute ---- */

/* Is its result the residual stream? That is kept where cheap ops are made again: it is a sum over
 * all layers before it. */
static bool has_summand(const op_rec *r) {
    for (int i = 0; i < OP_MAX_IN; i++)
        if ((op_classes[r->kind].passes >> i & 1) && r->in[i] != VAL_NONE) return true;
    return false;
}

/* Which input's buffer the forward op took; -1: none. */
static int in_place_input(const graph *g, const op_rec *r) {
    for (int i = 0; i < OP_MAX_IN; i++)
        if (r->in[i] != VAL_NONE && r->out[0] != VAL_NONE && g->value[r->in[i]].overwritten &&
            g->value[r->in[i]].buf == g->value[r->out[0]].buf)
            return i;
    return -1;
}

/* Is v what a collective gave, or what an op in place has made of that? */
static bool is_of_collective(const graph *g, val v) {
    while (v != VAL_NONE && g->value[v].producer >= 0) {
        const op_rec *r = &g->op[g->value[v].producer];
        if (op_classes[r->kind].flags & OPF_COMMUNICATES) return true;
        int taken = in_place_input(g, r);
        v = taken >= 0 && v == r->out[0] ? r->in[taken] : VAL_NONE;
    }
    return false;
}

/* What is remade under every policy are gathered rows of all ranks: each keeps its own and gathers
 * again (Korthikanti et al. 2022, section 4.2.2), so that activations shrink with the number of
 * ranks. */
static bool is_kept(const derive *d, val v) {
    const value *x = &d->g->value[v];
    if (x->producer < 0) return true;
    if (x->overwritten) return false;
    if (x->block < 0 || x->escapes) return true;
    uint32_t flags = op_classes[d->g->op[x->producer].kind].flags;
    if (d->g->opt.keep_collectives && is_of_collective(d->g, v)) return true;
    if (flags & OPF_REMADE) return false;
    if (d->g->opt.recompute == RECOMPUTE_NONE) return true;
    if (d->g->opt.recompute == RECOMPUTE_FULL) return false;
    return !(flags & OPF_CHEAP) || has_summand(&d->g->op[x->producer]);
}

static val resolve(derive *d, val v);

static void recompute_op(derive *d, int32_t index) {
    graph *g = d->g;
    op_rec r = g->op[index];
    int taken = in_place_input(g, &r);
    val original[OP_MAX_IN];
    for (int i = 0; i < OP_MAX_IN; i++) {
        original[i] = r.in[i];
        if (r.in[i] != VAL_NONE) r.in[i] = resolve(d, r.in[i]);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (r.out[o] == VAL_NONE) continue;
        tensor t = g->value[r.out[o]].t;
        val fresh = o == 0 && taken >= 0
                        ? graph_new_value(g, &t, buf_of(d, r.in[taken]), g->value[r.out[o]].name)
                        : graph_alloc_like(g, &t, g->value[r.out[o]].name);
        d->clone[r.out[o]] = fresh;
        r.out[o] = fresh;
    }
    if (taken >= 0) d->clone[original[taken]] = VAL_NONE; /* its copy has been overwritten too */
    if (r.ws_buf >= 0) r.ws_buf = graph_new_buffer(g, SPACE_FRAME, g->buf[r.ws_buf].bytes);
    r.phase = PHASE_B;
    r.recomputed = true;
    graph_append(g, &r);
}

static val resolve(derive *d, val v) {
    const value *x = &d->g->value[v];
    if (x->same_as != VAL_NONE) return resolve(d, x->same_as);
    if (x->parent != VAL_NONE) {
        val parent = x->parent;
        int64_t col0 = x->offset - d->g->value[parent].offset, cols = x->t.cols;
        val p = resolve(d, parent);
        return p == parent ? v : graph_view(d->g, p, col0, cols);
    }
    if (is_kept(d, v)) return v;
    if (d->clone[v] == VAL_NONE) recompute_op(d, x->producer);
    return d->clone[v];
}

/* ---- gradients ---- */

/* Does a value other than x hold its gradient in `buf`, and will it be read: by its producer, which
 * is still to be visited, or after the program? Or is it read by a weight gradient that comes later? */
static bool awaited_by_other(const derive *d, int32_t buf, val x, int32_t op) {
    if (is_read_later(d, buf)) return true;
    for (int32_t i = 0; i < d->n_passed_on; i++) {
        val u = d->passed_on[i];
        const value *y = &d->g->value[u];
        if (u == x || d->grad[u] == VAL_NONE || buf_of(d, d->grad[u]) != buf) continue;
        if (y->grad_name || (y->producer < op && y->producer >= 0)) return true;
    }
    return false;
}

static void set_grad(derive *d, val x, val dx) {
    d->grad[x] = dx;
    val parent = d->g->value[x].parent;
    if (parent != VAL_NONE) d->covered[parent] += d->g->value[x].t.cols;
}

static void pass_on(derive *d, val x, val dy) {
    set_grad(d, x, dy);
    d->passed_on =
        arena_grow(d->g->a, d->passed_on, d->n_passed_on, &d->cap_passed_on, sizeof *d->passed_on);
    d->passed_on[d->n_passed_on++] = x;
}

static op_rec backward_rec(const op_rec *f, op_entry entry, op_phase phase) {
    op_rec r = graph_empty_op(f->kind, entry, phase, f->block);
    r.attr = f->attr;
    memcpy(r.shape_in, f->in, sizeof r.shape_in);
    memcpy(r.shape_out, f->out, sizeof r.shape_out);
    return r;
}

static val emit_elementwise(derive *d, op_kind kind, val a, val b, int32_t block) {
    graph *g = d->g;
    op_rec r = graph_empty_op(kind, ENTRY_FWD, PHASE_B, block);
    r.in[0] = a;
    r.in[1] = b;
    tensor t = g->value[a].t;
    r.out[0] = graph_alloc_like(g, &t, g->value[a].name);
    graph_append(g, &r);
    return r.out[0];
}

/* Where op number `op` puts the gradient of activation x; *acc: it must add. */
static val grad_target(derive *d, val x, val dout, int32_t op, bool *acc) {
    graph *g = d->g;
    *acc = false;
    if (d->grad[x] == VAL_NONE) {
        val parent = g->value[x].parent, dx;
        if (parent != VAL_NONE) {
            if (d->grad[parent] == VAL_NONE) {
                CHECK(d->covered[parent] == 0, "gradient of a view whose parent is gone");
                d->grad[parent] = graph_alloc_like(g, &g->value[parent].t, g->value[parent].name);
            }
            int64_t col0 = g->value[x].offset - g->value[parent].offset;
            dx = graph_view(g, d->grad[parent], col0, g->value[x].t.cols);
        } else {
            tensor t = g->value[x].t;
            dx = graph_alloc_like(g, &t, g->value[x].name);
        }
        set_grad(d, x, dx);
        return dx;
    }
    *acc = true;
    int32_t buf = buf_of(d, d->grad[x]);
    if (awaited_by_other(d, buf, x, op) || (dout != VAL_NONE && buf_of(d, dout) == buf)) {
        CHECK(g->value[x].parent == VAL_NONE, "shared gradient of a view");
        d->grad[x] = emit_elementwise(d, OP_COPY, d->grad[x], VAL_NONE, g->value[x].block);
    }
    return d->grad[x];
}

/* The gradient of a summand x of f's output. */
static void backward_summand(derive *d, const op_rec *f, val x, val dy) {
    if (x == VAL_NONE || !d->g->value[x].needs_grad) return;
    if (d->grad[x] == VAL_NONE && d->g->value[x].parent == VAL_NONE)
        pass_on(d, x, dy);
    else if (d->grad[x] == VAL_NONE) {
        bool acc;
        val dx = grad_target(d, x, dy, 0, &acc);
        op_rec r = graph_empty_op(OP_COPY, ENTRY_FWD, PHASE_B, f->block);
        r.in[0] = dy;
        r.out[0] = dx;
        graph_append(d->g, &r);
    } else
        d->grad[x] = emit_elementwise(d, OP_ADD, d->grad[x], dy, f->block);
}

/* The backward of a collective is another one, into a buffer of its own or, for sums, where dy is
 * when nobody else wants that. */
static void backward_collective(derive *d, const op_rec *f, val dy, int32_t op) {
    graph *g = d->g;
    val x = f->in[0];
    if (!g->value[x].needs_grad) return;
    bool same_memory = op_classes[f->kind].flags & OPF_SAME_MEMORY;
    if (same_memory && awaited_by_other(d, buf_of(d, dy), f->out[0], op))
        dy = emit_elementwise(d, OP_COPY, dy, VAL_NONE, f->block);
    op_rec r = backward_rec(f, ENTRY_BWD_INPUT, PHASE_B);
    r.dout[0] = dy;
    r.din[0] = same_memory ? graph_new_value(g, &g->value[dy].t, buf_of(d, dy), g->value[x].name)
                           : graph_alloc_like(g, &g->value[x].t, g->value[x].name);
    graph_set_cost(g, &r, &f->bwd_input);
    graph_append(g, &r);
    CHECK(g->value[x].parent == VAL_NONE, "collective of a view");
    if (d->grad[x] == VAL_NONE)
        set_grad(d, x, r.din[0]);
    else
        d->grad[x] = emit_elementwise(d, OP_ADD, d->grad[x], r.din[0], f->block);
}

/* Sets din for weight inputs; returns whether any is wanted. */
static bool weight_targets(derive *d, const op_rec *f, op_rec *r) {
    const op_class *k = &op_classes[f->kind];
    bool any = false;
    for (int i = 0; i < OP_MAX_IN; i++) {
        val w = f->in[i];
        if (!(k->weights >> i & 1) || w == VAL_NONE || !d->g->value[w].needs_grad) continue;
        val dw = d->g->value[w].param_grad;
        if (dw == VAL_NONE) {
            graph_fail(d->g, ST_FAILED,
                       "%s: the gradient of input %d, which is no parameter, "
                       "is not available",
                       k->name, i);
            return false;
        }
        r->din[i] = dw;
        any = true;
    }
    return any;
}

/* Called in the order in which ops are emitted: the first to write a parameter's gradient begins it,
 * the others add. */
static void begin_or_add(derive *d, op_rec *r) {
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (!(op_classes[r->kind].weights >> i & 1) || r->din[i] == VAL_NONE) continue;
        val w = r->shape_in[i];
        bool begun = d->param_used[w] || d->g->value[r->din[i]].written;
        graph_begin_or_add(d->g, r, i, begun);
        d->param_used[w] = true;
    }
}

static bool input_wanted(const derive *d, const op_rec *f) {
    for (int i = 0; i < OP_MAX_IN; i++)
        if ((op_classes[f->kind].diff >> i & 1) && f->in[i] != VAL_NONE &&
            d->g->value[f->in[i]].needs_grad)
            return true;
    return false;
}

/* What this entry of the backward reads. Where input and weight gradients are separate entries the
 * op is bilinear: the gradient of either factor reads only the other one. */
static void read_operands(derive *d, const op_rec *f, op_rec *r) {
    const op_class *k = &op_classes[f->kind];
    unsigned reads = k->bwd_in;
    if (!(k->flags & OPF_FUSED_BWD) && k->weights)
        reads &= ~(unsigned)(r->entry == ENTRY_BWD_WEIGHT ? k->weights : k->diff);
    for (int i = 0; i < OP_MAX_IN; i++)
        if ((reads >> i & 1) && f->in[i] != VAL_NONE) r->in[i] = resolve(d, f->in[i]);
    for (int o = 0; o < OP_MAX_OUT; o++)
        if ((k->bwd_out >> o & 1) && f->out[o] != VAL_NONE) r->out[o] = resolve(d, f->out[o]);
}

static void input_targets(derive *d, const op_rec *f, op_rec *r, val dy, int32_t op) {
    const op_class *k = &op_classes[f->kind];
    graph *g = d->g;
    for (int i = 0; i < OP_MAX_IN; i++) {
        val x = f->in[i];
        if (!(k->diff >> i & 1) || x == VAL_NONE || !g->value[x].needs_grad) continue;
        CHECK(g->value[x].producer >= 0 || g->value[x].grad_name,
              "%s: gradient of an external value", k->name);
        bool reuse = i == 0 && (k->flags & OPF_INPLACE_0) && g->value[x].overwritten &&
                     d->grad[x] == VAL_NONE && g->value[dy].parent == VAL_NONE &&
                     !awaited_by_other(d, buf_of(d, dy), f->out[0], op);
        bool acc = false;
        if (reuse) {
            set_grad(d, x, graph_new_value(g, &g->value[dy].t, buf_of(d, dy), g->value[x].name));
            r->din[i] = d->grad[x];
        } else
            r->din[i] = grad_target(d, x, dy, op, &acc);
        if (acc) r->acc |= (uint8_t)(1u << i);
    }
}

/* Where r multiplies by gelu's slope what the product just before has given to it alone, one op does both. */
static bool joins_product(derive *d, const op_rec *r) {
    graph *g = d->g;
    op_rec *last = &g->op[g->n_ops - 1];
    bool gelu = r->kind == OP_ACT && r->attr.act.kind == ACT_GELU_TANH && !r->acc;
    bool fits = last->kind == OP_LINEAR && last->entry == ENTRY_BWD_INPUT && !last->acc &&
                last->din[0] == r->dout[0] && g->value[last->dout[0]].t.dt == g->opt.dt;
    if (!gelu || !fits || !op_joins(g->opt.dev, g->opt.dt)) return false;
    op_rec both = graph_empty_op(OP_LINEAR_DGELU, ENTRY_FWD, PHASE_B, last->block);
    both.in[0] = last->dout[0], both.in[1] = last->in[1], both.in[2] = r->in[0];
    both.out[0] = r->din[0];
    op_infer io = {.kind = both.kind, .attr = &both.attr, .dev = g->opt.dev};
    for (int i = 0; i < 3; i++) io.in[i] = g->value[both.in[i]].t;
    err e;
    CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
    graph_set_cost(g, &both, &io.fwd);
    *last = both;
    return true;
}

static void append_making_grads(derive *d, op_rec *r) {
    begin_or_add(d, r);
    graph_append(d->g, r);
    graph_fix_grads(d->g, d->g->n_ops - 1);
}

static void append_weight_grads(derive *d, op_rec *r) {
    if (!d->g->opt.split_backward) {
        append_making_grads(d, r);
        return;
    }
    d->later = arena_grow(d->g->a, d->later, d->n_later, &d->cap_later, sizeof *d->later);
    d->later[d->n_later++] = *r;
}

static void backward_op(derive *d, int32_t index) {
    graph *g = d->g;
    op_rec f = g->op[index];
    const op_class *k = &op_classes[f.kind];
    if (f.entry != ENTRY_FWD) return; /* gradients that the forward makes */
    if (k->flags & OPF_GRAD_IN_FWD) {
        if (f.out[2] != VAL_NONE && g->value[f.in[0]].needs_grad) {
            CHECK(d->grad[f.in[0]] == VAL_NONE, "the head must be the last use of its input");
            set_grad(d, f.in[0], f.out[2]);
        }
        return;
    }
    val dy = f.out[0] == VAL_NONE ? VAL_NONE : d->grad[f.out[0]];
    if (dy == VAL_NONE) return;
    CHECK(d->covered[f.out[0]] == 0 || d->covered[f.out[0]] == g->value[f.out[0]].t.cols,
          "%s: only part of the output has a gradient", k->name);
    if ((k->flags & OPF_COMMUNICATES) && k->diff == 1 && !k->bwd_in) {
        backward_collective(d, &f, dy, index);
        return;
    }
    for (int i = 0; i < OP_MAX_IN; i++)
        if (k->passes >> i & 1) backward_summand(d, &f, f.in[i], dy);
    bool fused = (k->flags & OPF_FUSED_BWD) != 0;
    op_rec w =
        backward_rec(&f, fused ? ENTRY_BWD_INPUT : ENTRY_BWD_WEIGHT, fused ? PHASE_B : PHASE_W);
    w.dout[0] = dy;
    bool want_w = weight_targets(d, &f, &w), want_x = input_wanted(d, &f);
    if (want_w && !fused) {
        read_operands(d, &f, &w);
        graph_set_cost(g, &w, &f.bwd_weight);
        append_weight_grads(d, &w);
    }
    if (!want_x && !(fused && want_w)) return;
    op_rec r = fused ? w : backward_rec(&f, ENTRY_BWD_INPUT, PHASE_B);
    r.dout[0] = dy;
    read_operands(d, &f, &r);
    input_targets(d, &f, &r, dy, index);
    graph_set_cost(g, &r, &f.bwd_input);
    r.flops_again = f.flops_bwd_again;
    if (!joins_product(d, &r)) append_making_grads(d, &r);
}

/* The gradient of an auxiliary loss is the same number everywhere, beside what is given. */
static void begin_aux(derive *d, val v) {
    graph *g = d->g;
    op_rec r = graph_empty_op(OP_FILL, ENTRY_FWD, PHASE_B, -1);
    r.attr.fill.c = g->value[v].aux;
    r.attr.fill.scaled = g->value[v].aux_scaled;
    r.shape_in[0] = v;
    tensor t = g->value[v].t;
    r.out[0] = graph_alloc_like(g, &t, g->value[v].name);
    graph_append(g, &r);
    val given = d->grad[v];
    d->grad[v] = given == VAL_NONE ? r.out[0] : emit_elementwise(d, OP_ADD, given, r.out[0], -1);
}

/* The gradient of input v as an output: where it lies, if that is a buffer of its own. */
static void keep_grad(derive *d, val v) {
    graph *g = d->g;
    val dv = d->grad[v];
    if (dv == VAL_NONE) {
        graph_fail(g, ST_FAILED, "no gradient comes to the input %s", g->value[v].name);
        return;
    }
    if (g->value[dv].parent != VAL_NONE || g->buf[buf_of(d, dv)].where != SPACE_FRAME)
        dv = emit_elementwise(d, OP_COPY, dv, VAL_NONE, -1);
    graph_output(g, dv, g->value[v].grad_name);
}

void graph_derive_backward(graph *g) {
    int32_t n_ops = g->n_ops;
    graph_head_parts_backward(g);
    int32_t n = g->n_values;
    derive d = {.g = g,
                .grad = ARENA_ARRAY(g->a, val, n),
                .covered = ARENA_ARRAY(g->a, int64_t, n),
                .clone = ARENA_ARRAY(g->a, val, n),
                .param_used = ARENA_ARRAY(g->a, bool, n)};
    for (int32_t v = 0; v < n; v++) {
        d.grad[v] = g->value[v].given_grad;
        d.clone[v] = VAL_NONE;
    }
    for (int32_t v = 0; v < n; v++)
        if (g->value[v].aux != 0.0f) begin_aux(&d, v);
    for (int32_t i = n_ops - 1; i >= 0 && !g->failed; i--) backward_op(&d, i);
    graph_check_bytes(g);
    for (int32_t v = 0; v < n && !g->failed; v++)
        if (g->value[v].grad_name) keep_grad(&d, v);
    g->ops_before_weights = g->n_ops;
    for (int32_t i = 0; i < d.n_later && !g->failed; i++) append_making_grads(&d, &d.later[i]);
}
