/* Gemma 2 (Gemma team 2024): windows in every other layer, scores and logits that are softly
 * capped, norms before and after each branch. */
#include "model/families/gemma.h"

#include <math.h>

#include "model/config_keys.h"

void gemma_defaults(model_config *mc) {
    mc->hidden_size = 2304;
    mc->num_hidden_layers = 26;
    mc->num_attention_heads = 8;
    mc->num_key_value_heads = 4;
    mc->head_dim = 256;
    mc->intermediate_size = 9216;
    mc->sliding_window = 4096;
    mc->norm_weights = NORM_WEIGHTS_OFFSET;
    mc->norm_place = NORM_SANDWICH;
    mc->norm_eps = 1e-6;
    mc->query_pre_attn_scalar = 256;
    mc->tie_word_embeddings = true;
    mc->act = ACT_GELU_TANH;
    mc->scale_emb = 0; /* derived */
    mc->pad_token_id = 0;
}

void gemma_derive(model_config *mc) {
    if (mc->scale_emb == 0) mc->scale_emb = sqrt((double)mc->hidden_size);
}

void gemma_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_drop(o, "hidden_act");
    hf_word(o, "hidden_activation", key_act_word(mc->act, mc->family->activations));
    hf_bool(o, "attention_bias", mc->attention_bias);
    bool given = mc->query_pre_attn_scalar > 0;
    hf_whole(o, "query_pre_attn_scalar", given ? mc->query_pre_attn_scalar : (double)mc->head_dim);
    hf_num_or_null(o, "final_logit_softcapping", mc->final_softcap);
    hf_windows(mc, o);
    if (mc->sliding_window == 0) /* transformers wants a width even where no layer has a window */
        hf_int(o, "sliding_window", mc->max_position_embeddings);
}

static void gemma2_defaults(model_config *mc) {
    gemma_defaults(mc);
    mc->vocab_size = 256000;
    mc->max_position_embeddings = 8192;
    mc->attn_softcap = 50;
    mc->final_softcap = 30;
}

static bool is_even(int64_t l, int64_t every) {
    return l % every == 0;
}

static status gemma2_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    (void)e;
    if (!json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    if (!json_object_get(o, "layer_types")) hf_set_windows(o, layers, is_even, 2);
    return ST_OK;
}

static void gemma2_to_hf(const model_config *mc, json_t *o) {
    gemma_to_hf(mc, o);
    hf_rope(mc, o);
    hf_num_or_null(o, "attn_logit_softcapping", mc->attn_softcap);
}

const model_family family_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .keys = GEMMA_KEYS "attn_logit_softcapping",
    .inert_keys = "hidden_act sliding_window_size", /* hidden_activation and sliding_window count */
    .lists = "sliding_window",
    .activations = "gelu_pytorch_tanh" HF_ACTIVATIONS,
    .names = {GEMMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "gemma2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = gemma2_defaults,
    .from_hf = gemma2_from_hf,
    .derive = gemma_derive,
    .to_hf = gemma2_to_hf,
};
