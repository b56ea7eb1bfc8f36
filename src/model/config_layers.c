/* layer_types: a word for each layer, which becomes the lists of the options that the words stand for. */
#include <string.h>

#include "model/config_file.h"
#include "model/config_keys.h"

/* Words of layer_types, the option that each stands for, and its value in such a layer; 0: the config says it. */
static const struct {
    const char *type, *option;
    int64_t value;
} LAYER_TYPES[] = {{"sliding_attention", "sliding_window", 0},
                   {"chunked_attention", "attention_chunk_size", 0},
                   {"linear_attention", "linear_layers", 1}};
enum { N_LAYER_TYPES = 3 };

/* The type of a layer: an index into LAYER_TYPES, or N_LAYER_TYPES for full_attention. */
static status layer_type(const json_t *v, int *out, err *e) {
    const char *word = json_string_value(v);
    for (*out = 0; word && *out < N_LAYER_TYPES; ++*out)
        if (strcmp(word, LAYER_TYPES[*out].type) == 0) return ST_OK;
    if (word && strcmp(word, "full_attention") == 0) return ST_OK;
    err_set(e, ST_USAGE, "layer_types has '%s'", word ? word : "(not a string)");
    err_hint(e, "use full_attention, sliding_attention, chunked_attention and linear_attention");
    return config_at_key(e, "layer_types");
}

/* An option that layers of its type have becomes a list: its number in these, 0 in others. */
static status spread_type(json_t *all, const json_t *types, int type, const model_family *f,
                          err *e) {
    const char *option = LAYER_TYPES[type].option;
    const json_t *number = json_object_get(all, option);
    int64_t fixed = LAYER_TYPES[type].value;
    /* one word for all layers, or a list, has been chosen over layer_types; a width says nothing of which layers have it */
    if (json_is_array(number) || (fixed && number)) return ST_OK;
    int64_t width = fixed ? fixed : json_integer_value(number);
    /* what a family's config.json has no key for may be an extension, of which layer_types knows nothing */
    bool any = number && key_in_words(f->keys, option);
    json_t *list = json_array(), *v;
    size_t i;
    int one;
    status st = ST_OK;
    json_array_foreach((json_t *)types, i, v) {
        TRY_GOTO(st, layer_type(v, &one, e), done);
        json_array_append_new(list, json_integer(one == type ? width : 0));
        any |= one == type;
        if (one != type || width > 0) continue;
        err_set(e, ST_USAGE, "layer_types has %s, but there is no %s", LAYER_TYPES[type].type,
                option);
        err_hint(e, "give model.%s", option);
        st = config_at_key(e, option);
        goto done;
    }
    if (any) json_object_set(all, option, list);
done:
    json_decref(list);
    return st;
}

status config_resolve_layer_types(json_t *all, int64_t layers, const model_family *f, err *e) {
    json_t *types = json_object_get(all, "layer_types");
    if (!types) return ST_OK;
    if ((int64_t)json_array_size(types) != layers) {
        err_set(e, ST_USAGE, "layer_types lists %ld layers of %ld", (long)json_array_size(types),
                (long)layers);
        err_hint(e, "give one type for each layer");
        return config_at_key(e, "layer_types");
    }
    for (int type = 0; type < N_LAYER_TYPES; type++) TRY(spread_type(all, types, type, f, e));
    return ST_OK;
}
