/* Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023, Li et al. 2023): one LayerNorm before attention
 * and feed-forward part, which stand side by side; biases everywhere, also in the head; part of
 * each head rotated. */
#include <string.h>

#include "model/families/hf.h"

static void phi_defaults(model_config *mc) {
    hf_gpt_defaults(mc);
    mc->vocab_size = 51200;
    mc->hidden_size = 2048;
    mc->num_hidden_layers = 24;
    mc->num_attention_heads = 32;
    mc->intermediate_size = 8192;
    mc->max_position_embeddings = 2048;
    mc->partial_rotary_factor = 0.5;
    mc->residual = RESIDUAL_PARALLEL_SHARED;
    mc->head_bias = true;
    mc->act = ACT_GELU_TANH;
}

static status phi_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    return hf_read_word_switch(o, "qk_layernorm", "qk_norm", "head", "none", e);
}

static bool phi_can_say(const model_config *mc, const char *option) {
    return strcmp(option, "qk_norm") != 0 || mc->qk_norm != QK_NORM_FULL;
}

static void phi_to_hf(const model_config *mc, json_t *o) {
    hf_write(mc, o,
             "hidden_size intermediate_size num_hidden_layers num_attention_heads "
             "num_key_value_heads max_position_embeddings layer_norm_eps hidden_act");
    hf_bool(o, "qk_layernorm", mc->qk_norm == QK_NORM_HEAD);
    hf_write(mc, o, "embd_pdrop attention_dropout resid_pdrop");
    hf_rope(mc, o);
    hf_write(mc, o, "partial_rotary_factor");
}

const model_family family_phi = {
    .model_type = "phi",
    .architecture = "PhiForCausalLM",
    .classifier = "PhiForSequenceClassification",
    .keys = MODEL_KEYS_OF_ALL
    "num_key_value_heads intermediate_size rms_norm_eps rope_theta partial_rotary_factor "
    "embd_pdrop attn_pdrop resid_pdrop qk_norm",
    .own_names = "layer_norm_eps",
    .own_keys = "qk_layernorm",
    .activations = "gelu_new" HF_ACTIVATIONS,
    .names =
        {
            [PART_EMBED] = "model.embed_tokens",
            [PART_FINAL_NORM] = "model.final_layernorm",
            [PART_HEAD] = "lm_head",
            [PART_ATTN_NORM] = "model.layers.%d.input_layernorm",
            [PART_Q] = "model.layers.%d.self_attn.q_proj",
            [PART_K] = "model.layers.%d.self_attn.k_proj",
            [PART_V] = "model.layers.%d.self_attn.v_proj",
            [PART_O] = "model.layers.%d.self_attn.dense",
            [PART_Q_NORM] = "model.layers.%d.self_attn.q_layernorm",
            [PART_K_NORM] = "model.layers.%d.self_attn.k_layernorm",
            [PART_UP] = "model.layers.%d.mlp.fc1",
            [PART_DOWN] = "model.layers.%d.mlp.fc2",
        },
    .pad_row_fixed = true,
    .gguf_arch = "phi2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = phi_defaults,
    .from_hf = phi_from_hf,
    .to_hf = phi_to_hf,
    .can_say = phi_can_say,
};
