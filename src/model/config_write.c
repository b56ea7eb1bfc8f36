/* model_config to JSON: a family's config.json, our extensions, the schema. */
#include <string.h>

#include "model/config_file.h"
#include "model/config_keys.h"

static json_t *layers_json(int64_t all, const int64_t *of, int64_t n) {
    if (!of) return json_integer(all);
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_integer(of[i]));
    return list;
}

static json_t *value_json(const key_row *k, const model_config *mc) {
    const char *member = (const char *)mc + k->offset;
    int len;
    switch (k->type) {
        case KEY_TYPE_BOOL: return json_boolean(*(const bool *)member);
        case KEY_TYPE_INT: return json_integer(*(const int64_t *)member);
        case KEY_TYPE_NUM: return json_real(*(const double *)member);
        case KEY_TYPE_LAYERS: {
            const int64_t *const *of =
                (const int64_t *const *)(const void *)((const char *)mc + k->of_offset);
            return layers_json(*(const int64_t *)member, *of, mc->num_hidden_layers);
        }
        default: break;
    }
    const char *word = key_word_at(k->words, *(const int *)member, &len);
    return json_stringn(word, (size_t)len);
}

/* What a reader of the family's config.json computes where it cannot say otherwise: the defaults,
 * and what follows from sizes. */
static model_config usual_config(const model_config *mc) {
    const model_family *f = mc->family;
    model_config u;
    model_config_defaults(&u, f);
    u.hidden_size = mc->hidden_size;
    u.num_hidden_layers = mc->num_hidden_layers;
    u.num_attention_heads = mc->num_attention_heads;
    if (f->derive) f->derive(&u);
    bool listed = mc->num_attention_heads_of != NULL; /* then nothing follows from their number */
    if (u.num_key_value_heads == 0 && !listed) u.num_key_value_heads = u.num_attention_heads;
    if (u.head_dim == 0 && !listed) u.head_dim = u.hidden_size / u.num_attention_heads;
    if (u.intermediate_size == 0) u.intermediate_size = 4 * u.hidden_size;
    if (key_in_words(f->keys, "attention_bias")) u.qkv_bias = mc->attention_bias;
    return u;
}

/* A config.json has one width for all windows. */
static bool widths_differ(const model_config *mc) {
    for (int64_t l = 0; l < mc->num_hidden_layers; l++)
        if (mc->sliding_window_of[l] > 0 && mc->sliding_window_of[l] != mc->sliding_window)
            return true;
    return false;
}

static bool said_by_family(const model_family *f, const key_row *k, const model_config *mc) {
    if (key_in_words("num_labels problem_type", k->name)) return f->classifier != NULL;
    if (!key_in_words(f->keys, k->name)) return false;
    if (f->can_say && !f->can_say(mc, k->name)) return false;
    if (k->type != KEY_TYPE_LAYERS) return true;
    const int64_t *list;
    memcpy(&list, (const char *)mc + k->of_offset, sizeof list);
    bool windows = strcmp(k->name, "sliding_window") == 0;
    return !list || (key_in_words(f->lists, k->name) && !(windows && widths_differ(mc)));
}

json_t *model_config_extensions(const model_config *mc) {
    const model_family *f = mc->family;
    model_config usual = usual_config(mc);
    json_t *o = json_object();
    for (int i = 0; i < model_n_keys; i++) {
        const key_row *k = &model_keys[i];
        if (said_by_family(f, k, mc)) continue;
        json_t *mine = value_json(k, mc), *theirs = value_json(k, &usual);
        if (json_equal(mine, theirs))
            json_decref(mine);
        else
            json_object_set_new(o, k->name, mine);
        json_decref(theirs);
    }
    if (json_object_get(o, "attention_bias")) /* or this would follow from it */
        json_object_set_new(o, "qkv_bias", json_boolean(mc->qkv_bias));
    rope_spec rope = model_rope(mc, false);
    if (f->no_rope_scaling && mc->rope.kind != ROPE_PLAIN && mc->rope.kind != f->own_scaling)
        json_object_set_new(o, "rope_scaling", rope_json(&rope, false));
    return o;
}

const char *model_architecture(const model_config *mc) {
    bool other = mc->num_labels && mc->family->classifier;
    return other ? mc->family->classifier : mc->family->architecture;
}

json_t *model_config_json(const model_config *mc, int32_t bos, int32_t eos, dtype dt) {
    json_t *o = json_object();
    json_object_set_new(o, "architectures", json_pack("[s]", model_architecture(mc)));
    json_object_set_new(o, "model_type", json_string(mc->family->model_type));
    json_object_set_new(o, "vocab_size", json_integer(mc->vocab_size));
    mc->family->to_hf(mc, o);
    json_object_set_new(o, "initializer_range", json_real(mc->initializer_range));
    json_object_set_new(o, "tie_word_embeddings", json_boolean(mc->tie_word_embeddings));
    json_object_set_new(o, "bos_token_id", bos < 0 ? json_null() : json_integer(bos));
    json_object_set_new(o, "eos_token_id", eos < 0 ? json_null() : json_integer(eos));
    bool pad = mc->pad_token_id >= 0 && mc->pad_token_id < mc->vocab_size;
    json_object_set_new(o, "pad_token_id", pad ? json_integer(mc->pad_token_id) : json_null());
    const char *torch = dt == DT_BF16 ? "bfloat16" : dt == DT_F16 ? "float16" : "float32";
    json_object_set_new(o, "torch_dtype", json_string(torch));
    json_object_set_new(o, "use_cache", json_true());
    json_t *more = model_config_extensions(mc);
    if (json_object_size(more) > 0)
        json_object_set_new(o, "athanor", more);
    else
        json_decref(more);
    if (mc->num_labels) config_put_head(mc, o);
    return o;
}

/* ---- schema ---- */

static json_t *number_schema(const key_row *k) {
    bool whole = k->type != KEY_TYPE_NUM;
    json_t *p = json_pack("{s:[s,s,s]}", "type", whole ? "integer" : "number", "string", "null");
    if (k->type == KEY_TYPE_LAYERS)
        json_array_append_new(json_object_get(p, "type"), json_string("array"));
    json_object_set_new(p, "minimum", json_real(k->lo));
    json_object_set_new(p, "maximum", json_real(k->hi));
    return p;
}

static json_t *word_schema(const key_row *k) {
    json_t *list = json_array();
    int len;
    for (int i = 0;; i++) {
        const char *word = key_word_at(k->words, i, &len);
        if (!len) break;
        json_array_append_new(list, json_stringn(word, (size_t)len));
    }
    return json_pack("{s:o}", "enum", list);
}

json_t *model_config_schema(void) {
    json_t *props = json_object();
    for (int i = 0; i < model_n_keys; i++) {
        const key_row *k = &model_keys[i];
        json_t *p = k->type == KEY_TYPE_BOOL   ? json_pack("{s:s}", "type", "boolean")
                    : k->type == KEY_TYPE_WORD ? word_schema(k)
                                               : number_schema(k);
        json_object_set_new(p, "description", json_string(k->help));
        json_object_set_new(props, k->name, p);
    }
    json_object_set_new(props, "labels",
                        json_pack("{s:s,s:s}", "type", "array", "description",
                                  "names of the classes of num_labels"));
    return json_pack("{s:s,s:o}", "type", "object", "properties", props);
}
