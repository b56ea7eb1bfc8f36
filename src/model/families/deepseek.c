/* DeepSeek-V2 (arXiv 2405.04434) and DeepSeek-V3 (arXiv 2412.19437): latent attention, and experts beside a
 * part that every token goes through, in all but the first layers. V2 has a softmax router, and its groups are
 * as good as their best expert; V3 has sigmoids, a bias that chooses, and the two best of a group. */
#include <string.h>

#include "model/families/hf.h"

static void deepseek_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->kv_lora_rank = 512;
    mc->q_lora_rank = 1536;
    mc->qk_nope_head_dim = 128;
    mc->qk_rope_head_dim = 64;
    mc->v_head_dim = 128;
    mc->head_dim = 192;
    mc->rope_interleaved = true;
}

static void deepseek_v2_defaults(model_config *mc) {
    deepseek_defaults(mc);
    mc->vocab_size = 102400;
    mc->num_experts = 64;
    mc->num_experts_per_tok = 6;
    mc->moe_intermediate_size = 1407;
    mc->num_shared_experts = 2;
    mc->router_group_best = 1;
}

static void deepseek_v3_defaults(model_config *mc) {
    deepseek_defaults(mc);
    mc->vocab_size = 129280;
    mc->hidden_size = 7168;
    mc->intermediate_size = 18432;
    mc->num_hidden_layers = 61;
    mc->num_attention_heads = 128;
    mc->max_position_embeddings = 4096;
    mc->num_experts = 256;
    mc->num_experts_per_tok = 8;
    mc->moe_intermediate_size = 2048;
    mc->num_shared_experts = 1;
    mc->router = ROUTER_SIGMOID;
    mc->router_bias = true;
    mc->router_groups = 8;
    mc->router_groups_kept = 4;
    mc->router_group_best = 2;
    mc->norm_topk_prob = true;
    mc->routed_scaling_factor = 2.5;
}

/* ---- from config.json ---- */

/* The first layers have no experts. */
static status read_first_layers(json_t *o, int64_t layers, int64_t usual, err *e) {
    int64_t dense;
    TRY(hf_take_int(o, "first_k_dense_replace", usual, 0, &dense, e));
    if (json_object_get(o, "expert_layers")) return ST_OK;
    json_t *list = json_array();
    for (int64_t l = 0; l < layers; l++) json_array_append_new(list, json_integer(l >= dense));
    json_object_set_new(o, "expert_layers", list);
    return ST_OK;
}

/* Widths of heads that follow from others; head_dim is the rotated part in transformers. */
static void drop_derived(json_t *o) {
    if (hf_get_int(o, "kv_lora_rank", 1) > 0) json_object_del(o, "head_dim");
    hf_drop(o, "qk_head_dim output_router_logits");
}

static status read_steps(json_t *o, err *e) {
    int64_t step;
    TRY(hf_take_int(o, "moe_layer_freq", 1, 1, &step, e));
    return step == 1 ? ST_OK : hf_bad_value(e, "moe_layer_freq", "1");
}

static status deepseek_v2_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    const char *method = json_string_value(json_object_get(o, "topk_method"));
    bool grouped = method && strcmp(method, "group_limited_greedy") == 0;
    if (method && !grouped && strcmp(method, "greedy") != 0)
        return hf_bad_value(e, "topk_method", "greedy or group_limited_greedy");
    if ((file || method) && !grouped) hf_drop(o, "router_groups router_groups_kept");
    json_object_del(o, "topk_method");
    drop_derived(o);
    TRY(read_first_layers(o, layers, 0, e));
    return read_steps(o, e);
}

static status deepseek_v3_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    const char *method = json_string_value(json_object_get(o, "topk_method"));
    if (method && strcmp(method, "noaux_tc") != 0)
        return hf_bad_value(e, "topk_method", "noaux_tc");
    hf_rename(o, "rope_interleave", "rope_interleaved");
    drop_derived(o);
    hf_drop(o, "topk_method num_mtp_layers");
    TRY(read_first_layers(o, layers, 3, e));
    return read_steps(o, e);
}

/* ---- to config.json ---- */

static bool has_experts(const model_config *mc, int64_t l) {
    return model_layer(mc, (int)(l * mc->block_repeat)).mlp.E > 0;
}

/* Layers before the first with experts. */
static int64_t dense_layers(const model_config *mc) {
    int64_t l = 0;
    while (l < mc->num_hidden_layers && !has_experts(mc, l)) l++;
    return l;
}

