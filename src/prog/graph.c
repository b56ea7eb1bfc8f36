/* Values, buffers and the emission of forward ops. Invariants are in graph.h. */
#include "prog/graph_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

graph *graph_new(arena *a, const graph_options *opt) {
    graph *g = ARENA_NEW(a, graph);
    g->a = a;
    g->opt = *opt;
    if (opt->mesh) g->opt.mesh = arena_memdup(a, opt->mesh, sizeof *opt->mesh);
    g->block = -1;
    g->stream = opt->random_ops_before;
    return g;
}

int graph_tp(const graph *g) {
    return g->opt.mesh ? g->opt.mesh->size[MESH_TP] : 1;
}
int graph_tp_rank(const graph *g) {
    return g->opt.mesh ? g->opt.mesh->rank[MESH_TP] : 0;
}

int graph_ep(const graph *g) {
    return g->opt.mesh ? g->opt.mesh->size[MESH_EP] : 1;
}

int graph_cp(const graph *g) {
    return g->opt.mesh && g->opt.context_parallel ? g->opt.mesh->size[MESH_CP] : 1;
}
int graph_cp_rank(const graph *g) {
    return g->opt.mesh && g->opt.context_parallel ? g->opt.mesh->rank[MESH_CP] : 0;
}

const graph_options *graph_get_options(const graph *g) {
    return &g->opt;
}

bool graph_failed(const graph *g) {
    return g->failed;
}

void graph_fail(graph *g, status code, const char *fmt, ...) {
    if (g->failed) return;
    g->failed = true;
    char text[sizeof g->first_error.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&g->first_error, code, "%s", text);
}

/* A program of more fits no machine, and sums of its sizes would leave 64 bits. */
static const double MOST_BYTES = (double)(1LL << 60);

static int64_t span_bytes(graph *g, dtype dt, int64_t rows, int64_t cols) {
    double most = (double)rows * (double)cols * sizeof(double);
    if (most <= MOST_BYTES) return dtype_span_bytes(dt, rows * cols);
    graph_fail(g, ST_MEMORY, "an array of %lld x %lld elements does not fit in any memory",
               (long long)rows, (long long)cols);
    return 0;
}

void graph_check_bytes(graph *g) {
    if (g->all_bytes <= MOST_BYTES) return;
    graph_fail(g, ST_MEMORY,
               "a program with more than %.0f GiB of arrays does not fit in any memory",
               MOST_BYTES / (1 << 30));
}

int32_t graph_new_buffer(graph *g, space where, int64_t bytes) {
    g->all_bytes += (double)bytes;
    g->buf = arena_grow(g->a, g->buf, g->n_bufs, &g->cap_bufs, sizeof *g->buf);
    buffer *b = &g->buf[g->n_bufs];
    *b = (buffer){.where = where, .bytes = bytes, .first = INT32_MAX, .last = -1};
    if (where != SPACE_CONST) return g->n_bufs++;
    b->offset = g->const_bytes;
    g->const_bytes += pack_rounded(bytes);
    return g->n_bufs++;
}

val graph_new_value(graph *g, const tensor *shape, int32_t buf, const char *name) {
    g->value = arena_grow(g->a, g->value, g->n_values, &g->cap_values, sizeof *g->value);
    value *v = &g->value[g->n_values];
    *v = (value){.t = *shape,
                 .name = name ? name : "",
                 .buf = buf,
                 .producer = -1,
                 .block = -1,
                 .parent = VAL_NONE,
                 .views = VAL_NONE,
                 .older_view = VAL_NONE,
                 .same_as = VAL_NONE,
                 .given_grad = VAL_NONE,
                 .param_grad = VAL_NONE};
    v->t.data = NULL;
    return g->n_values++;
}

val graph_alloc_like(graph *g, const tensor *shape, const char *name) {
    tensor t = *shape;
    t.ld = t.cols;
    int32_t buf = graph_new_buffer(g, SPACE_FRAME, span_bytes(g, t.dt, t.rows, t.cols));
    return graph_new_value(g, &t, buf, name);
}

