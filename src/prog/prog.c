/* Finishing a graph into a program, binding it to memory, replaying it. */
#include "prog/graph_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* ---- lifetimes and layout ---- */

static void touch(graph *g, val v, int32_t at) {
    if (v == VAL_NONE) return;
    buffer *b = &g->buf[g->value[v].buf];
    if (at < b->first) b->first = at;
    if (at > b->last) b->last = at;
}

static void find_lifetimes(graph *g) {
    for (int32_t i = 0; i < g->n_ops; i++) {
        const op_rec *r = &g->op[i];
        for (int k = 0; k < OP_MAX_IN; k++) {
            touch(g, r->in[k], i);
            touch(g, r->din[k], i);
        }
        for (int k = 0; k < OP_MAX_OUT; k++) {
            touch(g, r->out[k], i);
            touch(g, r->dout[k], i);
        }
        if (r->ws_buf >= 0) g->buf[r->ws_buf].first = g->buf[r->ws_buf].last = i;
    }
}

/* A gradient that comes in the place of the output that it is of: where no op reads that any more. */
static bool comes_in_place(const graph *g, const value *x) {
    if (!x->handed_over || x->given_grad == VAL_NONE) return false;
    return g->buf[x->buf].last < g->buf[g->value[x->given_grad].buf].first;
}

/* Inputs and outputs, one after the other. */
static void lay_out_pinned(graph *g) {
    bool *placed = xcalloc((size_t)g->n_bufs + 1, sizeof *placed);
    for (val v = 0; v < g->n_values; v++)
        if (comes_in_place(g, &g->value[v])) placed[g->value[g->value[v].given_grad].buf] = true;
    g->pinned_bytes = 0;
    for (int32_t b = 0; b < g->n_bufs; b++) {
        if (g->buf[b].where != SPACE_PINNED || placed[b]) continue;
        g->buf[b].offset = g->pinned_bytes;
        g->pinned_bytes += pack_rounded(g->buf[b].bytes);
    }
    for (val v = 0; v < g->n_values; v++) {
        const value *x = &g->value[v];
        if (comes_in_place(g, x))
            g->buf[g->value[x->given_grad].buf].offset = g->buf[x->buf].offset;
    }
    free(placed);
}

/* A gradient is read after the program, by the optimizer. */
static pack_item item_of(const graph *g, const buffer *b) {
    pack_item it = {.bytes = b->bytes, .first = b->first, .last = b->last};
    if (b->where != SPACE_GRAD) return it;
    it.fixed = true, it.offset = b->offset, it.last = g->n_ops;
    return it;
}

static bool is_in_frame(const graph *g, const buffer *b) {
    bool grad = b->where == SPACE_GRAD && g->opt.grads_in_frame;
    CHECK(!grad || b->last >= 0, "a gradient is never written");
    return (b->where == SPACE_FRAME || b->where == SPACE_SCRATCH || grad) && b->last >= 0;
}

/* Between two passes of a micro-batch others run. */
static int pass_of(const graph *g, int32_t op) {
    if (g->op[op].phase == PHASE_F) return 0;
    return op < g->ops_before_weights ? 1 : 2;
}

/* Whether every frame must have room of its own for it. */
static bool is_kept(const graph *g, const buffer *b) {
    return g->opt.shares_scratch && pass_of(g, b->first) != pass_of(g, b->last);
}

/* Appends the buffers that are kept, or the others. */
static int list_items(const graph *g, bool kept, pack_item *items, int32_t *index, int n) {
    for (int32_t b = 0; b < g->n_bufs; b++) {
        if (!is_in_frame(g, &g->buf[b]) || is_kept(g, &g->buf[b]) != kept) continue;
        items[n] = item_of(g, &g->buf[b]);
        index[n++] = b;
    }
    return n;
}

/* With shares_scratch what is kept is packed first, as narrow as it gets, since each frame has it; the rest then lies where that is
 * free, or behind it, in scratch. */