static bool can_say(const model_config *mc, const char *option) {
    if (strcmp(option, "kv_lora_rank") == 0) return mc->kv_lora_rank > 0;
    if (strcmp(option, "expert_layers") != 0) return hf_can_say_experts(mc, option);
    for (int64_t l = dense_layers(mc); l < mc->num_hidden_layers; l++)
        if (!has_experts(mc, l)) return false;
    return true;
}

static void deepseek_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o,
             "attention_bias kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim "
             "n_routed_experts n_shared_experts num_experts_per_tok moe_intermediate_size "
             "routed_scaling_factor");
    if (mc->kv_lora_rank > 0) hf_int(o, "head_dim", mc->qk_rope_head_dim);
    json_t *rank = mc->q_lora_rank > 0 ? json_integer(mc->q_lora_rank) : json_null();
    json_object_set_new(o, "q_lora_rank", rank);
    hf_int(o, "first_k_dense_replace", dense_layers(mc));
    hf_int(o, "moe_layer_freq", 1);
}

static void deepseek_v2_to_hf(const model_config *mc, json_t *o) {
    bool grouped = mc->router_groups > 1;
    deepseek_to_hf(mc, o);
    hf_word(o, "topk_method", grouped ? "group_limited_greedy" : "greedy");
    hf_bool(o, "norm_topk_prob", false);
    hf_write(mc, o, "mlp_bias");
    if (grouped) hf_write(mc, o, "n_group topk_group");
}

static void deepseek_v3_to_hf(const model_config *mc, json_t *o) {
    deepseek_to_hf(mc, o);
    hf_write(mc, o, "norm_topk_prob");
    hf_int(o, "n_group", mc->router_groups > 1 ? mc->router_groups : 1);
    hf_int(o, "topk_group", mc->router_groups > 1 ? mc->router_groups_kept : 1);
    hf_bool(o, "rope_interleave", mc->rope_interleaved);
    hf_word(o, "topk_method", "noaux_tc");
    hf_word(o, "scoring_func", "sigmoid");
    hf_write(mc, o, "num_nextn_predict_layers");
}

#define DEEPSEEK_KEYS                                                                              \
    HF_LLAMA_KEYS                                                                                  \
    "attention_bias q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim "        \
    "num_experts num_shared_experts num_experts_per_tok moe_intermediate_size "                    \
    "routed_scaling_factor router_groups router_groups_kept expert_layers "
#define DEEPSEEK_OWN_KEYS                                                                          \
    "qk_head_dim first_k_dense_replace moe_layer_freq topk_method output_router_logits "
#define DEEPSEEK_NAMES                                                                             \
    HF_LLAMA_NAMES, [PART_SHARED_GATE] = "model.layers.%d.mlp.shared_experts.gate_proj",           \
                    [PART_SHARED_UP] = "model.layers.%d.mlp.shared_experts.up_proj",               \
                    [PART_SHARED_DOWN] = "model.layers.%d.mlp.shared_experts.down_proj"

const model_family family_deepseek_v2 = {
    .model_type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .keys = DEEPSEEK_KEYS "mlp_bias",
    .own_keys = DEEPSEEK_OWN_KEYS,
    /* transformers' class has a softmax router that is not renormalised, and no loss of it */
    .inert_keys = "scoring_func norm_topk_prob aux_loss_alpha seq_aux ep_size",
    .lists = "expert_layers",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {DEEPSEEK_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "deepseek2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = deepseek_v2_defaults,
    .from_hf = deepseek_v2_from_hf,
    .can_say = can_say,
    .to_hf = deepseek_v2_to_hf,
};

const model_family family_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .also_called = "kimi_k2",
    .architecture = "DeepseekV3ForCausalLM",
    .keys = DEEPSEEK_KEYS "norm_topk_prob rope_interleaved num_nextn_predict_layers",
    .own_keys = DEEPSEEK_OWN_KEYS "rope_interleave num_mtp_layers",
    .inert_keys = "scoring_func aux_loss_alpha seq_aux ep_size", /* always sigmoids there */
    .lists = "expert_layers",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {DEEPSEEK_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "deepseek2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = deepseek_v3_defaults,
    .from_hf = deepseek_v3_from_hf,
    .can_say = can_say,
    .to_hf = deepseek_v3_to_hf,
};
