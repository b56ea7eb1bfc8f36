/* Qwen 1.5 and 2 with experts (Qwen team 2024): Qwen 2, with narrow experts and a part beside them that
 * every token goes through, gated by the token. */
#include "model/families/hf.h"

static void qwen2_moe_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->hidden_size = 2048;
    mc->intermediate_size = 5632;
    mc->num_hidden_layers = 24;
    mc->num_attention_heads = 16;
    mc->num_key_value_heads = 16;
    mc->max_position_embeddings = 32768;
    mc->qkv_bias = true;
    mc->num_experts = 60;
    mc->num_experts_per_tok = 4;
    mc->moe_intermediate_size = 1408;
    mc->shared_expert_intermediate_size = 5632;
    mc->shared_expert_gate = true;
    mc->router_aux_loss_coef = 0.001;
}

static bool is_even_before(int64_t l, int64_t end) {
    return l % 2 == 0 && l < end;
}

/* With use_sliding_window each second layer before max_window_layers has the window, where there is no
 * layer_types. */
static status read_windows(json_t *o, int64_t layers, err *e) {
    const json_t *use;
    int64_t end;
    TRY(hf_take_int(o, "max_window_layers", 28, 0, &end, e));
    TRY(hf_read_switch(o, "use_sliding_window", "", &use, e));
    if (!use || !json_is_true(use)) {
        if (use) hf_drop(o, "sliding_window layer_types");
        return ST_OK;
    }
    if (!json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    if (!json_object_get(o, "layer_types")) hf_set_windows(o, layers, is_even_before, end);
    return ST_OK;
}

static status qwen2_moe_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    hf_drop(o, "output_router_logits");
    TRY(hf_read_expert_steps(o, layers, e));
    return read_windows(o, layers, e);
}

static void qwen2_moe_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o,
             "qkv_bias num_experts num_experts_per_tok moe_intermediate_size "
             "shared_expert_intermediate_size norm_topk_prob router_aux_loss_coef");
    hf_write_expert_steps(mc, o);
    hf_write_switched_windows(mc, o);
}

const model_family family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .keys = HF_LLAMA_KEYS
    "qkv_bias sliding_window num_experts num_experts_per_tok moe_intermediate_size "
    "shared_expert_intermediate_size norm_topk_prob router_aux_loss_coef expert_layers",
    .own_keys = "use_sliding_window max_window_layers decoder_sparse_step mlp_only_layers "
                "output_router_logits",
    .lists = "expert_layers sliding_window",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = qwen2_moe_defaults,
    .from_hf = qwen2_moe_from_hf,
    .to_hf = qwen2_moe_to_hf,
};
