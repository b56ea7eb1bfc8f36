/* Qwen v1 (Bai et al. 2023; MINI_LLM): one biased product for q, k and v, the gate named w2, and an
 * intermediate_size of twice the width. Beyond the trained length (seq_length) its rotary base grows in
 * steps (use_dynamic_ntk) and queries are scaled (use_logn_attn). The publishers' code does neither while it
 * trains; here both are as when it writes. */
#include "model/families/hf.h"

static void qwen_defaults(model_config *mc) {
    hf_llama_defaults(mc);
    mc->vocab_size = 151936;
    mc->head_dim = 128;
    mc->max_position_embeddings = 8192;
    mc->qkv_bias = true;
}

static status check_length(const json_t *o, err *e) {
    const json_t *trained = json_object_get(o, "seq_length");
    if (!trained || (json_is_integer(trained) && json_integer_value(trained) > 1)) return ST_OK;
    return hf_bad_value(e, "seq_length", "a whole number above 1");
}

/* What scales beyond seq_length becomes options, if a text can be longer. */
static void take_scaling(json_t *o) {
    int64_t trained = hf_get_int(o, "seq_length", INT64_MAX);
    if (trained >= hf_get_int(o, "max_position_embeddings", 8192)) return;
    if (!json_is_false(json_object_get(o, "use_dynamic_ntk")) &&
        !json_object_get(o, "rope_scaling"))
        json_object_set_new(o, "rope_scaling",
                            json_pack("{s:s,s:I}", "rope_type", "doubling",
                                      "original_max_position_embeddings", (json_int_t)trained));
    if (!json_is_false(json_object_get(o, "use_logn_attn")) &&
        !json_object_get(o, "logn_attn_length"))
        hf_int(o, "logn_attn_length", trained);
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
    TRY(check_length(o, e));
    take_scaling(o);
    hf_drop(o, "no_bias seq_length use_dynamic_ntk use_logn_attn");
    hf_rename(o, "emb_dropout_prob", "embd_pdrop");
    hf_rename(o, "attn_dropout_prob", "attn_pdrop");
    return ST_OK;
}

static int64_t trained_length(const model_config *mc) {
    if (mc->rope.kind == ROPE_DOUBLING) return mc->rope.original_max_position_embeddings;
    return mc->logn_length > 0 ? mc->logn_length : mc->max_position_embeddings;
}

/* One seq_length stands for both. */
static bool qwen_can_say(const model_config *mc, const char *option) {
    if (strcmp(option, "logn_attn_length") != 0) return true;
    return mc->logn_length == 0 || mc->logn_length == trained_length(mc);
}

static void qwen_to_hf(const model_config *mc, json_t *o) {
    hf_write(mc, o, "hidden_size");
    hf_int(o, "intermediate_size", 2 * mc->intermediate_size);
    hf_write(mc, o, "num_hidden_layers num_attention_heads kv_channels max_position_embeddings");
    hf_int(o, "seq_length", trained_length(mc));
    hf_write(mc, o, "layer_norm_epsilon rotary_emb_base rotary_pct");
    hf_bool(o, "no_bias", true);
    bool beyond = trained_length(mc) < mc->max_position_embeddings;
    hf_bool(o, "use_dynamic_ntk", !beyond || mc->rope.kind == ROPE_DOUBLING);
    hf_bool(o, "use_logn_attn", !beyond || mc->logn_length > 0);
    hf_num(o, "emb_dropout_prob", mc->embd_pdrop);
    hf_num(o, "attn_dropout_prob", mc->attn_pdrop);
    hf_write(mc, o, "scale_attn_weights");
}

const model_family family_qwen = {
    .model_type = "qwen",
    .architecture = "QWenLMHeadModel",
    .keys = MODEL_KEYS_OF_ALL
    "head_dim intermediate_size rms_norm_eps rope_theta "
    "partial_rotary_factor embd_pdrop attn_pdrop scale_attn_weights logn_attn_length",
    .own_names = "layer_norm_epsilon rotary_emb_base rotary_pct",
    .own_keys = "no_bias seq_length use_dynamic_ntk use_logn_attn emb_dropout_prob "
                "attn_dropout_prob",
    .inert_keys = "bf16 fp16 fp32 onnx_safe softmax_in_fp32 use_cache_kernel "
                  "use_cache_quantization",
    .no_rope_scaling = true,
    .own_scaling = ROPE_DOUBLING,
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
    .can_say = qwen_can_say,
};
