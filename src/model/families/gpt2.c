/* GPT-2 (Radford et al. 2019): learned positions, LayerNorm with bias, GELU, biases everywhere,
 * tied head. Files hold the four projection matrices as [in,out] (Conv1D). "bias": false is
 * nanoGPT's switch: no biases in products and norms. */
#include "model/families/hf.h"

static void gpt2_defaults(model_config *mc) {
    hf_gpt_defaults(mc);
    mc->vocab_size = 50257;
    mc->hidden_size = 768;
    mc->num_hidden_layers = 12;
    mc->num_attention_heads = 12;
    mc->max_position_embeddings = 1024;
    mc->positions = POSITIONS_LEARNED;
    mc->act = ACT_GELU_TANH;
    mc->tie_word_embeddings = true;
    mc->init = INIT_SCHEME_GPT2;
}

static status gpt2_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    json_t *bias = json_object_get(o, "bias");
    if (!bias) return ST_OK;
    if (!json_is_boolean(bias)) return hf_bad_value(e, "bias", "true or false");
    static const char *const parts[] = {"attention_bias", "qkv_bias", "mlp_bias"};
    for (int i = 0; i < ARRAY_LEN(parts); i++)
        if (!json_object_get(o, parts[i])) json_object_set(o, parts[i], bias);
    if (!json_object_get(o, "norm_weights"))
        json_object_set_new(o, "norm_weights", json_string(json_is_true(bias) ? "bias" : "weight"));
    json_object_del(o, "bias");
    return ST_OK;
}

static void gpt2_to_hf(const model_config *mc, json_t *o) {
    hf_write(mc, o,
             "n_embd n_layer n_head n_positions n_ctx n_inner activation_function "
             "layer_norm_epsilon embd_pdrop attn_pdrop resid_pdrop scale_attn_weights "
             "scale_attn_by_inverse_layer_idx");
}

const model_family family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .classifier = "GPT2ForSequenceClassification",
    .keys = MODEL_KEYS_OF_ALL "intermediate_size rms_norm_eps embd_pdrop attn_pdrop resid_pdrop "
                              "scale_attn_weights scale_attn_by_inverse_layer_idx",
    .own_names = "layer_norm_epsilon activation_function",
    .own_keys = "bias",
    .inert_keys = "n_ctx", /* beside n_positions, which counts */
    .activations = "gelu_new" HF_ACTIVATIONS,
    .names =
        {
            [PART_EMBED] = "transformer.wte",
            [PART_POSITIONS] = "transformer.wpe",
            [PART_FINAL_NORM] = "transformer.ln_f",
            [PART_HEAD] = "lm_head",
            [PART_ATTN_NORM] = "transformer.h.%d.ln_1",
            [PART_MLP_NORM] = "transformer.h.%d.ln_2",
            [PART_QKV] = "transformer.h.%d.attn.c_attn",
            [PART_O] = "transformer.h.%d.attn.c_proj",
            [PART_UP] = "transformer.h.%d.mlp.c_fc",
            [PART_DOWN] = "transformer.h.%d.mlp.c_proj",
        },
    .transposed = true,
    .gguf_arch = "gpt2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = gpt2_defaults,
    .from_hf = gpt2_from_hf,
    .to_hf = gpt2_to_hf,
};
