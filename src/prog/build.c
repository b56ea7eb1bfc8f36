/* One builder per op: sets the attributes, decides what may work in place, emits. */
#include "prog/graph_int.h"

#include <math.h>
#include <stdio.h>

static val emit(graph *g, op_kind kind, const op_attr *attr, const val *in, int n_in,
                int in_place) {
    static const op_attr none = {0};
    op_rec *r = graph_emit(g, kind, attr ? attr : &none, in, n_in, in_place);
    return r ? r->out[0] : VAL_NONE;
}

/* May an op reuse v's buffer? Only a whole value that an op of the same block has just made. */
static bool is_temporary(const graph *g, val v) {
    if (g->failed || v == VAL_NONE) return false;
    const value *x = &g->value[v];
    return x->producer >= 0 && x->parent == VAL_NONE && x->same_as == VAL_NONE &&
           x->block == g->block && g->buf[x->buf].where == SPACE_FRAME &&
           !(op_classes[g->op[x->producer].kind].bwd_out & 1u);
}

/* A collective over an axis of the mesh; what: for traces and reports of hangs. */
static op_attr over_axis(graph *g, mesh_axis axis, const char *what) {
    char text[64];
    int n = snprintf(text, sizeof text, "%s", what);
    if (g->block >= 0) snprintf(text + n, sizeof text - (size_t)n, " of layers.%d", (int)g->block);
    bool tp = axis == MESH_TP;
    return (op_attr){.comm = {.axis = axis,
                              .ranks = tp ? graph_tp(g) : graph_cp(g),
                              .rank = tp ? graph_tp_rank(g) : graph_cp_rank(g),
                              .what = arena_strdup(g->a, text)}};
}

static val embed(graph *g, val table, val ids, op_attr attr) {
    attr.embed.dt = g->opt.dt;
    return emit(g, OP_EMBED, &attr, (val[]){table, ids}, 2, -1);
}

val graph_embed(graph *g, val table, val ids, int32_t no_grad_id) {
    return embed(g, table, ids, (op_attr){.embed = {.no_grad_id = no_grad_id}});
}

val graph_embed_part(graph *g, val table, int64_t rows, val ids, int32_t no_grad_id) {
    if (graph_tp(g) == 1) return graph_embed(g, table, ids, no_grad_id);
    int64_t first = op_part_of(rows, graph_tp(g), graph_tp_rank(g)).first;
    op_attr attr = {.embed = {.no_grad_id = no_grad_id, .all_rows = rows, .first = (int32_t)first}};
    return embed(g, table, ids, attr);
}

val graph_take_rows(graph *g, val x, val rows) {
    return emit(g, OP_TAKE_ROWS, NULL, (val[]){x, rows}, 2, -1);
}

val graph_ahead(graph *g, val like, val x, val start, int T, int by, int32_t otherwise) {
    op_attr attr = {.ahead = {.T = T, .by = by, .otherwise = otherwise}};
    return emit(g, OP_AHEAD, &attr, (val[]){like, x, start}, 3, -1);
}

val graph_concat(graph *g, val a, val b) {
    return emit(g, OP_CONCAT, NULL, (val[]){a, b}, 2, -1);
}

val graph_linear(graph *g, val x, val w, val bias) {
    op_attr attr = {.linear = {.by_row = g->opt.by_row, .rounds = g->opt.rounds}};
    return emit(g, OP_LINEAR, &attr, (val[]){x, w, bias}, 3, -1);
}

val graph_linear_exact(graph *g, val x, val w, val bias) {
    op_attr attr = {.linear = {.exact = true, .by_row = g->opt.by_row, .rounds = g->opt.rounds}};
    return emit(g, OP_LINEAR, &attr, (val[]){x, w, bias}, 3, -1);
}

val graph_bias(graph *g, val x, val bias) {
    if (bias == VAL_NONE) return x;
    return emit(g, OP_BIAS, NULL, (val[]){x, bias}, 2, is_temporary(g, x) ? 0 : -1);
}

/* The input as which a summand can still join r; -1: none. */
static int free_summand(const op_rec *r) {
    for (int i = 0; i < op_inputs(r->kind); i++)
        if ((op_classes[r->kind].passes >> i & 1) && r->in[i] == VAL_NONE) return i;
    return -1;
}

/* Where b is what an op has made that can add, and that was recorded last (a product, the norm or
 * dropout that ends a branch), a joins it as its residual: one pass over memory and one rounding less. */
