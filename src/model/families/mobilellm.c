/* MobileLLM (Liu et al. 2024): a deep and thin Llama with a shared embedding; with layer_sharing
 * each stored block runs twice in a row. The published flag tie_word_embeddings says false where
 * share_embedding says true: the latter counts. */
#include "model/families/hf.h"

static void mobilellm_defaults(model_config *mc) {
    mc->vocab_size = 32000;
    mc->hidden_size = 576;
    mc->num_hidden_layers = 30;
    mc->num_attention_heads = 9;
    mc->num_key_value_heads = 3;
    mc->intermediate_size = 1536;
    mc->max_position_embeddings = 2048;
    mc->norm_eps = 1e-5;
    mc->tie_word_embeddings = true;
    mc->act = ACT_SILU;
}

static status mobilellm_from_hf(json_t *o, bool file, err *e) {
    (void)file;
    json_t *shared = json_object_get(o, "share_embedding"),
           *twice = json_object_get(o, "layer_sharing");
    if (shared && !json_is_boolean(shared))
        return hf_bad_value(e, "share_embedding", "true or false");
    if (twice && !json_is_boolean(twice)) return hf_bad_value(e, "layer_sharing", "true or false");
    if (shared) json_object_set(o, "tie_word_embeddings", shared);
    if (twice) json_object_set_new(o, "block_repeat", json_integer(json_is_true(twice) ? 2 : 1));
    hf_drop(o, "share_embedding layer_sharing");
    return ST_OK;
}

static void mobilellm_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_bool(o, "attention_bias", mc->attention_bias);
    hf_bool(o, "mlp_bias", mc->mlp_bias);
    hf_bool(o, "share_embedding", mc->tie_word_embeddings);
    hf_bool(o, "layer_sharing", mc->block_repeat == 2);
}

const model_family family_mobilellm = {
    .model_type = "mobilellm",
    .architecture = "MobileLLMForCausalLM",
    .keys = HF_LLAMA_KEYS "attention_bias mlp_bias block_repeat",
    .own_keys = "share_embedding layer_sharing",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .defaults = mobilellm_defaults,
    .from_hf = mobilellm_from_hf,
    .to_hf = mobilellm_to_hf,
};
