/* OLMo 2 (OLMo team 2024): Llama with norms after the branches, inside the residual, instead of
 * before them, and one norm over all queries and one over all keys. */
#include "model/families/hf.h"

static void olmo2_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 50304;
    mc->norm_place = NORM_POST;
    mc->norm_eps = 1e-5;
    mc->qk_norm = QK_NORM_FULL;
    mc->pad_token_id = 1;
    mc->init = INIT_SCHEME_TRUNCATED;
}

static void olmo2_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope_by_type(mc, o);
    hf_write(mc, o, "attention_bias");
}

const model_family family_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .classifier = "Olmo2ForSequenceClassification",
    .keys = HF_LLAMA_KEYS "attention_bias",
    .activations = "silu" HF_ACTIVATIONS,
    .names =
        {
            HF_LLAMA_PRODUCTS,
            HF_QK_NORMS,
            [PART_ATTN_OUT_NORM] = "model.layers.%d.post_attention_layernorm",
            [PART_MLP_OUT_NORM] = "model.layers.%d.post_feedforward_layernorm",
        },
    .pad_row_fixed = true,
    .gguf_arch = "olmo2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = olmo2_defaults,
    .to_hf = olmo2_to_hf,
};