static bool join_last(graph *g, val a, val b) {
    if (a == VAL_NONE || !is_temporary(g, b)) return false;
    op_rec *last = &g->op[g->n_ops - 1];
    int slot = free_summand(last);
    if (slot < 0 || last->out[0] != b) return false;
    const tensor *x = &g->value[a].t, *y = &g->value[b].t;
    bool same_shape = x->rows == y->rows && x->cols == y->cols && x->dt == y->dt;
    if (!same_shape || g->value[a].buf == g->value[b].buf) return false;
    graph_add_input(g, last, slot, a);
    return true;
}

val graph_add(graph *g, val a, val b) {
    if (join_last(g, a, b)) return b;
    return emit(g, OP_ADD, NULL, (val[]){a, b}, 2, is_temporary(g, b) ? 1 : -1);
}

val graph_rmsnorm(graph *g, val x, val w, float eps, bool unit_offset, int width) {
    op_attr attr = {.norm = {.eps = eps, .unit_offset = unit_offset, .width = width}};
    return emit(g, OP_RMSNORM, &attr, (val[]){x, w}, 2, -1);
}

val graph_rmsnorm_ranks(graph *g, val x, val w, float eps, bool unit_offset, int64_t cols,
                        int copies) {
    op_attr attr = {.norm = {.eps = eps,
                             .unit_offset = unit_offset,
                             .all_cols = cols,
                             .copies = copies,
                             .axis = MESH_TP}};
    return emit(g, OP_RMSNORM_RANKS, &attr, (val[]){x, w}, 2, -1);
}

val graph_layernorm(graph *g, val x, val w, val b, float eps, int width) {
    op_attr attr = {.norm = {.eps = eps, .width = width}};
    return emit(g, OP_LAYERNORM, &attr, (val[]){x, w, b}, 3, -1);
}

val graph_layernorm_ranks(graph *g, val x, val w, val b, float eps, int64_t cols, int copies) {
    op_attr attr = {.norm = {.eps = eps, .all_cols = cols, .copies = copies, .axis = MESH_TP}};
    return emit(g, OP_LAYERNORM_RANKS, &attr, (val[]){x, w, b}, 3, -1);
}

val graph_rope(graph *g, val x, val pos, val table, int heads, int head_dim, int first,
               int rotary_dim, bool interleaved) {
    op_attr attr = {.rope = {.heads = heads,
                             .head_dim = head_dim,
                             .first = first,
                             .rotary_dim = rotary_dim,
                             .interleaved = interleaved}};
    return emit(g, OP_ROPE, &attr, (val[]){x, pos, table}, 3, is_temporary(g, x) ? 0 : -1);
}

val graph_norm_rope(graph *g, val x, val w, float eps, bool unit_offset, val pos, val table,
                    int head_dim, int first, int rotary_dim, bool interleaved) {
    op_attr attr = {.norm_rope = {.eps = eps,
                                  .unit_offset = unit_offset,
                                  .head_dim = head_dim,
                                  .first = first,
                                  .rotary_dim = rotary_dim,
                                  .interleaved = interleaved}};
    return emit(g, OP_NORM_ROPE, &attr, (val[]){x, w, pos, table}, 4, -1);
}

val graph_attention(graph *g, const op_attention *spec, val q, val k, val v,
                    const graph_seen *seen) {
    op_attr attr = {.attention = *spec};
    attr.attention.stream = g->stream++;
    if (!g->opt.train) attr.attention.dropout = 0;
    return emit(g, OP_ATTENTION, &attr,
                (val[]){q, k, v, seen->start, seen->qpos, seen->end, seen->bias, seen->sinks}, 8,
                -1);
}

val graph_ring_attention(graph *g, const op_attention *spec, val q, val k, val v, val first,
                         val end, val sinks) {
    op_attr over = over_axis(g, MESH_CP, "keys and values");
    op_attr attr = {.ring = {.attention = *spec,
                             .ranks = over.comm.ranks,
                             .rank = over.comm.rank,
                             .what = over.comm.what}};
    g->stream++; /* as ATTENTION, so that what comes behind draws the same numbers */
    return emit(g, OP_RING_ATTENTION, &attr, (val[]){q, k, v, first, end, sinks}, 6, -1);
}

val graph_latent_kv(graph *g, const op_heads *spec, val kv, val rope) {
    op_attr attr = {.heads = *spec};
    return emit(g, OP_LATENT_KV, &attr, (val[]){kv, rope}, 2, -1);
}

val graph_headwise(graph *g, const op_heads *spec, val x, val w) {
    op_attr attr = {.heads = *spec};
    return emit(g, OP_HEADWISE, &attr, (val[]){x, w}, 2, -1);
}

