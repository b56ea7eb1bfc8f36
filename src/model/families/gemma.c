/* Gemma 2 (Gemma team 2024) and Gemma 3, text (2025). Both have norms before and after each branch,
 * and layers with a window among those without. */
#include <math.h>
#include <string.h>

#include "model/families/hf.h"

#define GEMMA_NAMES                                                                                \
    HF_LLAMA_PRODUCTS, [PART_ATTN_NORM] = "model.layers.%d.input_layernorm",                       \
                       [PART_ATTN_OUT_NORM] = "model.layers.%d.post_attention_layernorm",          \
                       [PART_MLP_NORM] = "model.layers.%d.pre_feedforward_layernorm",              \
                       [PART_MLP_OUT_NORM] = "model.layers.%d.post_feedforward_layernorm"
#define GEMMA_KEYS                                                                                 \
    HF_LLAMA_KEYS                                                                                  \
    "attention_bias query_pre_attn_scalar sliding_window final_logit_softcapping "

/* Norms (1 + w) before and after each branch, a gated tanh-GELU, a tied and scaled embedding. */
static void gemma_defaults(model_config *mc) {
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

/* The embedding is multiplied by sqrt(C). */
static void gemma_derive(model_config *mc) {
    if (mc->scale_emb == 0) mc->scale_emb = sqrt((double)mc->hidden_size);
}

static void gemma_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_drop(o, "hidden_act");
    hf_write(mc, o, "hidden_activation attention_bias");
    double scalar = mc->query_pre_attn_scalar; /* transformers takes whole numbers alone */
    hf_int(o, "query_pre_attn_scalar", scalar > 0 ? llround(fmax(scalar, 1)) : mc->head_dim);
    hf_num_or_null(o, "final_logit_softcapping", mc->final_softcap);
    hf_windows(mc, o);
    if (mc->sliding_window == 0) /* transformers wants a width even where no layer has a window */
        hf_int(o, "sliding_window", mc->max_position_embeddings);
}

static bool gemma_can_say(const model_config *mc, const char *option) {
    double scalar = mc->query_pre_attn_scalar;
    return strcmp(option, "query_pre_attn_scalar") != 0 || scalar == floor(scalar);
}

/* ---- Gemma 2: windows in every other layer, scores and logits that are softly capped ---- */

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
    .classifier = "Gemma2ForSequenceClassification",
    .keys = GEMMA_KEYS "attn_logit_softcapping",
    .inert_keys = "hidden_act sliding_window_size", /* hidden_activation and sliding_window count */
    .own_names = "hidden_activation",
    .lists = "sliding_window",
    .activations = "gelu_pytorch_tanh" HF_ACTIVATIONS,
    .names = {GEMMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "gemma2",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM | BY_OLLAMA,
    .defaults = gemma2_defaults,
    .from_hf = gemma2_from_hf,
    .derive = gemma_derive,
    .can_say = gemma_can_say,
    .to_hf = gemma2_to_hf,
};

/* ---- Gemma 3: five layers with a window to one without, each kind with its own rotary base, a
 * norm of each query and key head ---- */

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
    int64_t every;
    TRY(hf_take_int(o, "sliding_window_pattern", 6, 1, &every, e));
    if (!json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    if (!json_object_get(o, "layer_types")) hf_set_windows(o, layers, is_local, every);
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
    if (strcmp(option, "rope_local_base_freq") != 0) return gemma_can_say(mc, option);
    return mc->rope_local_theta > 0 || mc->rope.kind == ROPE_PLAIN;
}

const model_family family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .classifier = "Gemma3TextForSequenceClassification",
    .keys = GEMMA_KEYS "rope_local_base_freq",
    .own_keys = "sliding_window_pattern",
    .inert_keys = "hidden_act _sliding_window_pattern attn_logit_softcapping",
    .own_names = "hidden_activation",
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