static void lay_out_frame(graph *g, prog_stats *s) {
    pack_item *items = xmalloc(sizeof *items * (size_t)(g->n_bufs ? g->n_bufs : 1));
    int32_t *index = xmalloc(sizeof *index * (size_t)(g->n_bufs ? g->n_bufs : 1));
    bool shares = g->opt.shares_scratch;
    CHECK(!shares || !g->opt.grads_in_frame, "several frames with the same gradients");
    int kept = list_items(g, true, items, index, 0);
    int n = list_items(g, false, items, index, kept);
    int64_t border = 0;
    int64_t total = shares ? pack_around_kept(items, kept, n, &border) : pack_items(items, n);
    s->frame_bytes = shares ? border : total;
    s->scratch_bytes = total - s->frame_bytes;
    s->live_peak_bytes = pack_live_peak(items, n);
    s->buffers = n;
    for (int i = 0; i < n; i++) {
        buffer *b = &g->buf[index[i]];
        bool beyond = shares && items[i].offset >= border;
        b->offset = items[i].offset - (beyond ? border : 0);
        if (beyond) b->where = SPACE_SCRATCH;
    }
    free(items);
    free(index);
}

void prog_get_live_bytes(const prog *p, int64_t *bytes) {
    const graph *g = p->g;
    memset(bytes, 0, sizeof *bytes * (size_t)g->n_ops);
    for (int32_t b = 0; b < g->n_bufs; b++) {
        if (!is_in_frame(g, &g->buf[b])) continue;
        pack_item it = item_of(g, &g->buf[b]);
        for (int32_t i = it.first; i <= it.last && i < g->n_ops; i++)
            bytes[i] += pack_rounded(it.bytes);
    }
}

static bool sums_gradients(const op_rec *r) {
    return op_classes[r->kind].flags & OPF_SUMS_GRAD;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every addition is noted by the name of the parameter: equal ones then lie beside each other. */
int prog_count_contributions(const prog *const *p, int n) {
    int ops = 0, sums = 0, most = 0;
    for (int k = 0; k < n; k++) ops += p[k] ? p[k]->g->n_ops : 0;
    const char **name = xcalloc((size_t)ops + 1, sizeof *name);
    for (int k = 0; k < n; k++)
        for (int32_t i = 0; p[k] && i < p[k]->g->n_ops; i++) {
            const op_rec *r = &p[k]->g->op[i];
            if (sums_gradients(r)) name[sums++] = p[k]->g->value[r->out[0]].name;
        }
    qsort(name, (size_t)sums, sizeof *name, by_name);
    for (int i = 0, first = 0; i < sums; i++) {
        if (strcmp(name[i], name[first]) != 0) first = i;
        if (i - first + 1 > most) most = i - first + 1;
    }
    free(name);
    return most;
}

/* The shape of v; where a backward does not read v, that of `shape`. */
static tensor shape_of(const graph *g, val v, val shape) {
    val of = v != VAL_NONE ? v : shape;
    return of != VAL_NONE ? g->value[of].t : (tensor){0};
}

/* What the rule says, or less: to the sum of a table's gradient that is there already, only the rows that were looked up are
 * added, while a new one is written whole. */
double graph_op_bytes(const graph *g, const op_rec *r) {
    uint8_t table = op_classes[r->kind].looked_up & r->acc;
    if (r->entry != ENTRY_BWD_WEIGHT || !table) return r->bytes;
    tensor y = shape_of(g, r->out[0], r->shape_out[0]);
    return (double)y.rows * (double)y.cols * (double)(dtype_bytes(y.dt) + 2 * sizeof(float));
}

/* *sum += the bytes of v's buffer, if it is in the frame and was not seen yet. */
static void sum_buffer(const graph *g, val v, bool *seen, int64_t *sum) {
    if (v == VAL_NONE) return;
    int32_t b = g->value[v].buf;
    bool is_new = (g->buf[b].where == SPACE_FRAME || g->buf[b].where == SPACE_SCRATCH) && !seen[b];
    if (is_new) *sum += g->buf[b].bytes;
    seen[b] = true;
}

static int64_t late_bytes(const graph *g) {
    bool *seen = xcalloc((size_t)g->n_bufs + 1, sizeof *seen);
    int64_t sum = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const op_rec *r = &g->op[i];
        if (r->phase != PHASE_W || r->entry != ENTRY_BWD_WEIGHT) continue;
        for (int k = 0; k < OP_MAX_IN; k++) sum_buffer(g, r->in[k], seen, &sum);
        for (int k = 0; k < OP_MAX_OUT; k++) {
            sum_buffer(g, r->out[k], seen, &sum);
            sum_buffer(g, r->dout[k], seen, &sum);
        }
    }
    free(seen);
    return sum;
}

