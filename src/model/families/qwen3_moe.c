/* Qwen 3 with experts (Yang et al. 2025): Qwen 3, with many narrow experts in every layer, or in each
 * decoder_sparse_step-th, but for those of mlp_only_layers. */
#include "model/families/hf.h"

static void qwen3_moe_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->hidden_size = 2048;
    mc->intermediate_size = 6144;
    mc->num_hidden_layers = 24;
    mc->num_attention_heads = 32;
    mc->num_key_value_heads = 4;
    mc->head_dim = 0;
    mc->max_position_embeddings = 32768;
    mc->qk_norm = QK_NORM_HEAD;
    mc->num_experts = 128;
    mc->num_experts_per_tok = 8;
    mc->moe_intermediate_size = 768;
    mc->router_aux_loss_coef = 0.001;
}

/* With use_sliding_window all layers have the window. */
static status read_window(json_t *o, err *e) {
    const json_t *use;
    TRY(hf_read_switch(o, "use_sliding_window", "", &use, e));
    if (use && !json_is_true(use)) json_object_set_new(o, "sliding_window", json_integer(0));
    if (use && json_is_true(use) && !json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    hf_drop(o, "max_window_layers");
    return ST_OK;
}

static status qwen3_moe_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    TRY(hf_read_expert_steps(o, layers, e));
    hf_drop(o, "output_router_logits");
    (void)file;
    return read_window(o, e);
}

static void qwen3_moe_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o,
             "attention_bias num_experts num_experts_per_tok moe_intermediate_size "
             "norm_topk_prob router_aux_loss_coef");
    hf_write_expert_steps(mc, o);
    hf_bool(o, "use_sliding_window", mc->sliding_window > 0);
    hf_int(o, "sliding_window", mc->sliding_window > 0 ? mc->sliding_window : 4096);
}

const model_family family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .classifier = "Qwen3MoeForSequenceClassification",
    .keys = HF_LLAMA_KEYS "attention_bias sliding_window num_experts num_experts_per_tok "
                          "moe_intermediate_size norm_topk_prob router_aux_loss_coef expert_layers",
    .own_keys = "use_sliding_window max_window_layers decoder_sparse_step mlp_only_layers "
                "output_router_logits",
    .lists = "expert_layers",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES, HF_QK_NORMS},
    .pad_row_fixed = true,
    .gguf_arch = "qwen3moe",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = qwen3_moe_defaults,
    .from_hf = qwen3_moe_from_hf,
    .to_hf = qwen3_moe_to_hf,
};
