/* Qwen v1 (Bai et al. 2023; MINI_LLM): one biased product for q, k and v, the gate named w2, and an
 * intermediate_size of twice the width. Its dynamic NTK and log-n scaling begin beyond the trained
 * length (seq_length), which is the longest sequence here unless both are switched off. */
#include "model/families/hf.h"

static void qwen_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->head_dim = 128;
    mc->max_position_embeddings = 8192;
    mc->qkv_bias = true;
}

static status qwen_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)layers;
    json_t *no_bias = json_object_get(o, "no_bias"),
           *width = json_object_get(o, "intermediate_size");
    if (no_bias && !json_is_true(no_bias)) return hf_bad_value(e, "no_bias", "true");
    if (file && json_is_integer(width)) {
        if (json_integer_value(width) % 2) return hf_bad_value(e, "intermediate_size", "even");
        json_object_set_new(o, "intermediate_size", json_integer(json_integer_value(width) / 2));
    }
    json_t *trained = json_object_get(o, "seq_length");
    int64_t most = hf_get_int(o, "max_position_embeddings", INT64_MAX);
    bool scales = !json_is_false(json_object_get(o, "use_dynamic_ntk")) ||
                  !json_is_false(json_object_get(o, "use_logn_attn"));
    if (trained && scales && hf_get_int(o, "seq_length", 0) < most)
        json_object_set(o, "max_position_embeddings", trained);
    hf_drop(o, "no_bias seq_length use_dynamic_ntk use_logn_attn");
    hf_rename(o, "emb_dropout_prob", "embd_pdrop");
    hf_rename(o, "attn_dropout_prob", "attn_pdrop");
    return ST_OK;
}

static void qwen_to_hf(const model_config *mc, json_t *o) {
    hf_write(mc, o, "hidden_size");
    hf_int(o, "intermediate_size", 2 * mc->intermediate_size);
    hf_write(mc, o, "num_hidden_layers num_attention_heads kv_channels max_position_embeddings");
    hf_int(o, "seq_length", mc->max_position_embeddings);
    hf_write(mc, o, "layer_norm_epsilon rotary_emb_base rotary_pct");
    hf_bool(o, "no_bias", true);
    hf_bool(o, "use_dynamic_ntk", true);
    hf_bool(o, "use_logn_attn", true);
    hf_num(o, "emb_dropout_prob", mc->embd_pdrop);
    hf_num(o, "attn_dropout_prob", mc->attn_pdrop);
    hf_bool(o, "scale_attn_weights", true);
}

const model_family family_qwen = {
    .model_type = "qwen",
    .architecture = "QWenLMHeadModel",
    .keys = MODEL_KEYS_OF_ALL "head_dim intermediate_size rms_norm_eps rope_theta "
                              "partial_rotary_factor embd_pdrop attn_pdrop",
    .numbers = "layer_norm_epsilon rotary_emb_base rotary_pct",
    .own_keys = "no_bias seq_length use_dynamic_ntk use_logn_attn emb_dropout_prob "
                "attn_dropout_prob",
    .inert_keys = "bf16 fp16 fp32 onnx_safe softmax_in_fp32 use_cache_kernel "
                  "use_cache_quantization",
    .no_rope_scaling = true,
    .activations = "silu swish",
    .names =
        {
            [PART_EMBED] = "transformer.wte",
            [PART_FINAL_NORM] = "transformer.ln_f",
            [PART_HEAD] = "lm_head",
            [PART_ATTN_NORM] = "transformer.h.%d.ln_1",
            [PART_MLP_NORM] = "transformer.h.%d.ln_2",
            [PART_QKV] = "transformer.h.%d.attn.c_attn",
            [PART_O] = "transformer.h.%d.attn.c_proj",
            [PART_GATE] = "transformer.h.%d.mlp.w2",
            [PART_UP] = "transformer.h.%d.mlp.w1",
            [PART_DOWN] = "transformer.h.%d.mlp.c_proj",
        },
    .gguf_arch = "qwen",
    .loaded_by = BY_VLLM,
    .defaults = qwen_defaults,
    .from_hf = qwen_from_hf,
    .to_hf = qwen_to_hf,
};
