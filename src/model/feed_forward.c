/* The feed-forward branch of a layer: one part for all tokens (dense), or experts, of which each token
 * goes through some. */
#include <math.h>
#include <stdio.h>

#include "model/parts.h"

/* The parts of a dense feed-forward part, and its width. */
typedef struct dense_parts {
    model_part both, gate, up,
        down; /* both: PART_COUNT where files never have one tensor of both */
    int64_t F;
} dense_parts;

static val gated(model_rec *r, const layer_spec *k, const dense_parts *p, val x) {
    int64_t F = p->F;
    char name[MODEL_NAME_BYTES];
    val both = p->both == PART_COUNT ? VAL_NONE : model_product(r, p->both, k->stored, x);
    if (both == VAL_NONE && !graph_failed(r->g)) {
        model_pack_name(r->mc, p->gate, k->stored, "gate_up_proj", name);
        both = model_named_product(r, name, x);
    }
    if (both != VAL_NONE)
        return graph_gated(r->g, graph_view(r->g, both, 0, F), graph_view(r->g, both, F, F),
                           k->mlp.act);
    val gate = model_product(r, p->gate, k->stored, x);
    return graph_gated(r->g, gate, model_product(r, p->up, k->stored, x), k->mlp.act);
}

/* What the last product of a dense part reads. */
static val dense_hidden(model_rec *r, const layer_spec *k, const dense_parts *p, val x) {
    if (k->mlp.kind == MLP_GATED) return gated(r, k, p, x);
    return graph_act(r->g, model_product(r, p->up, k->stored, x), k->mlp.act);
}

static val dense(model_rec *r, int l, const layer_spec *k, val x) {
    dense_parts p = {PART_GATE_UP, PART_GATE, PART_UP, PART_DOWN, k->mlp.F};
    val h = dense_hidden(r, k, &p, x);
    graph_name(r->g, h, "layers.%d.mlp.act", l);
    /* of an encoder-decoder alone: all other layers have the same number of random ops
     * (model_random_ops_before) */
    if (k->mlp.dropout > 0) h = graph_dropout_columns(r->g, h, (float)k->mlp.dropout);
    return model_out_product(r, PART_DOWN, k->stored, h);
}

/* ---- experts ---- */

/* The router as one that pools the load of all layers so far. */
static op_router router_of(const model_rec *r, const mlp_layer *m) {
    op_router router = m->router;
    router.layers = r->n_routers;
    return router;
}

/* VAL_NONE: there is no such pack or stack. */
static val experts_product(model_rec *r, const layer_spec *k, const op_router *router,
                           const char *end, val x, val starts) {
    char name[MODEL_NAME_BYTES];
    model_experts_name(r->mc, k->stored, end, name);
    val w = model_named(r, name, ".weight");
    return w == VAL_NONE ? w : graph_expert_linear(r->g, router, x, w, starts);
}

/* Gate and up of experts that stay in a file are two products. */
static val experts_in(model_rec *r, int l, const layer_spec *k, const op_router *router, val x,
                      val starts) {
    const mlp_layer *m = &k->mlp;
    val gate = experts_product(r, k, router, "gate_up_proj", x, starts), up = gate;
    if (gate == VAL_NONE && m->kind == MLP_GATED)
        gate = experts_product(r, k, router, "gate_proj", x, starts);
    else if (gate != VAL_NONE && m->kind == MLP_GATED) {
        graph_name(r->g, gate, "layers.%d.experts.in", l);
        gate = graph_view(r->g, gate, 0, m->F);
        up = graph_view(r->g, up, m->F, m->F);
    }
    if (up == VAL_NONE) up = experts_product(r, k, router, "up_proj", x, starts);
    graph_name(r->g, up, "layers.%d.experts.in", l);
    return m->kind == MLP_GATED ? graph_gated(r->g, gate, up, m->act) : graph_act(r->g, up, m->act);
}

static val router_bias(model_rec *r, const layer_spec *k) {
    char name[MODEL_NAME_BYTES];
    if (!k->mlp.router_bias) return VAL_NONE;
    model_part_name(r->mc, PART_ROUTER_BIAS, k->stored, name);
    return model_named(r, name, "");
}

/* The part beside experts that every token goes through. Of tensor-parallel ranks each has a summand. */
static val shared_part(model_rec *r, int l, const layer_spec *k, val x) {
    dense_parts p = {PART_COUNT, PART_SHARED_GATE, PART_SHARED_UP, PART_SHARED_DOWN, k->mlp.shared};
    val h = dense_hidden(r, k, &p, x);
    graph_name(r->g, h, "layers.%d.shared.act", l);
    h = model_product(r, PART_SHARED_DOWN, k->stored, h);
    if (!k->mlp.shared_gate) return h;
    op_router all = {.experts = 1, .k = 1, .scale = 1.0f, .sigmoid = true};
    val logits = model_product(r, PART_SHARED_SCALE, k->stored, x);
    graph_routes to = graph_route(r->g, &all, logits, VAL_NONE);
    return graph_expert_sum(r->g, h, &to, VAL_NONE);
}