static void collect_stats(graph *g, prog_stats *s) {
    int32_t n_forward = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const op_rec *r = &g->op[i];
        double *flops = r->phase == PHASE_F ? &s->flops_forward
                        : r->recomputed     ? &s->flops_recompute
                                            : &s->flops_backward;
        *flops += r->flops - r->flops_again;
        s->flops_recompute += r->flops_again;
        s->bytes_moved += graph_op_bytes(g, r);
        s->ops_recomputed += r->recomputed;
        if (r->phase == PHASE_F) n_forward = i + 1;
        if (r->ws_buf >= 0 && g->buf[r->ws_buf].bytes > s->workspace_peak_bytes)
            s->workspace_peak_bytes = g->buf[r->ws_buf].bytes;
    }
    s->ops = g->n_ops;
    s->ops_forward = n_forward;
    s->ops_back = g->ops_before_weights ? g->ops_before_weights : g->n_ops;
    for (int32_t b = 0; b < g->n_bufs; b++)
        if (g->buf[b].where == SPACE_FRAME && g->buf[b].first < n_forward &&
            g->buf[b].last >= n_forward)
            s->saved_bytes += g->buf[b].bytes;
    s->late_bytes = late_bytes(g);
    s->pinned_bytes = g->pinned_bytes;
    s->const_bytes = g->const_bytes;
}

static op_fn entry_of(const op_impl *impl, op_entry entry) {
    if (entry == ENTRY_FWD) return impl->fwd;
    return entry == ENTRY_BWD_INPUT ? impl->bwd_input : impl->bwd_weight;
}

/* Logits are fp32 in programs of 16 bits, too, and so is what gathers and caps them. */
static dtype kernel_dtype(const graph *g, const op_rec *r) {
    bool of_logits = (r->kind == OP_ACT || r->kind == OP_GATHER_COLS) && r->entry == ENTRY_FWD;
    return of_logits && g->value[r->in[0]].t.dt == DT_F32 ? DT_F32 : g->opt.dt;
}

static status find_kernels(graph *g, err *e) {
    for (int32_t i = 0; i < g->n_ops; i++) {
        op_rec *r = &g->op[i];
        const op_impl *impl = op_find(g->opt.dev, r->kind, kernel_dtype(g, r));
        r->fn = impl ? entry_of(impl, r->entry) : NULL;
        if (r->fn) continue;
        err_set(e, ST_FAILED, "op %s has no %s kernel for %s on this device",
                op_classes[r->kind].name, r->entry == ENTRY_FWD ? "forward" : "backward",
                dtype_name(g->opt.dt));
        return err_hint(e, "use device=cpu, or another train.precision");
    }
    return ST_OK;
}

status prog_finish(prog **out, graph *g, err *e) {
    graph_check_bytes(g);
    graph_merge_transfers(g);
    if (!g->failed && g->opt.train) graph_derive_backward(g);
    if (g->failed) {
        if (e) *e = g->first_error;
        return g->first_error.code;
    }
    prog *p = ARENA_NEW(g->a, prog);
    p->graphs = ARENA_NEW(g->a, prog_graphs);
    p->g = g;
    find_lifetimes(g);
    lay_out_pinned(g);
    lay_out_frame(g, &p->stats);
    collect_stats(g, &p->stats);
    p->stats.outside_bytes = graph_find_reuse(g, p->stats.frame_bytes, p->stats.scratch_bytes);
    TRY(find_kernels(g, e));
    *out = p;
    return ST_OK;
}

