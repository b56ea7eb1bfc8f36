/* GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023): LayerNorm, attention and
 * feed-forward part side by side with a norm each, a quarter of each head rotated, biases
 * everywhere but in the head. Files hold queries, keys and values of a head together. */
#include <string.h>

#include "model/families/hf.h"

static void neox_defaults(model_config *mc) {
    hf_gpt_defaults(mc);
    mc->vocab_size = 50432;
    mc->hidden_size = 6144;
    mc->num_hidden_layers = 44;
    mc->num_attention_heads = 64;
    mc->intermediate_size = 24576;
    mc->max_position_embeddings = 2048;
    mc->partial_rotary_factor = 0.25;
    mc->residual = RESIDUAL_PARALLEL;
    mc->act = ACT_GELU_EXACT;
    mc->init = INIT_SCHEME_SMALL_WANG;
}

static status neox_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    return hf_read_word_switch(o, "use_parallel_residual", "residual_type", "parallel",
                               "sequential", e);
}

static bool neox_can_say(const model_config *mc, const char *option) {
    return strcmp(option, "residual_type") != 0 || mc->residual != RESIDUAL_PARALLEL_SHARED;
}

static void neox_to_hf(const model_config *mc, json_t *o) {
    hf_write(mc, o,
             "hidden_size intermediate_size num_hidden_layers num_attention_heads "
             "max_position_embeddings layer_norm_eps hidden_act");
    hf_bool(o, "use_parallel_residual", mc->residual == RESIDUAL_PARALLEL);
    hf_write(mc, o, "attention_bias attention_dropout hidden_dropout");
    hf_rope(mc, o);
    hf_write(mc, o, "rotary_emb_base rotary_pct");
}

const model_family family_gpt_neox = {
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .classifier = "GPTNeoXForSequenceClassification",
    .keys = MODEL_KEYS_OF_ALL "intermediate_size rms_norm_eps rope_theta partial_rotary_factor "
                              "attention_bias attn_pdrop resid_pdrop residual_type",
    .own_names = "rotary_emb_base rotary_pct layer_norm_eps",
    .own_keys = "use_parallel_residual",
    .activations = "gelu" HF_ACTIVATIONS,
    .names =
        {
            [PART_EMBED] = "gpt_neox.embed_in",
            [PART_FINAL_NORM] = "gpt_neox.final_layer_norm",
            [PART_HEAD] = "embed_out",
            [PART_ATTN_NORM] = "gpt_neox.layers.%d.input_layernorm",
            [PART_MLP_NORM] = "gpt_neox.layers.%d.post_attention_layernorm",
            [PART_QKV] = "gpt_neox.layers.%d.attention.query_key_value",
            [PART_O] = "gpt_neox.layers.%d.attention.dense",
            [PART_UP] = "gpt_neox.layers.%d.mlp.dense_h_to_4h",
            [PART_DOWN] = "gpt_neox.layers.%d.mlp.dense_4h_to_h",
        },
    .qkv_by_head = true,
    .gguf_arch = "gptneox",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = neox_defaults,
    .from_hf = neox_from_hf,
    .to_hf = neox_to_hf,
    .can_say = neox_can_say,
};