static val act(graph *g, val x, act_kind kind, float c) {
    op_attr attr = {.act = {.kind = kind, .c = c}};
    return emit(g, OP_ACT, &attr, &x, 1, -1);
}

val graph_act(graph *g, val x, act_kind kind) {
    return act(g, x, kind, 0);
}

val graph_softcap(graph *g, val x, float cap) {
    return cap == 0.0f ? x : act(g, x, ACT_SOFTCAP, cap);
}

val graph_clamp(graph *g, val x, float limit) {
    return limit == 0.0f ? x : act(g, x, ACT_CLAMP, limit);
}

val graph_scale(graph *g, val x, float c) {
    if (c == 1.0f) return x;
    op_attr attr = {.scale = {.c = c}};
    return emit(g, OP_SCALE, &attr, (val[]){x}, 1, is_temporary(g, x) ? 0 : -1);
}

val graph_gated(graph *g, val gate, val up, act_kind kind) {
    op_attr attr = {.act = {.kind = kind}};
    return emit(g, OP_GATED, &attr, (val[]){gate, up}, 2, -1);
}

/* of_columns: a tensor-parallel rank has some columns of all rows. */
static val dropout(graph *g, val x, float p, bool in_place, bool of_columns) {
    uint32_t stream = g->stream++;
    if (!g->opt.train || p <= 0.0f) return x;
    op_attr attr = {.dropout = {.p = p, .stream = stream}};
    if (of_columns) {
        attr.dropout.all_cols = graph_cols(g, x) * graph_tp(g);
        attr.dropout.first_col = graph_cols(g, x) * graph_tp_rank(g);
    } else if (g->opt.sequence_parallel && graph_tp(g) > 1) {
        attr.dropout.all_rows = graph_rows(g, x) * graph_tp(g);
        attr.dropout.first_row = graph_rows(g, x) * graph_tp_rank(g);
    }
    return emit(g, OP_DROPOUT, &attr, (val[]){x}, 1, in_place && is_temporary(g, x) ? 0 : -1);
}

val graph_dropout(graph *g, val x, float p) {
    return dropout(g, x, p, true, false);
}

val graph_dropout_columns(graph *g, val x, float p) {
    return dropout(g, x, p, true, true);
}

val graph_dropout_copy(graph *g, val x, float p) {
    return dropout(g, x, p, false, false);
}

/* ---- collectives ---- */

static op_attr over_tp(graph *g, const char *what) {
    return over_axis(g, MESH_TP, what);
}

val graph_tp_in(graph *g, val x) {
    if (g->failed || x == VAL_NONE || graph_tp(g) == 1) return x;
    op_attr attr = over_tp(g, "tp_in");
    return emit(g, g->opt.sequence_parallel ? OP_GATHER_ROWS : OP_FAN_OUT, &attr, &x, 1, -1);
}

val graph_tp_out(graph *g, val x) {
    if (g->failed || x == VAL_NONE || graph_tp(g) == 1) return x;
    op_attr attr = over_tp(g, "tp_out");
    if (g->opt.sequence_parallel) return emit(g, OP_SCATTER_SUM, &attr, &x, 1, -1);
    return emit(g, OP_ALL_REDUCE, &attr, &x, 1, is_temporary(g, x) ? 0 : -1);
}

val graph_tp_cols(graph *g, val x, int64_t cols) {
    if (g->failed || x == VAL_NONE || graph_tp(g) == 1) return x;
    op_attr attr = over_tp(g, "columns");
    attr.comm.cols = cols;
    return emit(g, OP_GATHER_COLS, &attr, &x, 1, -1);
}

val graph_cp_kv(graph *g, val k, val v, val order) {
    op_attr attr = over_axis(g, MESH_CP, "keys and values");
    return emit(g, OP_GATHER_KV, &attr, (val[]){k, v, order}, 3, -1);
}

val graph_cp_heads(graph *g, val x, val order) {
    op_attr attr = over_axis(g, MESH_CP, "heads of all tokens");
    return emit(g, OP_SPLIT_HEADS, &attr, (val[]){x, order}, 2, -1);
}

val graph_cp_tokens(graph *g, val x, val order) {
    op_attr attr = over_axis(g, MESH_CP, "tokens of all heads");
    return emit(g, OP_JOIN_HEADS, &attr, (val[]){x, order}, 2, -1);
}

val graph_tp_rows(graph *g, val x) {
    if (g->failed || graph_tp(g) == 1) return g->failed ? VAL_NONE : x;
    op_attr attr = over_tp(g, "stats of the head");
    return emit(g, OP_GATHER_ROWS, &attr, &x, 1, -1);
}

