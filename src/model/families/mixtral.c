/* Mixtral (Jiang et al. 2024): Mistral whose feed-forward parts are experts, of which a token goes
 * through the two that fit best; their weights sum to 1. */
#include "model/families/hf.h"

static void mixtral_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->num_key_value_heads = 8;
    mc->intermediate_size = 14336;
    mc->max_position_embeddings = 131072;
    mc->norm_eps = 1e-5;
    mc->rope_theta = 1e6;
    mc->num_experts = 8;
    mc->num_experts_per_tok = 2;
    mc->norm_topk_prob = true;
    mc->router_aux_loss_coef = 0.001;
}

static status mixtral_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    if (json_number_value(json_object_get(o, "router_jitter_noise")) != 0)
        return hf_bad_value(e, "router_jitter_noise", "0");
    hf_drop(o, "router_jitter_noise output_router_logits");
    return ST_OK;
}

static void mixtral_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o, "num_local_experts num_experts_per_tok router_aux_loss_coef");
    json_object_set_new(o, "sliding_window",
                        mc->sliding_window > 0 ? json_integer(mc->sliding_window) : json_null());
}

const model_family family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .classifier = "MixtralForSequenceClassification",
    .keys = HF_LLAMA_KEYS "sliding_window num_experts num_experts_per_tok router_aux_loss_coef",
    .own_keys = "router_jitter_noise output_router_logits",
    .activations = "silu" HF_ACTIVATIONS,
    .names =
        {
            HF_LLAMA_NAMES,
            [PART_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
            [PART_EXPERT_GATE] = "model.layers.%d.block_sparse_moe.experts.%d.w1",
            [PART_EXPERT_UP] = "model.layers.%d.block_sparse_moe.experts.%d.w3",
            [PART_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.experts.%d.w2",
        },
    .pad_row_fixed = true,
    .gguf_arch = "llama",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = mixtral_defaults,
    .from_hf = mixtral_from_hf,
    .to_hf = mixtral_to_hf,
    .can_say = hf_can_say_experts,
};
