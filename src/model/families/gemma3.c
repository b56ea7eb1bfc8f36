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

static status gemma3_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    int64_t every = hf_get_int(o, "sliding_window_pattern", 6);
    if (every < 1) return hf_bad_value(e, "sliding_window_pattern", "a positive whole number");
    if (!json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    if (!json_object_get(o, "layer_types")) hf_set_windows(o, layers, is_local, every);
    hf_drop(o, "sliding_window_pattern");
    return ST_OK;
}

/* For readers without layer_types: 0 where the windows follow no such pattern. */
static int64_t window_pattern(const model_config *mc) {
    const int64_t *of = mc->sliding_window_of;
    if (!of) return 0;
    int64_t every = 1;
    while (every < mc->num_hidden_layers && of[every - 1] > 0) every++;
    for (int64_t l = 0; l < mc->num_hidden_layers; l++)
        if ((of[l] > 0) != is_local(l, every)) return 0;
    return every;
}

static void gemma3_to_hf(const model_config *mc, json_t *o) {
    gemma_to_hf(mc, o);
    hf_rope(mc, o);
    double local = mc->rope_local_theta > 0 ? mc->rope_local_theta : mc->rope_theta;
    int64_t every = window_pattern(mc);
    if (every > 0) hf_int(o, "sliding_window_pattern", every);
    hf_num(o, "rope_local_base_freq", local);
    json_t *global = json_incref(json_object_get(o, "rope_parameters"));
    json_object_set_new(o, "rope_parameters",
                        json_pack("{s:o,s:{s:s,s:f}}", "full_attention", global,
                                  "sliding_attention", "rope_type", "default", "rope_theta",
                                  local));
}

/* The same base in all layers can be said, but not that it is scaled in all of them. */
static bool gemma3_can_say(const model_config *mc, const char *option) {
    return strcmp(option, "rope_local_base_freq") != 0 || mc->rope_local_theta > 0 ||
           mc->rope.kind == ROPE_PLAIN;
}

const model_family family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .keys = GEMMA_KEYS "rope_local_base_freq",
    .own_keys = "sliding_window_pattern",
    .inert_keys = "hidden_act _sliding_window_pattern attn_logit_softcapping",
    .lists = "sliding_window",
    .activations = "gelu_pytorch_tanh" HF_ACTIVATIONS,
    .names = {GEMMA_NAMES, HF_QK_NORMS},
    .pad_row_fixed = true,
    .gguf_arch = "gemma3",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = gemma3_defaults,
    .from_hf = gemma3_from_hf,
    .derive = gemma_derive,
    .to_hf = gemma3_to_hf,
    .can_say = gemma3_can_say,
};
