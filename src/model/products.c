/* What the forward pass is made of: parameters by name, products and norms with them. */
#include <stdio.h>
#include <string.h>

#include "model/parts.h"

val model_named(model_rec *r, const char *name, const char *suffix) {
    char whole[MODEL_NAME_BYTES + 16];
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    graph_param_ref ref;
    if (!param_ref(r->params, whole, &ref)) return VAL_NONE;
    if (graph_get_options(r->g)->dt == DT_F64) param_ref_widen(&ref);
    return graph_param(r->g, &ref);
}

val model_weight(model_rec *r, model_part part, int l) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    return *name ? model_named(r, name, ".weight") : VAL_NONE;
}

/* x W^T + b under that name; VAL_NONE when there is no such matrix. */
val model_named_product(model_rec *r, const char *name, val x) {
    val w = model_named(r, name, ".weight");
    if (w == VAL_NONE) return VAL_NONE;
    val y = graph_linear(r->g, x, w, model_named(r, name, ".bias"));
    graph_name(r->g, y, "%s", name);
    return y;
}

val model_product(model_rec *r, model_part part, int l, val x) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    val y = model_named_product(r, name, x);
    return y == VAL_NONE ? y : model_adapt(r, part, l, x, y);
}

/* The product whose outputs are summed over tensor-parallel ranks: its bias is added to the sum. */
val model_out_product(model_rec *r, model_part part, int l, val x) {
    if (graph_tp(r->g) == 1) return model_product(r, part, l, x);
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, part, l, name);
    val y = graph_linear(r->g, x, model_named(r, name, ".weight"), VAL_NONE);
    graph_name(r->g, y, "%s", name);
    y = model_adapt(r, part, l, x, y);
    y = graph_bias(r->g, graph_tp_out(r->g, y), model_named(r, name, ".bias"));
    graph_name(r->g, y, "%s", name);
    return y;
}

bool model_norm_offset(const model_config *mc) {
    return mc->norm_weights == NORM_WEIGHTS_OFFSET && !mc->gguf_order;
}

/* width: of one group, 0 for whole rows. */
val model_norm(model_rec *r, model_part part, int l, val x, int64_t width) {
    const model_config *mc = r->mc;
    char name[MODEL_NAME_BYTES];
    model_part_name(mc, part, l, name);
    val w = *name ? model_named(r, name, ".weight") : VAL_NONE;
    val b = *name ? model_named(r, name, ".bias") : VAL_NONE;
    val y = mc->norm == NORM_RMS
                ? graph_rmsnorm(r->g, x, w, (float)mc->norm_eps, model_norm_offset(mc), (int)width)
                : graph_layernorm(r->g, x, w, b, (float)mc->norm_eps, (int)width);
    graph_name(r->g, y, "%s", name);
    return y;
}
