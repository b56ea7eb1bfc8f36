/* Llama (Touvron et al. 2023): pre-norm RMSNorm, rotary positions in halves, grouped-query
 * attention, SwiGLU. Covers Llama 2 and 3.x, TinyLlama, MicroLlama, SmolLM2 and every other
 * checkpoint of model_type "llama"; with rope_interleaved, weights of llama2.c as they lie. */
#include "model/families/hf.h"

static void llama_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o, "attention_bias mlp_bias");
}

const model_family family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .classifier = "LlamaForSequenceClassification",
    .keys = HF_LLAMA_KEYS "attention_bias mlp_bias rope_interleaved",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "llama",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = hf_llama_defaults,
    .to_hf = llama_to_hf,
};
