#include "model/families/hf.h"

#include <stdio.h>
#include <string.h>

#include "model/config_keys.h"

static json_t *option_value(const model_config *mc, const char *option) {
    if (strcmp(option, "hidden_act") == 0)
        return json_string(key_act_word(mc->act, mc->family->activations));
    const key_row *k = key_find(option);
    CHECK(k, "there is no option %s", option);
    const char *member = (const char *)mc + k->offset;
    if (k->type == KEY_TYPE_BOOL) return json_boolean(*(const bool *)member);
    if (k->type == KEY_TYPE_NUM) return json_real(*(const double *)member);
    return json_integer(*(const int64_t *)member);
}

void hf_write(const model_config *mc, json_t *o, const char *names) {
    char name[64];
    while (key_next_word(&names, name))
        json_object_set_new(o, name, option_value(mc, key_canonical(name)));
}

void hf_layers(const model_config *mc, json_t *o, const char *key, int64_t all, const int64_t *of) {
    json_t *list = json_array();
    for (int64_t l = 0; l < mc->num_hidden_layers; l++)
        json_array_append_new(list, json_integer(of ? of[l] : all));
    json_object_set_new(o, key, list);
}

void hf_num_or_null(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, x > 0 ? json_real(x) : json_null());
}

void hf_llama_defaults(model_config *mc) {
    mc->vocab_size = 32000;
    mc->hidden_size = 4096;
    mc->num_hidden_layers = 32;
    mc->num_attention_heads = 32;
    mc->intermediate_size = 11008;
    mc->max_position_embeddings = 2048;
    mc->norm_eps = 1e-6;
    mc->act = ACT_SILU;
}

void hf_gpt_defaults(model_config *mc) {
    mc->norm = NORM_LAYER;
    mc->norm_weights = NORM_WEIGHTS_WB;
    mc->norm_eps = 1e-5;
    mc->attention_bias = mc->qkv_bias = mc->mlp_bias = true;
    mc->mlp = MLP_PLAIN;
}

void hf_llama_sizes(const model_config *mc, json_t *o) {
    hf_write(mc, o,
             "hidden_size intermediate_size num_hidden_layers num_attention_heads "
             "num_key_value_heads head_dim hidden_act max_position_embeddings rms_norm_eps "
             "attention_dropout");
}

void hf_rope(const model_config *mc, json_t *o) {
    static const char original[] = "original_max_position_embeddings";
    rope_spec s = model_rope(mc, false);
    hf_num(o, "rope_theta", mc->rope_theta);
    json_object_set_new(o, "rope_scaling", rope_json(&s, false));
    if (mc->rope.kind == ROPE_LONGROPE) /* where transformers 4 looks for it */
        json_object_set(o, original, json_object_get(json_object_get(o, "rope_scaling"), original));
    json_t *both = rope_json(&s, true);
    if (key_in_words(mc->family->keys, "partial_rotary_factor"))
        hf_num(both, "partial_rotary_factor", mc->partial_rotary_factor);
    json_object_set_new(o, "rope_parameters", both);
}

void hf_rope_by_type(const model_config *mc, json_t *o) {
    hf_rope(mc, o);
    if (mc->rope.kind == ROPE_LINEAR || mc->rope.kind == ROPE_DYNAMIC)
        hf_rename(json_object_get(o, "rope_scaling"), "rope_type", "type");
}

static int64_t window_of(const model_config *mc, int64_t l) {
    return mc->sliding_window_of ? mc->sliding_window_of[l] : mc->sliding_window;
}

void hf_windows(const model_config *mc, json_t *o) {
    json_object_set_new(o, "sliding_window",
                        mc->sliding_window > 0 ? json_integer(mc->sliding_window) : json_null());
    json_t *types = json_array();
    for (int64_t l = 0; l < mc->num_hidden_layers; l++) {
        const char *type = window_of(mc, l) > 0 ? "sliding_attention" : "full_attention";
        json_array_append_new(types, json_string(type));
    }
    json_object_set_new(o, "layer_types", types);
}

void hf_rename(json_t *o, const char *from, const char *to) {
    json_t *v = json_object_get(o, from);
    if (!v) return;
    if (!json_object_get(o, to)) json_object_set(o, to, v);
    json_object_del(o, from);
}

status hf_read_switch(json_t *o, const char *key, const char *option, const json_t **value,
                      err *e) {
    json_t *v = json_object_get(o, key);
    *value = NULL;
    if (!v) return ST_OK;
    if (!json_is_boolean(v)) return hf_bad_value(e, key, "true or false");
    if (!json_object_get(o, option)) *value = json_is_true(v) ? json_true() : json_false();
    json_object_del(o, key);
    return ST_OK;
}

