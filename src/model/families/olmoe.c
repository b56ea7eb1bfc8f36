/* OLMoE (Muennighoff et al. 2024): 64 small experts, of which a token goes through 8, with the norms
 * of queries and keys of OLMo 2 before the branches. */
#include "model/families/hf.h"

static void olmoe_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 50304;
    mc->hidden_size = 2048;
    mc->intermediate_size = 2048;
    mc->num_hidden_layers = 16;
    mc->num_attention_heads = 16;
    mc->max_position_embeddings = 4096;
    mc->norm_eps = 1e-5;
    mc->qk_norm = QK_NORM_FULL;
    mc->pad_token_id = 1;
    mc->num_experts = 64;
    mc->num_experts_per_tok = 8;
    mc->router_aux_loss_coef = 0.01;
}

static status olmoe_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    (void)e;
    hf_drop(o, "output_router_logits");
    return ST_OK;
}

static void olmoe_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o,
             "attention_bias num_experts num_experts_per_tok norm_topk_prob "
             "router_aux_loss_coef");
    hf_num_or_null(o, "clip_qkv", mc->clip_qkv);
}

const model_family family_olmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .keys = HF_LLAMA_KEYS "attention_bias clip_qkv num_experts num_experts_per_tok norm_topk_prob "
                          "router_aux_loss_coef",
    .own_keys = "output_router_logits",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES, HF_QK_NORMS},
    .pad_row_fixed = true,
    .gguf_arch = "olmoe",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = olmoe_defaults,
    .from_hf = olmoe_from_hf,
    .to_hf = olmoe_to_hf,
    .can_say = hf_can_say_experts,
};
