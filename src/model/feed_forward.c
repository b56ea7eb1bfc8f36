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
    h = graph_dropout(r->g, h, (float)k->mlp.dropout);
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

static val experts_weight(model_rec *r, const layer_spec *k, const char *end) {
    char name[MODEL_NAME_BYTES];
    model_experts_name(r->mc, k->stored, end, name);
    return model_named(r, name, ".weight");
}

static val experts(model_rec *r, int l, const layer_spec *k, val x) {
    const mlp_layer *m = &k->mlp;
    op_router router = router_of(r, m);
    graph_routes to =
        graph_route(r->g, &router, model_product(r, PART_ROUTER, k->stored, x), VAL_NONE);
    if (balances(r)) r->load = graph_router_load(r->g, &to, r->load);
    val in = graph_take_rows(r->g, x, to.rows), w = experts_weight(r, k, "gate_up_proj");
    val h = graph_expert_linear(r->g, &router, in, w, to.starts);
    graph_name(r->g, h, "layers.%d.experts.in", l);
    h = m->kind == MLP_GATED ? graph_gated(r->g, graph_view(r->g, h, 0, m->F),
                                           graph_view(r->g, h, m->F, m->F), m->act)
                             : graph_act(r->g, h, m->act);
    w = experts_weight(r, k, "down_proj");
    h = graph_expert_linear(r->g, &router, h, w, to.starts);
    graph_name(r->g, h, "layers.%d.experts.out", l);
    return graph_expert_sum(r->g, h, &to);
}

val model_feed_forward(model_rec *r, int l, const layer_spec *k, val x) {
    return k->mlp.E ? experts(r, l, k, x) : dense(r, l, k, x);
}