status hf_read_word_switch(json_t *o, const char *key, const char *option, const char *if_true,
                           const char *if_false, err *e) {
    const json_t *v;
    TRY(hf_read_switch(o, key, option, &v, e));
    if (v) json_object_set_new(o, option, json_string(json_is_true(v) ? if_true : if_false));
    return ST_OK;
}

int64_t hf_get_int(const json_t *o, const char *key, int64_t fallback) {
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : fallback;
}

status hf_take_int(json_t *o, const char *key, int64_t fallback, int64_t least, int64_t *out,
                   err *e) {
    const json_t *v = json_object_get(o, key);
    *out = v ? hf_get_int(o, key, least - 1) : fallback;
    if (v && *out < least) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a whole number from %lld on", (long long)least);
        return hf_bad_value(e, key, wanted);
    }
    json_object_del(o, key);
    return ST_OK;
}

void hf_drop(json_t *o, const char *keys) {
    char name[64];
    while (key_next_word(&keys, name)) json_object_del(o, name);
}

static bool from_layer(int64_t l, int64_t first) {
    return l >= first;
}

status hf_read_switched_windows(json_t *o, int64_t layers, bool file, err *e) {
    (void)file;
    const json_t *use;
    int64_t first;
    TRY(hf_take_int(o, "max_window_layers", 28, 0, &first, e));
    TRY(hf_read_switch(o, "use_sliding_window", "", &use, e));
    if (!use) return ST_OK;
    if (!json_is_true(use)) {
        hf_drop(o, "sliding_window layer_types");
        return ST_OK;
    }
    if (!json_object_get(o, "sliding_window"))
        json_object_set_new(o, "sliding_window", json_integer(4096));
    if (!json_object_get(o, "layer_types")) hf_set_windows(o, layers, from_layer, first);
    return ST_OK;
}

void hf_write_switched_windows(const model_config *mc, json_t *o) {
    hf_windows(mc, o);
    hf_bool(o, "use_sliding_window", mc->sliding_window > 0);
    int64_t first = mc->num_hidden_layers; /* of the windows that reach the last layer */
    while (first > 0 && window_of(mc, first - 1) > 0) first--;
    hf_int(o, "max_window_layers", first);
}

void hf_set_windows(json_t *o, int64_t layers, hf_is_local is_local, int64_t every) {
    int64_t width = hf_get_int(o, "sliding_window", 0);
    if (width <= 0) return;
    json_t *list = json_array();
    for (int64_t l = 0; l < layers; l++)
        json_array_append_new(list, json_integer(is_local(l, every) ? width : 0));
    json_object_set_new(o, "sliding_window", list);
}

bool hf_can_say_experts(const model_config *mc, const char *option) {
    return strcmp(option, "num_experts") != 0 || mc->num_experts > 0;
}

/* Layer l has experts if it is none of mlp_only_layers, and l + 1 a multiple of the step. */
static json_t *layers_with_experts(const json_t *only, int64_t layers, int64_t step) {
    json_t *list = json_array(), *v;
    for (int64_t l = 0; l < layers; l++)
        json_array_append_new(list, json_integer((l + 1) % step == 0));
    size_t i;
    json_array_foreach((json_t *)only, i, v) {
        json_int_t l = json_integer_value(v);
        if (json_is_integer(v) && l >= 0 && l < layers)
            json_array_set_new(list, (size_t)l, json_integer(0));
    }
    return list;
}

status hf_read_expert_steps(json_t *o, int64_t layers, err *e) {
    int64_t step;
    TRY(hf_take_int(o, "decoder_sparse_step", 1, 1, &step, e));
    const json_t *only = json_object_get(o, "mlp_only_layers");
    if (only && !json_is_array(only) && !json_is_null(only))
        return hf_bad_value(e, "mlp_only_layers", "a list of layers");
    if (!json_object_get(o, "expert_layers") && (step > 1 || json_array_size(only) > 0))
        json_object_set_new(o, "expert_layers", layers_with_experts(only, layers, step));
    json_object_del(o, "mlp_only_layers");
    return ST_OK;
}

void hf_write_expert_steps(const model_config *mc, json_t *o) {
    hf_int(o, "decoder_sparse_step", 1);
    json_t *dense = json_array();
    for (int l = 0; l < mc->num_hidden_layers; l++)
        if (model_layer(mc, l * (int)mc->block_repeat).mlp.E == 0)
            json_array_append_new(dense, json_integer(l));
    json_object_set_new(o, "mlp_only_layers", dense);
}

status hf_bad_value(err *e, const char *key, const char *wanted) {
    err_set(e, ST_USAGE, "%s must be %s", key, wanted);
    return err_where(e, "model.%s", key);
}
