/* OLMo 1 and its 0424 and 0724 releases (Groeneveld et al. 2024): Llama with LayerNorms that learn
 * nothing, and queries, keys and values that may be clipped. */
#include "model/families/hf.h"

static void olmo_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 50304;
    mc->norm = NORM_LAYER;
    mc->norm_weights = NORM_WEIGHTS_NONE;
    mc->norm_eps = 1e-5; /* not in its config.json */
    mc->pad_token_id = 1;
    mc->init = INIT_SCHEME_MITCHELL;
}

static void olmo_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_drop(o, "rms_norm_eps");
    hf_rope_by_type(mc, o);
    hf_write(mc, o, "attention_bias");
    hf_num_or_null(o, "clip_qkv", mc->clip_qkv);
}

const model_family family_olmo = {
    .model_type = "olmo",
    .architecture = "OlmoForCausalLM",
    .classifier = "OlmoForSequenceClassification",
    .keys = MODEL_KEYS_OF_ALL "num_key_value_heads head_dim intermediate_size rope_theta "
                              "attn_pdrop attention_bias clip_qkv",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "olmo",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = olmo_defaults,
    .to_hf = olmo_to_hf,
};
