/* Mistral (Jiang et al. 2023): Llama in which every layer may have the same window; with layer_types
 * only some (Ministral). */
#include "model/families/hf.h"

static void mistral_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->num_key_value_heads = 8;
    mc->intermediate_size = 14336;
    mc->max_position_embeddings = 131072;
    mc->sliding_window = 4096;
}

static void mistral_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_windows(mc, o);
    if (!mc->sliding_window_of) /* or transformers takes Ministral's class */
        hf_drop(o, "layer_types");
}

const model_family family_mistral = {
    .model_type = "mistral",
    .also_called = "ministral",
    .architecture = "MistralForCausalLM",
    .classifier = "MistralForSequenceClassification",
    .keys = HF_LLAMA_KEYS "sliding_window",
    .lists = "sliding_window",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "llama",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = mistral_defaults,
    .to_hf = mistral_to_hf,
};