/* ---- the head ---- */

void graph_begin_or_add(const graph *g, op_rec *r, int i, bool begun) {
    uint8_t bit = (uint8_t)(1u << i);
    if (begun)
        r->acc |= bit;
    else if (!g->value[r->din[i]].leaves)
        r->acc_param |= bit;
}

/* The first head is the first use of its parameters in a step: it writes their gradients. */
void graph_write_param_grad(graph *g, op_rec *r, int i) {
    val dw = r->in[i] == VAL_NONE ? VAL_NONE : g->value[r->in[i]].param_grad;
    if (dw == VAL_NONE) return;
    r->din[i] = dw;
    graph_begin_or_add(g, r, i, g->value[dw].written);
    g->value[dw].written = true;
}

static op_attr head_attr(const graph_head_spec *s) {
    return (op_attr){.head = {.chunk_rows = s->chunk_rows,
                              .z_loss = s->z_loss,
                              .weight = s->weight,
                              .softcap = s->softcap,
                              .distill = s->distill,
                              .temperature = s->temperature}};
}

/* HEAD_CE reads weights in the format of the activations only. */
static bool in_parts(const graph *g, val x, val w) {
    if (g->failed || x == VAL_NONE || w == VAL_NONE) return false;
    return graph_tp(g) > 1 || g->value[w].t.dt != g->value[x].t.dt;
}

static val head_with_gradients(graph *g, op_kind kind, const graph_head_spec *s, const val *in,
                               int n_in) {
    op_attr attr = head_attr(s);
    attr.head.with_grad = g->opt.train;
    op_rec *r = graph_emit(g, kind, &attr, in, n_in, -1);
    if (!r) return VAL_NONE;
    for (int i = 1; i <= 3; i += 2) graph_write_param_grad(g, r, i);
    val nll = r->out[0];
    graph_fix_grads(g, g->n_ops - 1);
    return nll;
}

val graph_head_ce(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets) {
    if (in_parts(g, x, w)) return graph_head_parts(g, s, graph_tp_in(g, x), w, bias, targets);
    return head_with_gradients(g, OP_HEAD_CE, s, (val[]){x, w, targets, bias}, 4);
}

val graph_head_distill(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets,
                       val teacher, val tokens) {
    if (in_parts(g, x, w)) {
        graph_fail(g, ST_USAGE, "a student's head is whole, and in the format of activations");
        return VAL_NONE;
    }
    return head_with_gradients(g, OP_HEAD_DISTILL, s, (val[]){x, w, targets, bias, teacher, tokens},
                               6);
}

val graph_head_nll(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets) {
    if (in_parts(g, x, w)) return graph_head_parts_nll(g, s, graph_tp_in(g, x), w, bias, targets);
    op_attr attr = head_attr(s);
    return emit(g, OP_HEAD_NLL, &attr, (val[]){x, w, targets, bias}, 4, -1);
}

val graph_kv_store(graph *g, val cache, val src, val qpos, int B, int K, int T, int Tmax) {
    if (g->failed) return VAL_NONE;
    op_attr attr = {.kv = {.B = B, .T = T, .Tmax = Tmax, .K = K}};
    return emit(g, OP_KV_STORE, &attr, (val[]){cache, src, qpos}, 3, 0);
}

val graph_page_store(graph *g, val cache, val src, val at, int K, int page, bool turned) {
    op_attr attr = {.paged = {.K = K, .page = page, .turned = turned}};
    return emit(g, OP_PAGE_STORE, &attr, (val[]){cache, src, at}, 3, 0);
}

val graph_page_attention(graph *g, const op_paged *spec, val q, val k, val v, val pages, val place,
                         val sinks) {
    op_attr attr = {.paged = *spec};
    return emit(g, OP_PAGE_ATTENTION, &attr, (val[]){q, k, v, pages, place, sinks}, 6, -1);
}

val graph_delta_gates(graph *g, val ba, val A_log, val dt_bias) {
    return emit(g, OP_DELTA_GATES, NULL, (val[]){ba, A_log, dt_bias}, 3, -1);
}

val graph_delta(graph *g, const op_delta *d, val qk, val v, val gates, val start) {
    op_attr attr = {.delta = *d};
    return emit(g, OP_DELTA, &attr, (val[]){qk, v, gates, start}, 4, -1);
}

/* What an op gives beside the state that it changes in place. */
static val beside_state(graph *g, op_kind kind, const op_attr *attr, const val *in, int n) {
    op_rec *r = graph_emit(g, kind, attr, in, n, 0);
    return r ? r->out[1] : VAL_NONE;
}

