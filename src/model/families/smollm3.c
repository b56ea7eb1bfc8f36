/* SmolLM3 (Bakouch et al. 2025): Llama in which every fourth layer has no positions (NoPE, Yang et
 * al. 2025). In its config.json a 1 in no_rope_layers means that the layer has them. */
#include "model/families/hf.h"

static void smollm3_defaults(model_config *mc) {
    mc->vocab_size = 128256;
    mc->hidden_size = 2048;
    mc->num_hidden_layers = 36;
    mc->num_attention_heads = 16;
    mc->num_key_value_heads = 4;
    mc->intermediate_size = 11008;
    mc->max_position_embeddings = 32768;
    mc->norm_eps = 1e-6;
    mc->rope_theta = 2e6;
    mc->tie_word_embeddings = true;
    mc->act = ACT_SILU;
    mc->pad_token_id = 128004;
}

/* Every interval-th layer is without. */
static json_t *no_rope_pattern(int64_t layers, int64_t interval) {
    json_t *list = json_array();
    for (int64_t l = 0; l < layers; l++)
        json_array_append_new(list, json_integer((l + 1) % interval != 0));
    return list;
}

/* A window is only in layers without positions. */
static json_t *nope_windows(const json_t *rope, int64_t width) {
    json_t *list = json_array(), *v;
    size_t i;
    json_array_foreach((json_t *)rope, i, v)
        json_array_append_new(list, json_integer(json_integer_value(v) ? 0 : width));
    return list;
}

static status smollm3_from_hf(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    int64_t interval;
    TRY(hf_take_int(o, "no_rope_layer_interval", 4, 1, &interval, e));
    if (!json_object_get(o, "no_rope_layers"))
        json_object_set_new(o, "no_rope_layers", no_rope_pattern(layers, interval));
    const json_t *use, *rope = json_object_get(o, "no_rope_layers");
    TRY(hf_read_switch(o, "use_sliding_window", "", &use, e));
    int64_t width = hf_get_int(o, "sliding_window", 0);
    if (use && !json_is_true(use))
        hf_drop(o, "sliding_window layer_types");
    else if (use && width > 0 && !json_object_get(o, "layer_types") && json_is_array(rope))
        json_object_set_new(o, "sliding_window", nope_windows(rope, width));
    json_object_del(o, "max_window_layers");
    return ST_OK;
}

static void smollm3_to_hf(const model_config *mc, json_t *o) {
    hf_llama_sizes(mc, o);
    hf_rope(mc, o);
    hf_write(mc, o, "attention_bias mlp_bias");
    hf_windows(mc, o);
    hf_bool(o, "use_sliding_window", mc->sliding_window > 0);
    hf_layers(mc, o, "no_rope_layers", mc->rope_layers, mc->rope_layers_of);
    hf_int(o, "no_rope_layer_interval", 4);
}

const model_family family_smollm3 = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .classifier = "SmolLM3ForSequenceClassification",
    .keys = HF_LLAMA_KEYS "attention_bias mlp_bias no_rope_layers sliding_window",
    .own_keys = "no_rope_layer_interval use_sliding_window max_window_layers",
    .lists = "no_rope_layers sliding_window",
    .activations = "silu" HF_ACTIVATIONS,
    .names = {HF_LLAMA_NAMES},
    .pad_row_fixed = true,
    .gguf_arch = "smollm3",
    .loaded_by = BY_TRANSFORMERS | BY_VLLM,
    .defaults = smollm3_defaults,
    .from_hf = smollm3_from_hf,
    .to_hf = smollm3_to_hf,
};