/* A loss of N tokens, as a share of the loss that is minimised. */
static void add_loss(model_rec *r, val loss, double coef) {
    coef /= graph_tp(r->g); /* each rank adds it to what is summed over them */
    if (r->task == TASK_NLL && r->sample_rows > 1) coef /= (double)r->sample_rows;
    graph_aux_loss(r->g, loss, (float)coef, true);
}

/* The losses of one router. Those of a load are k where it is even; of sequences and of the whole
 * step the papers' are 1. */
static void balance(model_rec *r, int l, const op_router *router, const graph_routes *to) {
    op_router own = *router;
    dtype real = graph_get_options(r->g)->dt == DT_F64 ? DT_F64 : DT_F32;
    char name[32];
    val counts = VAL_NONE;
    double coef = r->mc->router_aux_loss_coef;
    if (r->routing.balance == BALANCE_MICRO) {
        r->load = graph_router_load(r->g, router, to, r->load);
        return;
    }
    own.layers = 1;
    if (r->routing.balance == BALANCE_SEQUENCE) own.sequences = r->B;
    snprintf(name, sizeof name, "counts.%d", l);
    if (r->routing.balance == BALANCE_GLOBAL)
        counts = graph_input(r->g, name, real, 1, own.experts);
    val load = graph_router_load(r->g, &own, to, VAL_NONE);
    add_loss(r, graph_router_balance(r->g, &own, load, counts), coef / own.k);
}

/* What training does with a router beside using it. */
static void steer(model_rec *r, int l, const op_router *router, val logits,
                  const graph_routes *to) {
    char name[32];
    if (!graph_get_options(r->g)->train) return;
    bool wanted = r->mc->router_aux_loss_coef > 0 && !r->mc->num_labels; /* as in transformers */
    if (wanted && r->routing.balance != BALANCE_NONE) balance(r, l, router, to);
    if (r->routing.z_loss > 0) add_loss(r, graph_router_z(r->g, logits), (double)r->routing.z_loss);
    if (!r->routing.tallies) return;
    snprintf(name, sizeof name, "tally.%d", l);
    graph_output(r->g, graph_router_tally(r->g, router, to), name);
}

void model_balance(model_rec *r) {
    op_router router = {.k = (int)r->mc->num_experts_per_tok, .layers = r->n_routers};
    if (r->load == VAL_NONE) return;
    val loss = graph_router_balance(r->g, &router, r->load, VAL_NONE);
    add_loss(r, loss, r->mc->router_aux_loss_coef);
}

/* In training an expert takes at most a share of each sequence, so that what is dropped does not depend on how a
 * step is divided. A product such as 0.07 * 100 is not rounded up to 8. */
static op_router limited(const model_rec *r, int l, op_router router) {
    int64_t picks = (int64_t)router.k * (l < model_encoder_layers(r->mc) ? r->S : r->T);
    double most = r->routing.capacity_factor * (double)picks / router.experts;
    if (!graph_get_options(r->g)->train || most <= 0) return router;
    router.sequences = r->B;
    router.capacity = (int32_t)fmin(ceil(most * (1 - 1e-12)), (double)picks);
    return router;
}

/* The rows of places through the experts that ranks share out. */
static val spread_out(model_rec *r, int l, const layer_spec *k, const op_router *router, val x,
                      val starts) {
    char in[MODEL_NAME_BYTES], out[MODEL_NAME_BYTES], name[32];
    model_experts_name(r->mc, k->stored, "gate_up_proj", in);
    model_experts_name(r->mc, k->stored, "down_proj", out);
    graph_spread s = graph_expert_ranks(r->g, router, k->mlp.act, x, model_named(r, in, ".weight"),
                                        model_named(r, out, ".weight"), starts);
    snprintf(name, sizeof name, "rounds.%d", l);
    if (graph_get_options(r->g)->train && r->routing.tallies) graph_output(r->g, s.rounds, name);
    return s.z;
}

static val experts(model_rec *r, int l, const layer_spec *k, val x) {
    const mlp_layer *m = &k->mlp;
    op_router router = router_of(r, m);
    val logits = model_product(r, PART_ROUTER, k->stored, x);
    op_router sorts = limited(r, l, router);
    graph_routes to = graph_route(r->g, &sorts, logits, router_bias(r, k));
    steer(r, l, &router, logits, &to);
    val shared = m->shared ? shared_part(r, l, k, x) : VAL_NONE;
    val h = graph_take_rows(r->g, x, to.rows);
    if (graph_ep(r->g) > 1)
        h = spread_out(r, l, k, &router, h, to.starts);
    else {
        h = experts_in(r, l, k, &router, h, to.starts);
        h = experts_product(r, k, &router, "down_proj", h, to.starts);
    }
    graph_name(r->g, h, "layers.%d.experts.out", l);
    return graph_tp_out(r->g, graph_expert_sum(r->g, h, &to, shared));
}

