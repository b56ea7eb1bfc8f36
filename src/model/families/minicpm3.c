/* MiniCPM 3 (OpenBMB 2024): MiniCPM with latent attention, whose rotary pairs are halves. */
#include <math.h>
#include <string.h>

#include "model/families/hf.h"

static void minicpm3_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 73448;
    mc->hidden_size = 2560;
    mc->intermediate_size = 6400;
    mc->num_hidden_layers = 62;
    mc->num_attention_heads = 40;
    mc->max_position_embeddings = 32768;
    mc->initializer_range = 0.1;
    mc->norm_eps = 1e-5;
    mc->tie_word_embeddings = true;
    mc->kv_lora_rank = 256;
    mc->q_lora_rank = 768;
    mc->qk_nope_head_dim = 64;
    mc->qk_rope_head_dim = 32;
    mc->scale_emb = 12;
    mc->scale_depth = 1.4;
    mc->dim_model_base = 256;
}

static void minicpm3_derive(model_config *mc) {
    if (mc->v_head_dim == 0) mc->v_head_dim = mc->hidden_size / mc->num_attention_heads;
    if (mc->kv_lora_rank > 0) mc->head_dim = mc->qk_nope_head_dim + mc->qk_rope_head_dim;
}

static status minicpm3_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    (void)file;
    (void)e;
    if (hf_get_int(o, "kv_lora_rank", 1) > 0) json_object_del(o, "head_dim");
    json_object_del(o, "qk_head_dim");
    return ST_OK;
}

static bool minicpm3_can_say(const model_config *mc, const char *option) {
    return strcmp(option, "kv_lora_rank") != 0 || mc->kv_lora_rank > 0;
}

static void minicpm3_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o,
             "attention_bias mlp_bias kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim "
             "scale_emb");
    if (mc->kv_lora_rank > 0) hf_int(o, "head_dim", mc->qk_rope_head_dim);
    json_t *rank = mc->q_lora_rank > 0 ? json_integer(mc->q_lora_rank) : json_null();
    json_object_set_new(o, "q_lora_rank", rank);
    double depth = mc->scale_depth > 0 ? mc->scale_depth : sqrt((double)mc->num_hidden_layers);
    hf_num(o, "scale_depth", depth);
    hf_int(o, "dim_model_base", mc->dim_model_base > 0 ? mc->dim_model_base : mc->hidden_size);
}

const model_family family_minicpm3 = {
    .model_type = "minicpm3",
    .architecture = "MiniCPM3ForCausalLM",
    .keys = HF_LLAMA_KEYS "attention_bias mlp_bias q_lora_rank kv_lora_rank qk_nope_head_dim "
                          "qk_rope_head_dim v_head_dim scale_emb scale_depth dim_model_base",
    .own_keys = "qk_head_dim",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "minicpm3",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = minicpm3_defaults,
    .from_hf = minicpm3_from_hf,
    .derive = minicpm3_derive,
    .can_say = minicpm3_can_say,
    .to_hf = minicpm3_to_hf,
};