val graph_delta_state(graph *g, const op_delta *d, val state, val qk, val v, val gates, val span) {
    op_attr attr = {.delta = *d};
    attr.delta.by_row = g->opt.by_row;
    return beside_state(g, OP_DELTA_STATE, &attr, (val[]){state, qk, v, gates, span}, 5);
}

val graph_conv(graph *g, int B, int T, int W, val x, val w, val start) {
    op_attr attr = {.conv = {.B = B, .T = T, .W = W}};
    return emit(g, OP_CONV, &attr, (val[]){x, w, start}, 3, -1);
}

val graph_conv_state(graph *g, int B, int T, int W, val state, val x, val w, val span) {
    op_attr attr = {.conv = {.B = B, .T = T, .W = W, .by_row = g->opt.by_row}};
    return beside_state(g, OP_CONV_STATE, &attr, (val[]){state, x, w, span}, 4);
}

graph_routes graph_route(graph *g, const op_router *r, val logits, val bias) {
    op_attr attr = {.router = *r};
    graph_routes to = {VAL_NONE, VAL_NONE, VAL_NONE, VAL_NONE, VAL_NONE, VAL_NONE};
    if (g->failed) return to;
    to.probs = emit(g, OP_ROUTER_PROBS, &attr, &logits, 1, -1);
    op_rec *pick = graph_emit(g, OP_ROUTER_PICK, &attr, (val[]){to.probs, bias}, 2, -1);
    if (!pick) return to;
    to.weights = pick->out[0];
    to.picks = pick->out[1];
    op_rec *sort = graph_emit(g, OP_ROUTER_SORT, &attr, (val[]){to.weights, to.picks}, 2, -1);
    if (!sort) return to;
    to.rows = sort->out[0];
    to.slots = sort->out[1];
    to.starts = sort->out[2];
    return to;
}

val graph_expert_linear(graph *g, const op_router *r, val x, val w, val starts) {
    op_attr attr = {.experts = {.n = r->experts, .by_row = g->opt.by_row, .rounds = g->opt.rounds}};
    if (!g->failed && w != VAL_NONE) attr.experts.at = g->value[w].experts_at;
    return emit(g, OP_EXPERT_LINEAR, &attr, (val[]){x, w, starts}, 3, -1);
}

/* The first product has columns of gate and up, or of up alone. */
graph_spread graph_expert_ranks(graph *g, const op_router *r, act_kind act, val x, val w_in,
                                val w_out, val starts) {
    static const graph_spread none = {VAL_NONE, VAL_NONE};
    if (g->failed) return none;
    int ranks = graph_ep(g);
    int64_t own = r->experts / ranks, H = graph_rows(g, w_in) / own;
    double all = (double)graph_rows(g, x), rows = ceil(g->opt.expert_load * all / ranks);
    op_attr attr = {.expert_ranks = {.experts = r->experts,
                                     .ranks = ranks,
                                     .rank = g->opt.mesh->rank[MESH_EP],
                                     .rows = (int32_t)(rows < all ? rows : all),
                                     .act = act,
                                     .gated = H == 2 * graph_cols(g, w_out),
                                     .fixed = g->opt.fixed_grads,
                                     .what = over_axis(g, MESH_EP, "rows of experts").comm.what}};
    op_rec *k = graph_emit(g, OP_EXPERT_RANKS, &attr, (val[]){x, w_in, w_out, starts}, 4, -1);
    return k ? (graph_spread){k->out[0], k->out[2]} : none;
}

val graph_expert_sum(graph *g, val z, const graph_routes *to, val res) {
    return emit(g, OP_EXPERT_SUM, NULL, (val[]){z, to->weights, to->slots, res}, 4, -1);
}

val graph_router_load(graph *g, const op_router *r, const graph_routes *to, val before) {
    op_attr attr = {.router = *r};
    return emit(g, OP_ROUTER_LOAD, &attr, (val[]){to->probs, to->picks, before}, 3, -1);
}

val graph_router_balance(graph *g, const op_router *r, val load, val counts) {
    op_attr attr = {.router = *r};
    return emit(g, OP_ROUTER_BALANCE, &attr, (val[]){load, counts}, 2, -1);
}

val graph_router_z(graph *g, val logits) {
    return emit(g, OP_ROUTER_Z, NULL, &logits, 1, -1);
}

val graph_router_tally(graph *g, const op_router *r, const graph_routes *to) {
    op_attr attr = {.router = *r};
    return emit(g, OP_ROUTER_TALLY, &attr, (val[]){to->probs, to->picks, to->starts}, 3, -1);
}