op_rec *graph_append(graph *g, const op_rec *r) {
    g->op = arena_grow(g->a, g->op, g->n_ops, &g->cap_ops, sizeof *g->op);
    g->op[g->n_ops] = *r;
    return &g->op[g->n_ops++];
}

/* ---- external values ---- */

static val external(graph *g, space where, const char *name, dtype dt, int64_t rows, int64_t cols) {
    if (g->failed) return VAL_NONE;
    tensor t = {.dt = dt, .rows = rows, .cols = cols, .ld = cols};
    int32_t buf = graph_new_buffer(g, where, span_bytes(g, dt, rows, cols));
    graph_check_bytes(g);
    return graph_new_value(g, &t, buf, arena_strdup(g->a, name));
}

val graph_input(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols) {
    val v = external(g, SPACE_PINNED, name, dt, rows, cols);
    if (v != VAL_NONE) g->value[v].port = g->value[v].name;
    return v;
}

val graph_const(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols, const_fill fill,
                const void *ctx, size_t ctx_bytes) {
    val v = external(g, SPACE_CONST, name, dt, rows, cols);
    if (v == VAL_NONE) return v;
    g->constant =
        arena_grow(g->a, g->constant, g->n_constants, &g->cap_constants, sizeof *g->constant);
    g->constant[g->n_constants++] =
        (const_value){v, fill, arena_memdup(g->a, ctx, ctx_bytes), ctx_bytes};
    return v;
}

val graph_state(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols,
                int64_t offset_bytes) {
    val v = external(g, SPACE_STATE, name, dt, rows, cols);
    if (v != VAL_NONE) g->buf[g->value[v].buf].offset = offset_bytes;
    return v;
}

val graph_param(graph *g, const graph_param_ref *ref) {
    val v = names_find(&g->params, ref->name);
    if (v >= 0) return v;
    v = external(g, ref->where, ref->name, ref->dt, ref->rows, ref->cols);
    if (v == VAL_NONE) return v;
    names_add(&g->params, g->a, g->value[v].name, v);
    g->buf[g->value[v].buf].offset = ref->offset_bytes;
    g->buf[g->value[v].buf].unit = ref->unit;
    g->value[v].experts_at = ref->experts_at;
    if (!ref->trainable || !g->opt.train) return v;
    dtype grad_dt = g->opt.fixed_grads ? DT_I64 : g->opt.dt == DT_F64 ? DT_F64 : DT_F32;
    val dv = external(g, SPACE_GRAD, ref->name, grad_dt, ref->rows, ref->cols);
    if (dv == VAL_NONE) return v;
    buffer *grad = &g->buf[g->value[dv].buf];
    grad->offset = ref->grad_offset_bytes;
    grad->unit = ref->unit;
    if (ref->grad_room_bytes > grad->bytes) grad->bytes = ref->grad_room_bytes;
    g->value[dv].leaves = ref->grad_leaves;
    g->value[v].needs_grad = true;
    g->value[v].param_grad = dv;
    return v;
}

static val view_of(graph *g, val v, int64_t offset, const tensor *t) {
    for (val u = g->value[v].views; u != VAL_NONE; u = g->value[u].older_view) {
        const value *x = &g->value[u];
        if (x->offset == offset && x->t.cols == t->cols && x->t.rows == t->rows) return u;
    }
    val u = graph_new_value(g, t, g->value[v].buf, g->value[v].name);
    value *p = &g->value[v];
    value *w = &g->value[u];
    w->offset = offset;
    w->producer = p->producer;
    w->out_index = p->out_index;
    w->block = p->block;
    w->needs_grad = p->needs_grad;
    w->parent = v;
    w->older_view = p->views;
    p->views = u;
    return u;
}