const prog_stats *prog_get_stats(const prog *p) {
    return &p->stats;
}

prog_op prog_get_op(const prog *p, int i) {
    const graph *g = p->g;
    const op_rec *r = &g->op[i];
    val named = r->out[0] != VAL_NONE ? r->out[0] : r->shape_out[0];
    prog_op o = {.kind = r->kind,
                 .entry = r->entry,
                 .phase = r->phase,
                 .recomputed = r->recomputed,
                 .block = r->block,
                 .name = named == VAL_NONE ? "" : g->value[named].name,
                 .attr = &r->attr,
                 .flops = r->flops};
    for (int k = 0; k < OP_MAX_IN; k++) o.in[k] = shape_of(g, r->in[k], r->shape_in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++) o.out[k] = shape_of(g, r->out[k], r->shape_out[k]);
    o.bytes = graph_op_bytes(g, r);
    o.touch = r->touch, o.touches = r->touches;
    return o;
}

op_kind prog_op_kind(const prog *p, int i) {
    return p->g->op[i].kind;
}

int prog_op_block(const prog *p, int i) {
    return p->g->op[i].block;
}

/* ---- binding ---- */

/* NULL: the space has no memory, or no op uses the value. */
static void *address_of(const prog *p, val v, int frame) {
    const value *x = &p->g->value[v];
    const buffer *b = &p->g->buf[x->buf];
    char *base = p->frame[frame].base[b->where];
    bool used = b->where != SPACE_FRAME || b->last >= 0; /* scratch always is */
    return base && used ? base + b->offset + dtype_span_bytes(x->t.dt, x->offset) : NULL;
}

static tensor bound(const prog *p, val v, val shape, int frame) {
    tensor t = shape_of(p->g, v, shape);
    if (v != VAL_NONE) t.data = address_of(p, v, frame);
    return t;
}

static void bind_op(const prog *p, op_rec *r, int frame) {
    CHECK(frame >= 0 && frame < p->n_frames, "frame %d of %d", frame, p->n_frames);
    op_call *c = &r->call;
    c->kind = r->kind;
    r->frame = frame;
    c->attr = &r->attr;
    for (int i = 0; i < OP_MAX_IN; i++) {
        c->in[i] = bound(p, r->in[i], r->shape_in[i], frame);
        c->din[i] = bound(p, r->din[i], VAL_NONE, frame);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        c->out[o] = bound(p, r->out[o], r->shape_out[o], frame);
        c->dout[o] = bound(p, r->dout[o], VAL_NONE, frame);
    }
    c->acc = r->acc;
    c->acc_param = r->acc_param;
    if (r->ws_buf >= 0) {
        const buffer *b = &p->g->buf[r->ws_buf];
        c->ws = (char *)p->frame[frame].base[b->where] + b->offset;
        c->ws_bytes = b->bytes;
    }
}

static void fill_constants(const prog *p) {
    const graph *g = p->g;
    for (int32_t i = 0; i < g->n_constants; i++) {
        const const_value *k = &g->constant[i];
        size_t bytes = (size_t)g->buf[g->value[k->v].buf].bytes;
        void *at = address_of(p, k->v, 0);
        if (!at) continue;
        void *host = xmalloc(bytes);
        k->fill(host, k->ctx);
        dev_write(g->opt.dev, at, host, bytes);
        free(host);
    }
}

static const buffer *constant_at(const graph *g, int32_t i) {
    return &g->buf[g->value[g->constant[i].v].buf];
}

bool prog_share_constants(prog *p, const prog *with) {
    const graph *x = p->g, *y = with->g;
    if (x->n_constants != y->n_constants) return false;
    for (int32_t i = 0; i < x->n_constants; i++) {
        const const_value *k = &x->constant[i], *l = &y->constant[i];
        const buffer *at = constant_at(x, i), *other = constant_at(y, i);
        if (at->offset != other->offset || at->bytes != other->bytes || k->fill != l->fill ||
            k->ctx_bytes != l->ctx_bytes || memcmp(k->ctx, l->ctx, k->ctx_bytes) != 0)
            return false;
    }
    p->shares_constants = true;
    return true;
}

