#include "model/families/hf.h"

#include <stdio.h>

#include "model/config_keys.h"

void hf_num_or_null(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, x > 0 ? json_real(x) : json_null());
}

void hf_llama_sizes(const model_config *mc, json_t *o) {
    hf_int(o, "hidden_size", mc->hidden_size);
    hf_int(o, "intermediate_size", mc->intermediate_size);
    hf_int(o, "num_hidden_layers", mc->num_hidden_layers);
    hf_int(o, "num_attention_heads", mc->num_attention_heads);
    hf_int(o, "num_key_value_heads", mc->num_key_value_heads);
    hf_int(o, "head_dim", mc->head_dim);
    const char *act = key_act_word(mc->act, mc->family->activations);
    hf_word(o, "hidden_act", act ? act : key_act_word(mc->act, NULL));
    hf_int(o, "max_position_embeddings", mc->max_position_embeddings);
    hf_num(o, "rms_norm_eps", mc->norm_eps);
    hf_num(o, "attention_dropout", mc->attn_pdrop);
}

void hf_rope(const model_config *mc, json_t *o) {
    rope_spec s = model_rope(mc, false);
    hf_num(o, "rope_theta", mc->rope_theta);
    json_object_set_new(o, "rope_scaling", rope_json(&s, false));
    json_t *both = rope_json(&s, true);
    if (mc->partial_rotary_factor < 1.0)
        hf_num(both, "partial_rotary_factor", mc->partial_rotary_factor);
    json_object_set_new(o, "rope_parameters", both);
}

void hf_windows(const model_config *mc, json_t *o) {
    json_object_set_new(o, "sliding_window",
                        mc->sliding_window > 0 ? json_integer(mc->sliding_window) : json_null());
    json_t *types = json_array();
    for (int64_t l = 0; l < mc->num_hidden_layers; l++) {
        bool local = (mc->sliding_window_of ? mc->sliding_window_of[l] : mc->sliding_window) > 0;
        json_array_append_new(types, json_string(local ? "sliding_attention" : "full_attention"));
    }
    json_object_set_new(o, "layer_types", types);
}

void hf_rename(json_t *o, const char *from, const char *to) {
    json_t *v = json_object_get(o, from);
    if (!v) return;
    if (!json_object_get(o, to)) json_object_set(o, to, v);
    json_object_del(o, from);
}

int64_t hf_get_int(const json_t *o, const char *key, int64_t fallback) {
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : fallback;
}

void hf_drop(json_t *o, const char *keys) {
    for (int i = 0, len;; i++) {
        const char *key = key_word_at(keys, i, &len);
        if (!len) return;
        char name[64];
        snprintf(name, sizeof name, "%.*s", len, key);
        json_object_del(o, name);
    }
}

static bool from_layer(int64_t l, int64_t first) {
    return l >= first;
}

void hf_read_switched_windows(json_t *o, bool file, int64_t default_layers) {
    const json_t *use = json_object_get(o, "use_sliding_window");
    if (use ? !json_is_true(use) : file)
        hf_drop(o, "sliding_window layer_types");
    else if (use && !json_object_get(o, "layer_types") && json_object_get(o, "sliding_window"))
        hf_set_windows(o, hf_get_int(o, "num_hidden_layers", default_layers), from_layer,
                       hf_get_int(o, "max_window_layers", 28));
    hf_drop(o, "use_sliding_window max_window_layers");
}

void hf_write_switched_windows(const model_config *mc, json_t *o) {
    hf_windows(mc, o);
    hf_bool(o, "use_sliding_window", mc->sliding_window > 0);
    hf_int(o, "max_window_layers", mc->sliding_window > 0 ? 0 : mc->num_hidden_layers);
}

void hf_set_windows(json_t *o, int64_t layers, hf_is_local is_local, int64_t every) {
    int64_t width = hf_get_int(o, "sliding_window", 0);
    if (width <= 0) return;
    json_t *list = json_array();
    for (int64_t l = 0; l < layers; l++)
        json_array_append_new(list, json_integer(is_local(l, every) ? width : 0));
    json_object_set_new(o, "sliding_window", list);
}

status hf_bad_value(err *e, const char *key, const char *wanted) {
    err_set(e, ST_USAGE, "%s must be %s", key, wanted);
    return err_where(e, "model.%s", key);
}
