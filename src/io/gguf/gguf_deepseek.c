/* What files of llama.cpp's architecture deepseek2 say beside others: experts of which the first layers have
 * none, a part beside them, groups, a bias that chooses. (Latent attention: gguf_latents.c)
 *
 *   rope.scaling.yarn_log_multiplier   0.1 mscale_all_dim. llama.cpp scales scores by it, and nothing else
 *                                      by mscale, so both must be the same
 *   expert_gating_func                 1 softmax, 2 sigmoid */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf_config.h"

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };

/* Norms of latents have this epsilon (model/latent_attention.c), and llama.cpp has one for all norms. */
static const double LATENT_EPS = 1e-6;

/* llama.cpp takes models of so many layers (or 48, with a certain vocabulary) for the Lite variants, whose queries have no latent. */
static bool looks_lite(const model_config *mc) {
    int64_t L = mc->num_hidden_layers;
    return L == 26 || L == 27 || (L == 48 && mc->vocab_size == 128256);
}

static int64_t first_with_experts(const model_config *mc) {
    int64_t l = 0;
    while (l < mc->num_hidden_layers && model_layer(mc, (int)l).mlp.E == 0) l++;
    return l;
}

const char *gguf_deepseek_lacks(const model_config *mc) {
    int64_t first = first_with_experts(mc);
    if (looks_lite(mc) && mc->q_lora_rank > 0) return "q_lora_rank";
    if (fabs(mc->norm_eps / LATENT_EPS - 1) > 1e-9) return "rms_norm_eps";
    if (first == mc->num_hidden_layers) return "num_experts";
    for (int64_t l = first; l < mc->num_hidden_layers; l++)
        if (model_layer(mc, (int)l).mlp.E == 0) return "expert_layers";
    mlp_layer m = model_layer(mc, (int)first).mlp;
    if (m.shared == 0 || m.shared % m.F) return "shared_expert_intermediate_size";
    if (m.router.groups > 1 && m.router.best != 2) return "router_group_best";
    return NULL;
}

/* ---- writing ---- */

static const char *key_of(const gguf_arch *arch, const char *key, char out[128]) {
    snprintf(out, 128, "%s.%s", arch->name, key);
    return out;
}

void gguf_deepseek_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p) {
    int64_t first = first_with_experts(mc);
    mlp_layer m = model_layer(mc, (int)first).mlp;
    bool groups = m.router.groups > 1;
    const struct {
        const char *key;
        int64_t x;
        bool said;
    } ints[] = {
        {"leading_dense_block_count", first, true},
        {"expert_shared_count", m.shared / m.F, true},
        {"expert_gating_func", m.router.sigmoid ? GATING_SIGMOID : GATING_SOFTMAX, true},
        {"expert_group_count", m.router.groups, groups},
        {"expert_group_used_count", m.router.kept, groups},
    };
    char key[128];
    for (int i = 0; i < ARRAY_LEN(ints); i++)
        if (ints[i].said) gguf_put_u32(p, key_of(arch, ints[i].key, key), (uint32_t)ints[i].x);
    gguf_put_f32(p, key_of(arch, "expert_weights_scale", key), m.router.scale);
    gguf_put_bool(p, key_of(arch, "expert_weights_norm", key), m.router.renormalise);
    if (mc->rope.kind == ROPE_YARN)
        gguf_put_f32(p, key_of(arch, "rope.scaling.yarn_log_multiplier", key),
                     (float)(0.1 * mc->rope.mscale_all_dim));
}

/* ---- reading ---- */

static void put_int(json_t *o, const char *option, int64_t x) {
    json_object_set_new(o, option, json_integer(x));
}

static status read_router(const gguf_facts *f, const gguf_arch *arch, json_t *o, err *e) {
    int64_t gating = GATING_SOFTMAX, groups = 0, kept = 0;
    double scale = 1;
    bool norm = false;
    char name[128];
    TRY(gguf_arch_int(f, arch, "expert_gating_func", &gating, e));
    TRY(gguf_arch_int(f, arch, "expert_group_count", &groups, e));
    TRY(gguf_arch_int(f, arch, "expert_group_used_count", &kept, e));
    TRY(gguf_arch_float(f, arch, "expert_weights_scale", &scale, e));
    if (gguf_meta_find(f->meta, key_of(arch, "expert_weights_norm", name)))
        TRY(gguf_meta_bool(f->meta, name, &norm, e));
    json_object_set_new(o, "router", json_string(gating == GATING_SIGMOID ? "sigmoid" : "softmax"));
    json_object_set_new(o, "norm_topk_prob", json_boolean(norm));
    json_object_set_new(o, "routed_scaling_factor", json_real(scale > 0 ? scale : 1));
    put_int(o, "router_groups", groups);
    put_int(o, "router_groups_kept", groups > 1 ? kept : 0);
    if (groups > 1) put_int(o, "router_group_best", 2);
    return ST_OK;
}

status gguf_deepseek_read(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                          err *e) {
    int64_t first = 0, shared = 0;
    char name[64];
    TRY(read_router(f, arch, o, e));
    TRY(gguf_arch_int(f, arch, "leading_dense_block_count", &first, e));
    TRY(gguf_arch_int(f, arch, "expert_shared_count", &shared, e));
    put_int(o, "num_shared_experts", shared);
    json_t *list = json_array();
    for (int64_t l = 0; l < layers; l++) json_array_append_new(list, json_integer(l >= first));
    json_object_set_new(o, "expert_layers", list);
    snprintf(name, sizeof name, "blk.%lld.exp_probs_b.bias", (long long)first);
    json_object_set_new(o, "router_bias", json_boolean(f->find(f->ctx, name) != NULL));
    return ST_OK;
}

status gguf_deepseek_family(const gguf_facts *f, const gguf_arch *arch, const model_family **out,
                            err *e) {
    int64_t gating = GATING_SOFTMAX;
    TRY(gguf_arch_int(f, arch, "expert_gating_func", &gating, e));
    *out = model_family_find(gating == GATING_SIGMOID ? "deepseek_v3" : "deepseek_v2");
    return ST_OK;
}

/* Scores are scaled by mscale_all_dim, rotated columns not at all. */
status gguf_deepseek_yarn(const gguf_facts *f, const gguf_arch *arch, json_t *rope, err *e) {
    double multiplier = 0;
    TRY(gguf_arch_float(f, arch, "rope.scaling.yarn_log_multiplier", &multiplier, e));
    double mscale = rint(multiplier * 1e7) / 1e6; /* floats have seven digits */
    json_object_set_new(rope, "attention_factor", json_real(1));
    json_object_set_new(rope, "mscale_all_dim", json_real(mscale));
    return ST_OK;
}