void prog_bind(prog *p, const prog_frame *frames, int n) {
    CHECK(n > 0, "a program without a frame");
    prog_drop_graphs(p);
    p->frame = arena_memdup(p->g->a, frames, sizeof *frames * (size_t)n);
    p->n_frames = n;
    for (int32_t i = 0; i < p->g->n_ops; i++) bind_op(p, &p->g->op[i], 0);
    if (!p->shares_constants) fill_constants(p);
}

prog_port prog_find_port(const prog *p, const char *name) {
    const graph *g = p->g;
    for (val v = 0; v < g->n_values; v++) {
        const value *x = &g->value[v];
        if (!x->port || strcmp(x->port, name) != 0) continue;
        return (prog_port){v, x->t.dt, x->t.rows, x->t.cols,
                           dtype_span_bytes(x->t.dt, x->t.rows * x->t.cols)};
    }
    return (prog_port){.value = VAL_NONE};
}

void *prog_port_at(const prog *p, int frame, prog_port port) {
    return port.bytes && p->frame ? address_of(p, port.value, frame) : NULL;
}

void prog_put(const prog *p, int frame, prog_port port, const void *host) {
    if (port.bytes)
        dev_write(p->g->opt.dev, prog_port_at(p, frame, port), host, (size_t)port.bytes);
}

void prog_get(const prog *p, int frame, prog_port port, void *host) {
    if (port.bytes) dev_read(p->g->opt.dev, host, prog_port_at(p, frame, port), (size_t)port.bytes);
}

/* ---- replay ---- */

/* The addresses of an op's operands are those of the frame that it ran in last. */
static const op_call *call_in(const prog *p, op_rec *r, const op_run *run) {
    if (r->frame != run->frame) bind_op(p, r, run->frame);
    r->call.run = run;
    return &r->call;
}

static void launch_ops(const prog *p, int first, int end, const op_run *run) {
    graph *g = p->g;
    for (int32_t i = first; i < end; i++)
        op_launch(g->opt.dev, g->op[i].fn, call_in(p, &g->op[i], run));
}

static void launch_timed(const prog *p, int first, int end, const op_run *run, int64_t *ns_per_op) {
    int64_t began = clock_now_ns();
    for (int32_t i = first; i < end; i++) {
        launch_ops(p, i, i + 1, run);
        dev_sync(p->g->opt.dev);
        int64_t ended = clock_now_ns();
        ns_per_op[i] += ended - began;
        began = ended;
    }
}

/* ---- graphs of a device: many launches as one ---- */

/* Collectives among the ops run on the host, or are given to NCCL with events that a capture does not take. */
static bool may_be_graph(const prog *p, int first, int end, const op_run *run) {
    bool alone = !run->mesh || run->mesh->size[MESH_WORLD] == 1;
    return alone && end - first > 1 && dev_has_graphs(p->g->opt.dev);
}

/* NULL: there is no room for another range. */
static prog_graph *find_graph(const prog *p, int first, int end, const op_run *run) {
    prog_graphs *all = p->graphs;
    for (int i = 0; i < all->n; i++) {
        prog_graph *x = &all->at[i];
        if (x->first == first && x->end == end && x->frame == run->frame &&
            x->first_micro == run->first_micro)
            return x;
    }
    if (all->n == (int)(sizeof all->at / sizeof *all->at)) return NULL;
    all->at[all->n] = (prog_graph){first, end, run->frame, run->first_micro, GRAPH_NEW, NULL};
    return &all->at[all->n++];
}

static void make_graph(const prog *p, prog_graph *x, const op_run *run) {
    dev *d = p->g->opt.dev;
    op_set_run(d, run); /* calls with these numbers write nothing */
    dev_graph_begin(d);
    launch_ops(p, x->first, x->end, run);
    x->graph = dev_graph_end(d);
    x->state = x->graph ? GRAPH_MADE : GRAPH_FAILED;
}