/* ---- soft experts (Puigcerver et al. 2024, "From Sparse to Soft Mixtures of Experts", section 2.1) ----
 *
 * Each expert has s slots, P = E s in all, with a vector phi_j. Of the n tokens x_i of a text, logits l_ij = x_i phi_j:
 *   dispatch  slot_j = sum_i x_i softmax_i(l_ij)          attention of the slots, as queries, to the tokens
 *   experts   each reads its slots
 *   combine   y_i = sum_j out_j softmax_j(l_ij)           attention of the tokens to the slots */

typedef struct slot_order {
    int64_t B, E, s;
} slot_order;

/* Row (b, e, i) of texts has phi number (e, i). */
static void fill_phi(void *dst, const void *ctx) {
    const slot_order *o = ctx;
    int64_t P = o->E * o->s;
    for (int64_t n = 0; n < o->B * P; n++) ((int32_t *)dst)[n] = (int32_t)(n % P);
}

/* The row of texts at each place (e, b, i) of experts. */
static void fill_places(void *dst, const void *ctx) {
    const slot_order *o = ctx;
    int32_t *row = dst;
    for (int64_t e = 0; e < o->E; e++)
        for (int64_t b = 0; b < o->B; b++)
            for (int64_t i = 0; i < o->s; i++) *row++ = (int32_t)((b * o->E + e) * o->s + i);
}

/* The other way round. */
static void fill_rows(void *dst, const void *ctx) {
    const slot_order *o = ctx;
    int32_t *place = dst;
    for (int64_t b = 0; b < o->B; b++)
        for (int64_t e = 0; e < o->E; e++)
            for (int64_t i = 0; i < o->s; i++) *place++ = (int32_t)((e * o->B + b) * o->s + i);
}

static void fill_starts(void *dst, const void *ctx) {
    const slot_order *o = ctx;
    for (int64_t e = 0; e <= o->E; e++) ((int32_t *)dst)[e] = (int32_t)(e * o->B * o->s);
}

/* Attention of one head over whole rows, without a scale: to softmax(q k) v. */
static val mix(model_rec *r, int64_t Tq, int64_t Tk, val q, val k, val v, val end) {
    int C = (int)r->mc->hidden_size;
    op_attention spec = {.B = r->B,
                         .Tq = (int)Tq,
                         .Tk = (int)Tk,
                         .H = 1,
                         .K = 1,
                         .D = C,
                         .Dv = C,
                         .scale = 1.0f,
                         .all_heads = 1};
    graph_seen seen = GRAPH_SEES_ALL;
    seen.end = end;
    return graph_attention(r->g, &spec, q, k, v, &seen);
}

static val soft_experts(model_rec *r, int l, const layer_spec *k, val x) {
    slot_order o = {r->B, k->mlp.E, k->mlp.slots};
    int64_t P = o.E * o.s, M = o.B * P;
    op_router router = {.experts = (int32_t)o.E, .k = 1, .scale = 1.0f};
    val order = graph_const(r->g, "slot_phi", DT_I32, M, 1, fill_phi, &o, sizeof o);
    val places = graph_const(r->g, "slot_places", DT_I32, M, 1, fill_places, &o, sizeof o);
    val rows = graph_const(r->g, "slot_rows", DT_I32, M, 1, fill_rows, &o, sizeof o);
    val starts = graph_const(r->g, "slot_starts", DT_I32, 1, o.E + 1, fill_starts, &o, sizeof o);
    val phi = graph_embed(r->g, model_weight(r, PART_ROUTER, k->stored), order, -1);
    val slots = mix(r, P, r->S, phi, x, x, r->source.slots_end);
    graph_name(r->g, slots, "layers.%d.slots", l);
    val h = experts_in(r, l, k, &router, graph_take_rows(r->g, slots, places), starts);
    h = experts_product(r, k, &router, "down_proj", h, starts);
    graph_name(r->g, h, "layers.%d.experts.out", l);
    return mix(r, r->S, P, x, phi, graph_take_rows(r->g, h, rows), VAL_NONE);
}

val model_feed_forward(model_rec *r, int l, const layer_spec *k, val x) {
    if (k->mlp.slots) return soft_experts(r, l, k, x);
    return k->mlp.E ? experts(r, l, k, x) : dense(r, l, k, x);
}
