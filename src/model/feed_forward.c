/* The feed-forward branch of a layer: one part for all tokens (dense), or experts, of which each token
 * goes through some. */
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
    h = graph_dropout(r->g, h, (float)k->mlp.dropout);
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

static val experts(model_rec *r, int l, const layer_spec *k, val x) {
    const mlp_layer *m = &k->mlp;
    op_router router = router_of(r, m);
    val logits = model_product(r, PART_ROUTER, k->stored, x);
    graph_routes to = graph_route(r->g, &router, logits, router_bias(r, k));
    steer(r, l, &router, logits, &to);
    val shared = m->shared ? shared_part(r, l, k, x) : VAL_NONE;
    val h = experts_in(r, l, k, &router, graph_take_rows(r->g, x, to.rows), to.starts);
    h = experts_product(r, k, &router, "down_proj", h, to.starts);
    graph_name(r->g, h, "layers.%d.experts.out", l);
    return graph_tp_out(r->g, graph_expert_sum(r->g, h, &to, shared));
}

val model_feed_forward(model_rec *r, int l, const layer_spec *k, val x) {
    return k->mlp.E ? experts(r, l, k, x) : dense(r, l, k, x);
}
