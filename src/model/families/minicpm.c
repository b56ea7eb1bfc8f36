/* MiniCPM (Hu et al. 2024): Llama with the scales of muP: the embedding times scale_emb, each
 * branch times scale_depth / sqrt(L), what the head reads divided by C / dim_model_base. */
#include <math.h>

#include "model/families/hf.h"

static void minicpm_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->tie_word_embeddings = true;
    mc->dim_model_base = 1;
    mc->scale_depth = 1;
}

static void minicpm_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_drop(o, "head_dim");
    hf_rope(mc, o);
    hf_write(mc, o, "attention_bias scale_emb");
    double depth = mc->scale_depth > 0 ? mc->scale_depth : sqrt((double)mc->num_hidden_layers);
    hf_num(o, "scale_depth", depth);
    hf_int(o, "dim_model_base", mc->dim_model_base > 0 ? mc->dim_model_base : mc->hidden_size);
}

const model_family family_minicpm = {
    .model_type = "minicpm",
    .architecture = "MiniCPMForCausalLM",
    .keys = MODEL_KEYS_OF_ALL
    "num_key_value_heads intermediate_size rms_norm_eps rope_theta attn_pdrop "
    "attention_bias scale_emb scale_depth dim_model_base",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "minicpm",
    .loaded_by = BY_VLLM,
    .defaults = minicpm_defaults,
    .to_hf = minicpm_to_hf,
};
