/* The feed-forward branch of a layer: one part for all tokens (dense), or experts, of which each token
 * goes through some. */
#include "model/parts.h"

static val gated(model_rec *r, const layer_spec *k, val x) {
    int64_t F = k->mlp.F;
    char name[MODEL_NAME_BYTES];
    val both = model_product(r, PART_GATE_UP, k->stored, x);
    if (both == VAL_NONE && !graph_failed(r->g)) {
        model_pack_name(r->mc, PART_GATE, k->stored, "gate_up_proj", name);
        both = model_named_product(r, name, x);
    }
    if (both != VAL_NONE)
        return graph_gated(r->g, graph_view(r->g, both, 0, F), graph_view(r->g, both, F, F),
                           k->mlp.act);
    val gate = model_product(r, PART_GATE, k->stored, x);
    return graph_gated(r->g, gate, model_product(r, PART_UP, k->stored, x), k->mlp.act);
}

static val dense(model_rec *r, int l, const layer_spec *k, val x) {
    val h = k->mlp.kind == MLP_GATED
                ? gated(r, k, x)
                : graph_act(r->g, model_product(r, PART_UP, k->stored, x), k->mlp.act);
    graph_name(r->g, h, "layers.%d.mlp.act", l);
    return model_out_product(r, PART_DOWN, k->stored, h);
}

/* ---- experts ---- */

static op_router router_of(const model_rec *r, const mlp_layer *m) {
    return (op_router){.experts = (int)m->E,
                       .k = (int)m->k,
                       .layers = r->n_routers,
                       .scale = 1.0f,
                       .renormalise = m->renormalise};
}

static bool balances(const model_rec *r) {
    return graph_get_options(r->g)->train && r->mc->router_aux_loss_coef > 0;
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

static val experts(model_rec *r, int l, const layer_spec *k, val x) {
    const mlp_layer *m = &k->mlp;
    op_router router = router_of(r, m);
    graph_routes to =
        graph_route(r->g, &router, model_product(r, PART_ROUTER, k->stored, x), VAL_NONE);
    if (balances(r)) r->load = graph_router_load(r->g, &to, r->load);
    val h = experts_in(r, l, k, &router, graph_take_rows(r->g, x, to.rows), to.starts);
    h = experts_product(r, k, &router, "down_proj", h, to.starts);
    graph_name(r->g, h, "layers.%d.experts.out", l);
    return graph_expert_sum(r->g, h, &to);
}

val model_feed_forward(model_rec *r, int l, const layer_spec *k, val x) {
    return k->mlp.E ? experts(r, l, k, x) : dense(r, l, k, x);
}
