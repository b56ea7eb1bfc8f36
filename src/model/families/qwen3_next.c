/* Qwen3-Next (Qwen team 2025): most layers have the gated delta rule in place of attention; attention has partial rotary positions and an output gate, and
 * norms multiply by 1 + w; many narrow experts with a part beside them that every token goes through. */
#include "model/families/hf.h"

static void qwen3_next_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->hidden_size = 2048;
    mc->intermediate_size = 5632;
    mc->num_hidden_layers = 48;
    mc->num_attention_heads = 16;
    mc->num_key_value_heads = 2;
    mc->head_dim = 256;
    mc->max_position_embeddings = 32768;
    mc->partial_rotary_factor = 0.25;
    mc->norm_weights = NORM_WEIGHTS_OFFSET;
    mc->qk_norm = QK_NORM_HEAD;
    mc->attn_output_gate = true;
    mc->num_experts = 512;
    mc->num_experts_per_tok = 10;
    mc->moe_intermediate_size = 512;
    mc->shared_expert_intermediate_size = 512;
    mc->shared_expert_gate = true;
    mc->norm_topk_prob = true;
    mc->router_aux_loss_coef = 0.001;
}

/* Each `every`-th layer has attention, if layer_types does not say it. */
static status qwen3_next_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    int64_t every;
    TRY(hf_take_int(o, "full_attention_interval", 4, 1, &every, e));
    json_t *list = json_array();
    for (int64_t l = 0; l < layers; l++)
        json_array_append_new(list, json_integer((l + 1) % every != 0));
    if (!json_object_get(o, "layer_types") && !json_object_get(o, "linear_layers"))
        json_object_set(o, "linear_layers", list);
    json_decref(list);
    json_object_del(o, "output_router_logits");
    return hf_read_expert_steps(o, layers, e);
}

static void write_layer_types(const model_config *mc, json_t *o) {
    json_t *types = json_array();
    for (int l = 0; l < mc->num_hidden_layers; l++) {
        bool linear = model_layer(mc, l * (int)mc->block_repeat).linear.Hv > 0;
        json_array_append_new(types, json_string(linear ? "linear_attention" : "full_attention"));
    }
    json_object_set_new(o, "layer_types", types);
}

static void qwen3_next_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o,
             "partial_rotary_factor attention_bias linear_conv_kernel_dim linear_key_head_dim "
             "linear_value_head_dim linear_num_key_heads linear_num_value_heads num_experts "
             "num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size "
             "norm_topk_prob router_aux_loss_coef");
    write_layer_types(mc, o);
    hf_write_expert_steps(mc, o);
}

const model_family family_qwen3_next = {
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .gguf_arch = "qwen3next",
    .keys = HF_LLAMA_KEYS
    "partial_rotary_factor attention_bias linear_layers linear_conv_kernel_dim linear_key_head_dim "
    "linear_value_head_dim linear_num_key_heads linear_num_value_heads num_experts "
    "num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob "
    "router_aux_loss_coef expert_layers",
    .own_keys = "full_attention_interval decoder_sparse_step mlp_only_layers output_router_logits",
    .lists = "linear_layers expert_layers",
    .activations = "silu swish", /* transformers' convolution has the same, ours SiLU */
    .names = {HF_LLAMA_NAMES, HF_QK_NORMS},
    .pad_row_fixed = true,
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = qwen3_next_defaults,
    .from_hf = qwen3_next_from_hf,
    .to_hf = qwen3_next_to_hf,
};