void prog_drop_graphs(prog *p) {
    for (int i = 0; i < p->graphs->n; i++) dev_graph_free(p->g->opt.dev, p->graphs->at[i].graph);
    p->graphs->n = 0;
}

void prog_replay_range(const prog *p, int first, int end, const op_run *run, int64_t *ns_per_op) {
    dev *d = p->g->opt.dev;
    if (dev_is_meta(d)) return;
    if (ns_per_op) {
        launch_timed(p, first, end, run, ns_per_op);
        return;
    }
    prog_graph *x = may_be_graph(p, first, end, run) ? find_graph(p, first, end, run) : NULL;
    if (x && x->state == GRAPH_SEEN) make_graph(p, x, run);
    if (x && x->state == GRAPH_MADE) {
        op_set_run(d, run);
        dev_graph_launch(d, x->graph);
    } else {
        launch_ops(p, first, end, run);
        if (x && x->state == GRAPH_NEW) x->state = GRAPH_SEEN;
    }
}

/* Forward ops come first; backward ones are of the phases B and W. */
void prog_replay(const prog *p, unsigned phases, const op_run *run) {
    int forward = p->stats.ops_forward;
    CHECK(!(phases & (PROG_B | PROG_W)) || (phases & PROG_B && phases & PROG_W),
          "B without W or W without B");
    prog_replay_range(p, phases & PROG_F ? 0 : forward, phases & PROG_B ? p->stats.ops : forward,
                      run, NULL);
}

static void visit_unit(const graph *g, val v, int op, bool grad, prog_unit_visitor visit,
                       void *ctx) {
    if (v == VAL_NONE) return;
    const buffer *b = &g->buf[g->value[v].buf];
    bool is_param = b->where == SPACE_MASTER || b->where == SPACE_WORK;
    if (grad ? b->where == SPACE_GRAD : is_param) visit(ctx, op, b->unit, grad);
}

void prog_visit_units(const prog *p, prog_unit_visitor visit, void *ctx) {
    const graph *g = p->g;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const op_rec *r = &g->op[i];
        for (int k = 0; k < OP_MAX_IN; k++) {
            visit_unit(g, r->in[k], i, false, visit, ctx);
            visit_unit(g, r->din[k], i, true, visit, ctx);
        }
        if (sums_gradients(r)) visit_unit(g, r->out[0], i, true, visit, ctx);
    }
}

static bool visit_written(const graph *g, const op_rec *r, int32_t index, bool gradients,
                          prog_visitor visit, void *ctx) {
    const op_class *k = &op_classes[r->kind];
    int n = gradients ? OP_MAX_IN : OP_MAX_OUT;
    for (int i = 0; i < n; i++) {
        val v = gradients ? r->din[i] : r->out[i];
        if (v == VAL_NONE) continue;
        char word[16], what[64];
        if (gradients)
            snprintf(what, sizeof what, "gradient of %s", op_input_name(r->kind, i, word));
        else
            snprintf(what, sizeof what, "%s", op_output_name(r->kind, i, word));
        prog_event ev = {.index = index,
                         .op = k->name,
                         .name = g->value[v].name,
                         .what = what,
                         .phase = r->phase,
                         .t = gradients ? r->call.din[i] : r->call.out[i]};
        if (!visit(ctx, &ev)) return false;
    }
    return true;
}

void prog_walk(const prog *p, int first, int end, const op_run *run, prog_visitor visit,
               void *ctx) {
    graph *g = p->g;
    for (int32_t i = first; i < end; i++) {
        op_rec *r = &g->op[i];
        op_launch(g->opt.dev, r->fn, call_in(p, r, run));
        if (r->entry == ENTRY_FWD && !visit_written(g, r, i, false, visit, ctx)) return;
        if (!visit_written(g, r, i, true, visit, ctx)) return;
    }
}