static val view(graph *g, val v, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
    if (g->failed || v == VAL_NONE) return VAL_NONE;
    tensor t = g->value[v].t;
    CHECK(row0 >= 0 && rows > 0 && row0 + rows <= t.rows && col0 >= 0 && cols > 0 &&
              col0 + cols <= t.cols,
          "view of rows %ld..%ld and columns %ld..%ld of %ld x %ld", (long)row0,
          (long)(row0 + rows), (long)col0, (long)(col0 + cols), (long)t.rows, (long)t.cols);
    t.rows = rows;
    t.cols = cols;
    return view_of(g, v, g->value[v].offset + row0 * t.ld + col0, &t);
}

val graph_view(graph *g, val v, int64_t col0, int64_t cols) {
    return view(g, v, 0, graph_rows(g, v), col0, cols);
}

val graph_view_rows(graph *g, val v, int64_t row0, int64_t rows) {
    return view(g, v, row0, rows, 0, graph_cols(g, v));
}

void graph_output(graph *g, val v, const char *name) {
    if (g->failed || v == VAL_NONE) return;
    buffer *b = &g->buf[g->value[v].buf];
    CHECK(b->where == SPACE_FRAME && g->value[v].offset == 0, "output %s is not a whole value",
          name);
    b->where = SPACE_PINNED;
    g->value[v].port = arena_strdup(g->a, name);
}

void graph_root(graph *g, val v, const char *name) {
    if (g->failed || v == VAL_NONE || !g->opt.train || !g->value[v].needs_grad) return;
    CHECK(g->value[v].given_grad == VAL_NONE && g->value[v].parent == VAL_NONE,
          "%s is no root: its gradient is given, or it is a view", name);
    tensor t = g->value[v].t;
    val grad = graph_input(g, name, t.dt, t.rows, t.cols);
    g->value[v].given_grad = grad;
}

void graph_hand_over(graph *g, val v, const char *name, const char *grad_name) {
    graph_output(g, v, name);
    graph_root(g, v, grad_name);
    if (v != VAL_NONE) g->value[v].handed_over = true;
}

void graph_aux_loss(graph *g, val v, float coef, bool scaled) {
    if (g->failed || v == VAL_NONE || !g->opt.train || !g->value[v].needs_grad) return;
    CHECK(g->value[v].parent == VAL_NONE, "%s is a view, and no loss", g->value[v].name);
    g->value[v].aux = coef;
    g->value[v].aux_scaled = scaled;
}

void graph_keep_grad(graph *g, val v, const char *name) {
    if (g->failed || v == VAL_NONE || !g->opt.train) return;
    value *x = &g->value[v];
    CHECK(g->buf[x->buf].where == SPACE_PINNED && x->producer < 0, "%s is no input", x->name);
    x->needs_grad = true;
    x->grad_name = arena_strdup(g->a, name);
}

void graph_grad_has_begun(graph *g, val param) {
    if (g->failed || param == VAL_NONE || g->value[param].param_grad == VAL_NONE) return;
    g->value[g->value[param].param_grad].written = true;
}

void graph_name(graph *g, val v, const char *fmt, ...) {
    if (g->failed || v == VAL_NONE) return;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    g->value[v].name = arena_strdup(g->a, text);
}

int64_t graph_cols(const graph *g, val v) {
    return v == VAL_NONE ? 0 : g->value[v].t.cols;
}
int64_t graph_rows(const graph *g, val v) {
    return v == VAL_NONE ? 0 : g->value[v].t.rows;
}

void graph_block_begin(graph *g, int layer) {
    CHECK(g->block == -1, "block %d begins inside block %d", layer, (int)g->block);
    g->block = layer;
}

void graph_block_end(graph *g) {
    g->block = -1;
}

/* ---- emission ---- */

static void note_read(graph *g, val v) {
    CHECK(!g->value[v].overwritten, "value %d (%s) is read after its buffer was reused", (int)v,
          g->value[v].name);
    while (v != VAL_NONE) {
        value *x = &g->value[v];
        if (x->producer >= 0 && x->block != g->block) x->escapes = true;
        v = x->parent != VAL_NONE ? x->parent : x->same_as;
    }
}

