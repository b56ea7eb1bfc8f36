/* Gemma 3, text (Gemma team 2025): five layers with a window to one without, each kind with its own
 * rotary base, a norm of each query and key head. */
#include "model/families/gemma.h"

#include <string.h>

static void gemma3_defaults(model_config *mc) {
    gemma_defaults(mc);
    mc->vocab_size = 262208;
    mc->max_position_embeddings = 131072;
    mc->rope_theta = 1e6;
    mc->rope_local_theta = 1e4;
    mc->qk_norm = QK_NORM_HEAD;
}

/* All but every sixth. */
static bool is_local(int64_t l, int64_t every) {
    return (l + 1) % every != 0;
}

/* rope_parameters of transformers 5 have an object for each kind of layer. */
static status split_rope(json_t *o, err *e) {
    json_t *both = json_object_get(o, "rope_parameters");
    json_t *global = json_object_get(both, "full_attention");
    json_t *local = json_object_get(both, "sliding_attention");
    if (!global && !local) return ST_OK;
    const char *kind = json_string_value(json_object_get(local, "rope_type"));
    if (kind && strcmp(kind, "default") != 0)
        return hf_bad_value(e, "rope_parameters.sliding_attention.rope_type", "default");
    json_t *base = json_object_get(local, "rope_theta");
    if (base && !json_object_get(o, "rope_local_base_freq"))
        json_object_set(o, "rope_local_base_freq", base);
    if (global)
        json_object_set(o, "rope_parameters", global);
    else
        hf_drop(o, "rope_parameters");
    return ST_OK;
}

static status gemma3_from_hf(json_t *o, bool file, err *e) {
    (void)file;
    int64_t every = hf_get_int(o, "sliding_window_pattern", 6);
    if (every < 1) return hf_bad_value(e, "sliding_window_pattern", "a positive whole number");
    if (!json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    if (!json_object_get(o, "layer_types"))
        hf_set_windows(o, hf_get_int(o, "num_hidden_layers", 26), is_local, every);
    hf_drop(o, "sliding_window_pattern _sliding_window_pattern");
    return split_rope(o, e);
}

static void gemma3_to_hf(const model_config *mc, json_t *o) {
    gemma_to_hf(mc, o);
    hf_rope(mc, o);
    hf_num(o, "rope_local_base_freq", mc->rope_local_theta);
    json_t *global = json_incref(json_object_get(o, "rope_parameters"));
    json_object_set_new(o, "rope_parameters",
                        json_pack("{s:o,s:{s:s,s:f}}", "full_attention", global,
                                  "sliding_attention", "rope_type", "default", "rope_theta",
                                  mc->rope_local_theta));
}

const model_family family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .keys = GEMMA_KEYS "rope_local_base_freq",
    .own_keys = "sliding_window_pattern _sliding_window_pattern",
    .inert_keys = "cache_implementation attn_logit_softcapping",
    .lists = "sliding_window",
    .activations = "gelu_pytorch_tanh" HF_ACTIVATIONS,
    .names = {GEMMA_NAMES, HF_QK_NORMS},
    .pad_row_fixed = true,
    .gguf_arch = "gemma3",
    .in_transformers = true,
    .in_vllm = true,
    .in_ollama = true,
    .defaults = gemma3_defaults,
    .from_hf = gemma3_from_hf,
    .derive = gemma_derive,
    .to_hf = gemma3_to_hf,
};
