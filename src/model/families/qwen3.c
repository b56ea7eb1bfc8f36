/* Qwen 3, dense (Yang et al. 2025): Llama with a norm of each query and key head, and heads whose
 * width is given. */
#include "model/families/hf.h"

static void qwen3_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->num_key_value_heads = 32;
    mc->head_dim = 128;
    mc->intermediate_size = 22016;
    mc->max_position_embeddings = 32768;
    mc->qk_norm = QK_NORM_HEAD;
}

static void qwen3_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o, "attention_bias");
    hf_write_switched_windows(mc, o);
}

const model_family family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .classifier = "Qwen3ForSequenceClassification",
    .keys = HF_LLAMA_KEYS "attention_bias sliding_window",
    .own_keys = "use_sliding_window max_window_layers",
    .lists = "sliding_window",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES, HF_QK_NORMS},
    .pad_row_fixed = true,
    .gguf_arch = "qwen3",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = qwen3_defaults,
    .from_hf = hf_read_switched_windows,
    .to_hf = qwen3_to_hf,
};
