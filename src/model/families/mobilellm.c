/* MobileLLM (Liu et al. 2024): a deep and thin Llama with a shared embedding; with layer_sharing
 * each stored block runs twice in a row. The published flag tie_word_embeddings says false where
 * share_embedding says true: the latter counts. */
#include <string.h>

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

static status mobilellm_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    const json_t *shared, *twice;
    TRY(hf_read_switch(o, "share_embedding", "tie_word_embeddings", &shared, e));
    TRY(hf_read_switch(o, "layer_sharing", "block_repeat", &twice, e));
    if (shared) json_object_set(o, "tie_word_embeddings", (json_t *)shared);
    if (twice) json_object_set_new(o, "block_repeat", json_integer(json_is_true(twice) ? 2 : 1));
    return ST_OK;
}

static bool mobilellm_can_say(const model_config *mc, const char *option) {
    return strcmp(option, "block_repeat") != 0 || mc->block_repeat <= 2;
}

static void mobilellm_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o, "attention_bias mlp_bias");
    hf_bool(o, "share_embedding", mc->tie_word_embeddings);
    hf_bool(o, "layer_sharing", mc->block_repeat == 2);
}

const model_family family_mobilellm = {
    .model_type = "mobilellm",
    .architecture = "MobileLLMForCausalLM",
    .keys = HF_LLAMA_KEYS "attention_bias mlp_bias block_repeat",
    .own_keys = "share_embedding layer_sharing",
    .inert_keys = "tie_word_embeddings",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .defaults = mobilellm_defaults,
    .from_hf = mobilellm_from_hf,
    .to_hf = mobilellm_to_hf,
    .can_say = mobilellm_can_say,
};
