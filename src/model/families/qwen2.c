/* Qwen 1.5, 2 and 2.5 (Bai et al. 2023, Yang et al. 2024): Llama with biases in q, k and v. */
#include "model/families/hf.h"

static void qwen2_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->num_key_value_heads = 32;
    mc->intermediate_size = 22016;
    mc->max_position_embeddings = 32768;
    mc->qkv_bias = true;
}

static void qwen2_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write_switched_windows(mc, o);
}

const model_family family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .classifier = "Qwen2ForSequenceClassification",
    .keys = HF_LLAMA_KEYS "sliding_window",
    .own_keys = "use_sliding_window max_window_layers",
    .lists = "sliding_window",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "qwen2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = qwen2_defaults,
    .from_hf = hf_read_switched_windows,
    .to_hf = qwen2_to_hf,
};
