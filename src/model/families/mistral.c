/* Mistral (Jiang et al. 2023): Llama in which every layer may have the same window. */
#include "model/families/hf.h"

static void mistral_defaults(model_config *mc) {
    mc->vocab_size = 32000;
    mc->hidden_size = 4096;
    mc->num_hidden_layers = 32;
    mc->num_attention_heads = 32;
    mc->num_key_value_heads = 8;
    mc->intermediate_size = 14336;
    mc->max_position_embeddings = 131072;
    mc->sliding_window = 4096;
    mc->norm_eps = 1e-6;
    mc->act = ACT_SILU;
}

static void mistral_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_windows(mc, o);
    hf_drop(o, "layer_types"); /* transformers has another class for windows that differ */
}

const model_family family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .keys = HF_LLAMA_KEYS "sliding_window",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "llama",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = mistral_defaults,
    .to_hf = mistral_to_hf,
};