/* The buffer of in[i] becomes that of the output. */
static val take_buffer(graph *g, val from, const tensor *t) {
    value *old = &g->value[from];
    CHECK(old->parent == VAL_NONE && old->offset == 0, "an op in place needs a whole buffer");
    old->overwritten = true;
    for (val u = from + 1; u < g->n_values; u++)
        if (g->value[u].parent == from || g->value[u].same_as == from)
            g->value[u].overwritten = true;
    return graph_new_value(g, t, old->buf, old->name);
}

op_rec graph_empty_op(op_kind kind, op_entry entry, op_phase phase, int32_t block) {
    op_rec r = {.kind = kind, .entry = entry, .phase = phase, .ws_buf = -1, .block = block};
    for (int i = 0; i < OP_MAX_IN; i++) r.in[i] = r.din[i] = r.shape_in[i] = VAL_NONE;
    for (int o = 0; o < OP_MAX_OUT; o++) r.out[o] = r.dout[o] = r.shape_out[o] = VAL_NONE;
    return r;
}

void graph_set_cost(graph *g, op_rec *r, const op_cost *cost) {
    if (cost->ws_bytes > 0) r->ws_buf = graph_new_buffer(g, SPACE_FRAME, cost->ws_bytes);
    r->flops = cost->flops;
    r->bytes = cost->bytes;
}

/* The value of output o: in the buffer of an input, or of its own. */
static val output_value(graph *g, const op_infer *io, int o, const val *in, int in_place) {
    if (o == 0 && (op_classes[io->kind].flags & OPF_SAME_MEMORY)) {
        val same = graph_new_value(g, &io->out[0], g->value[in[0]].buf, g->value[in[0]].name);
        g->value[same].same_as = in[0];
        g->value[same].offset = g->value[in[0]].offset;
        return same;
    }
    if (o == 0 && in_place >= 0) return take_buffer(g, in[in_place], &io->out[0]);
    return graph_alloc_like(g, &io->out[o], NULL);
}

op_rec *graph_emit(graph *g, op_kind kind, const op_attr *attr, const val *in, int n_in,
                   int in_place) {
    if (g->failed) return NULL;
    const op_class *k = &op_classes[kind];
    op_infer io = {.kind = kind, .attr = attr, .dev = g->opt.dev};
    op_rec r = graph_empty_op(kind, ENTRY_FWD, PHASE_F, g->block);
    r.attr = *attr;
    bool needs_grad = false;
    for (int i = 0; i < n_in; i++) {
        r.in[i] = in[i];
        if (r.in[i] == VAL_NONE) continue;
        note_read(g, r.in[i]);
        io.in[i] = g->value[r.in[i]].t;
        bool gets = (k->diff | k->weights) >> i & 1;
        if (!(gets || (k->passes >> i & 1)) || !g->value[r.in[i]].needs_grad) continue;
        needs_grad = true;
        if (gets) io.want_grad |= (uint8_t)(1u << i);
    }
    err e = {0};
    status st = op_infer_call(&io, &e);
    if (st != ST_OK) {
        graph_fail(g, st, "%s", e.message);
        return NULL;
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (io.out[o].rows == 0) continue;
        r.out[o] = output_value(g, &io, o, in, in_place);
        value *v = &g->value[r.out[o]];
        v->producer = g->n_ops;
        v->out_index = o;
        v->block = g->block;
        v->needs_grad = o == 0 && needs_grad;
    }
    graph_set_cost(g, &r, &io.fwd);
    r.bwd_input = io.bwd_input;
    r.bwd_weight = io.bwd_weight;
    r.flops_bwd_again = io.flops_bwd_again;
    return graph_append(g, &r);
}

void graph_add_input(graph *g, op_rec *r, int i, val v) {
    note_read(g, v);
    r->in[i] = v;
    const tensor *t = &g->value[v].t;
    r->flops += (double)t->rows * (double)t->cols;
    r->bytes += (double)dtype_span_bytes(t->dt, t->rows * t->cols);
    if (g->value[v].needs_grad) g->value[r->out[0]].needs_grad = true;
}
