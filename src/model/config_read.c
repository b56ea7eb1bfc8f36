/* JSON to model_config. A base object (a preset, or the config.json of `from`) is updated with the
 * user's keys, all with canonical names; the family turns its own keys into options; one table
 * reads them.
 *
 * A config.json is read strictly: a key that the family's own readers ignore must not change what
 * is computed here (config_file.h). Our extensions stand in its object "athanor".
 *
 * Reading order: read_config at the end, merge_base, read_all, read_entry. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/config_file.h"
#include "model/config_keys.h"
#include "model/presets.h"

/* ---- gathering ---- */

status config_read_object(const char *path, json_t **out, err *e) {
    TRY(json_read_file(out, path, FILE_PART_MAX_BYTES, e));
    if (json_is_object(*out)) return ST_OK;
    err_at(e, ST_FORMAT, path, "%s is not a JSON object, but another value", path);
    err_hint(e, "the file is damaged or not a model's config.json; fetch it again");
    json_decref(*out);
    *out = NULL;
    return ST_FORMAT;
}

static status read_preset(const char *name, json_t **base, err *e) {
    const char *text = preset_json(name);
    if (text) {
        *base = json_loads(text, 0, NULL);
        CHECK(json_is_object(*base), "preset %s is no JSON object", name);
        return ST_OK;
    }
    const char *near = preset_nearest(name);
    err_set(e, ST_USAGE, "there is no preset '%s'", name);
    err_hint(e, near ? "nearest: %s" : "for example %s", near ? near : preset_name(0));
    return config_at_key(e, "preset");
}

/* The object that the user's keys update; *strict: it is somebody's config.json. */
static status base_object(const json_t *obj, json_t **base, const char **from, bool *strict,
                          err *e) {
    const char *preset = json_string_value(json_object_get(obj, "preset"));
    *from = json_string_value(json_object_get(obj, "from"));
    *strict = *from != NULL;
    if (preset && *from) {
        err_set(e, ST_USAGE, "model has both preset and from");
        err_hint(e, "keep one of them");
        return config_at_key(e, "preset");
    }
    if (preset) return read_preset(preset, base, e);
    if (*from) {
        char path[4096];
        snprintf(path, sizeof path, "%s/config.json", *from);
        return config_read_object(path, base, e);
    }
    *base = json_object();
    return ST_OK;
}

/* A word that is one letter away from a family's is a slip of the pen; any other, as mamba is of llama, is another
 * family, and the hint says which there are. */
static void hint_families(const char *type, err *e) {
    const char *names[64];
    strbuf list = {0};
    int n = 0;
    for (; n < ARRAY_LEN(names) && model_family_at(n); n++) {
        names[n] = model_family_at(n)->model_type;
        strbuf_printf(&list, "%s%s", n ? ", " : "", names[n]);
    }
    int near = text_nearest(type, names, n);
    if (near >= 0 && text_distance(type, names[near]) <= 2)
        err_hint(e, "did you mean %s?", names[near]);
    else
        err_hint(e, "there are %s", strbuf_cstr(&list));
    strbuf_free(&list);
}

/* Without a model_type a user means llama, and a file says nothing. */
static status find_family(const json_t *all, bool file, const model_family **f, err *e) {
    const json_t *said = json_object_get(all, "model_type");
    const char *type = json_string_value(said);
    if (!type && (said || file)) {
        err_set(e, ST_USAGE, said ? "model_type must be a word" : "config.json has no model_type");
        err_hint(e, "give the family, such as \"model_type\": \"llama\"");
        return config_at_key(e, "model_type");
    }
    if (!type) type = "llama";
    *f = model_family_find(type);
    if (*f) return ST_OK;
    err_set(e, ST_USAGE, "model_type '%s' is not available in this version", type);
    hint_families(type, e);
    return config_at_key(e, "model_type");
}

/* A key of o, or with dots one that lies deeper. */
static void drop_key(json_t *o, const char *key) {
    const char *dot = strchr(key, '.');
    if (json_object_del(o, key) == 0 || !dot) return;
    drop_key(json_object_getn(o, key, (size_t)(dot - key)), dot + 1);
}

/* By the name that the file has, before it becomes an option's. */
static void drop_ignored(json_t *o, const json_t *ignored) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)ignored, i, v) {
        if (json_is_string(v)) drop_key(o, json_string_value(v));
    }
}

/* ---- values ---- */

static status unknown_key(const model_family *f, const char *key, err *e) {
    const char *names[128] = {"preset", "from", "hidden_act", "rope_scaling", "rope_parameters"};
    int n = 5;
    for (int i = 0; i < model_n_keys && n < ARRAY_LEN(names); i++) names[n++] = model_keys[i].name;
    int near = text_nearest(key, names, n);
    err_set(e, ST_USAGE, "model_type %s has no key '%s'", f->model_type, key);
    if (near >= 0) err_hint(e, "nearest: model.%s", names[near]);
    return config_at_key(e, key);
}

static status check_range(const key_row *k, double x, err *e) {
    if (x >= k->lo && x <= k->hi) return ST_OK;
    err_set(e, ST_USAGE, "%s is %.10g, outside %.10g..%.10g", k->name, x, k->lo, k->hi);
    err_hint(e, "the nearest possible value is %.10g", x < k->lo ? k->lo : k->hi);
    return config_at_key(e, k->name);
}

static status read_number(const key_row *k, const json_t *v, double *out, err *e) {
    double x = 0;
    bool ok = json_is_number(v);
    if (ok) x = json_number_value(v);
    if (json_is_string(v)) ok = text_parse_number(json_string_value(v), &x);
    bool whole = k->type == KEY_TYPE_NUM || x == floor(x);
    if (!ok || !whole) {
        err_set(e, ST_USAGE, "%s must be %s", k->name,
                k->type == KEY_TYPE_NUM ? "a number" : "a whole number");
        err_hint(e, k->type == KEY_TYPE_NUM ? "write it like 0.1" : "write it like 384 or 32k");
        return config_at_key(e, k->name);
    }
    TRY(check_range(k, x, e));
    *out = x;
    return ST_OK;
}

/* One number for all layers, or a list. */
static status read_layers(arena *a, const key_row *k, const json_t *v, model_config *mc, err *e) {
    int64_t *all = (int64_t *)((char *)mc + k->offset);
    const int64_t **of = (const int64_t **)((char *)mc + k->of_offset);
    double x = 0;
    *of = NULL;
    if (!json_is_array(v)) {
        TRY(read_number(k, v, &x, e));
        *all = (int64_t)x;
        return ST_OK;
    }
    int64_t n = (int64_t)json_array_size(v), most = 0;
    if (n != mc->num_hidden_layers) {
        err_set(e, ST_USAGE, "%s lists %ld values for %ld layers", k->name, (long)n,
                (long)mc->num_hidden_layers);
        err_hint(e, "give one value for each layer, or one number for all");
        return config_at_key(e, k->name);
    }
    int64_t *list = ARENA_ARRAY(a, int64_t, (int)n);
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        TRY(read_number(k, json_array_get(v, (size_t)i), &x, e));
        list[i] = (int64_t)x;
        if (list[i] > most) most = list[i];
        same = same && list[i] == list[0];
    }
    *all = most;
    if (!same) *of = list;
    return ST_OK;
}

static status read_bool(const key_row *k, const json_t *v, bool *out, err *e) {
    *out = json_is_true(v);
    if (json_is_boolean(v)) return ST_OK;
    err_set(e, ST_USAGE, "%s must be true or false", k->name);
    err_hint(e, "write true or false without quotes");
    return config_at_key(e, k->name);
}

static status read_word(const key_row *k, const json_t *v, int *out, err *e) {
    const char *word = json_string_value(v);
    *out = word ? key_word_index(k->words, word) : -1;
    if (*out >= 0) return ST_OK;
    err_set(e, ST_USAGE, "%s cannot be '%s'", k->name, word ? word : "(not a word)");
    err_hint(e, "use one of: %s", k->words);
    return config_at_key(e, k->name);
}

static status read_null(const key_row *k, model_config *mc) {
    char *member = (char *)mc + k->offset;
    if (k->type == KEY_TYPE_NUM)
        *(double *)member = 0;
    else
        *(int64_t *)member =
            member == (char *)&mc->pad_token_id || member == (char *)&mc->decoder_start_id ? -1 : 0;
    return ST_OK;
}

static status read_key(arena *a, const key_row *k, const json_t *v, model_config *mc, err *e) {
    char *member = (char *)mc + k->offset;
    double x = 0;
    if (json_is_null(v)) return read_null(k, mc);
    switch (k->type) {
        case KEY_TYPE_BOOL: return read_bool(k, v, (bool *)member, e);
        case KEY_TYPE_WORD: return read_word(k, v, (int *)member, e);
        case KEY_TYPE_LAYERS: return read_layers(a, k, v, mc, e);
        case KEY_TYPE_INT:
            TRY(read_number(k, v, &x, e));
            *(int64_t *)member = (int64_t)x;
            return ST_OK;
        default: return read_number(k, v, (double *)member, e);
    }
}

/* The word that is written stands in front of all the words in some families. */
static const char *activation_list(const model_family *f) {
    char first[32];
    int len;
    const char *word = key_word_at(f->activations, 0, &len), *rest = word + len;
    snprintf(first, sizeof first, "%.*s", len, word);
    return key_in_words(rest, first) ? rest + 1 : f->activations;
}

static status read_activation(const json_t *v, const model_family *f, model_config *mc, err *e) {
    const char *word = json_string_value(v);
    if (word && key_in_words(f->activations, word) && key_act_find(word, &mc->act)) return ST_OK;
    err_set(e, ST_USAGE, "model_type %s does not support the activation '%s'", f->model_type,
            word ? word : "(not a string)");
    err_hint(e, "use one of: %s", activation_list(f));
    return config_at_key(e, "hidden_act");
}

static status read_entry(arena *a, const char *key, const json_t *v, model_config *mc, err *e) {
    const model_family *f = mc->family;
    if (strcmp(key, "hidden_act") == 0) return read_activation(v, f, mc, e);
    if (strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0)
        return rope_read(a, v, key, &mc->rope, &mc->rope_theta, &mc->partial_rotary_factor, e);
    bool known;
    TRY(config_check_switch(key, v, &known, e));
    if (known || config_key_special(key) || config_key_inert(key)) return ST_OK;
    const key_row *k = key_find(key);
    if (k) return read_key(a, k, v, mc, e);
    return key_in_words(f->inert_keys, key) ? ST_OK : unknown_key(f, key, e);
}

static status resolve_vocab(json_t *all, int64_t vocab_if_auto, err *e) {
    const char *word = json_string_value(json_object_get(all, "vocab_size"));
    if (!word || strcmp(word, "auto") != 0) return ST_OK;
    if (vocab_if_auto > 0) {
        json_object_set_new(all, "vocab_size", json_integer(vocab_if_auto));
        return ST_OK;
    }
    err_set(e, ST_USAGE, "vocab_size is auto, but there is no tokenizer to take it from");
    err_hint(e, "set tokenizer=FILE or model.vocab_size=N");
    return config_at_key(e, "vocab_size");
}

/* A whole number that is written as 4k, "4096" or 4096.0; NULL: v is none, or an integer already. */
static json_t *as_integer(const json_t *v) {
    double x = json_number_value(v);
    bool number = json_is_real(v);
    if (json_is_string(v)) number = text_parse_number(json_string_value(v), &x);
    bool exact = number && x == floor(x) && fabs(x) < 0x1p53;
    return exact ? json_integer((json_int_t)x) : NULL;
}

static void settle_list(json_t *list) {
    size_t i;
    json_t *v, *whole;
    json_array_foreach(list, i, v) if ((whole = as_integer(v))) json_array_set_new(list, i, whole);
}

/* Families look at numbers before the table reads them: they find integers, however these are written. */
static void settle_numbers(json_t *all, const model_family *f) {
    const char *key;
    json_t *v;
    json_object_foreach(all, key, v) {
        const key_row *k = key_find(key);
        bool counts = k ? k->type == KEY_TYPE_INT || k->type == KEY_TYPE_LAYERS
                        : key_in_words(f->own_keys, key);
        if (!counts) continue;
        json_t *settled = json_is_array(v) ? json_copy(v) : as_integer(v);
        if (json_is_array(settled)) settle_list(settled);
        if (settled) json_object_set_new(all, key, settled);
    }
}

static status read_all(arena *a, json_t *all, bool file, int64_t vocab_if_auto, model_config *out,
                       err *e) {
    const model_family *f = out->family;
    model_config_defaults(out, f);
    settle_numbers(all, f);
    json_t *v = json_object_get(all, "num_hidden_layers"); /* lists are made and checked with it */
    if (v) TRY(read_entry(a, "num_hidden_layers", v, out, e));
    if (f->from_hf) TRY(f->from_hf(all, out->num_hidden_layers, file, e));
    v = json_object_get(all, "num_hidden_layers"); /* which the family may have changed */
    if (v) TRY(read_entry(a, "num_hidden_layers", v, out, e));
    TRY(config_resolve_layer_types(all, out->num_hidden_layers, f, e));
    TRY(resolve_vocab(all, vocab_if_auto, e));
    const char *key;
    json_object_foreach(all, key, v) TRY(read_entry(a, key, v, out, e));
    return config_settle(all, out, e);
}

/* A preset or a config.json: what counts of it, then our extensions. */
static status merge_base(json_t *all, const json_t *base, bool strict, err *e) {
    const model_family *f;
    const json_t *more = json_object_get(base, "athanor");
    TRY(find_family(base, strict, &f, e));
    if (more && !json_is_null(more) && !json_is_object(more)) {
        err_set(e, ST_USAGE, "athanor must be an object of options");
        return config_at_key(e, "athanor");
    }
    TRY(config_check_rope(base, f, e));
    config_merge(all, base, f);
    config_drop_switched_off(all, base, f, strict);
    TRY(config_merge_head(all, base, e));
    config_merge(all, more, NULL);
    return ST_OK;
}

/* layer_types without windows: the user has said that there are none. */
static void drop_window_types(json_t *all) {
    json_t *types = json_copy(json_object_get(all, "layer_types")), *v;
    size_t i;
    json_array_foreach(types, i, v) {
        const char *word = json_string_value(v);
        if (word && strcmp(word, "sliding_attention") == 0)
            json_array_set_new(types, i, json_string("full_attention"));
    }
    if (types) json_object_set_new(all, "layer_types", types);
}

/* What the user says by a rule or a width counts, where a base lists its layers one by one. */
static void overrule_lists(json_t *all, const json_t *obj) {
    static const struct {
        const char *rule, *list;
    } rules[] = {
        {"max_window_layers", "layer_types"},       {"sliding_window_pattern", "layer_types"},
        {"full_attention_interval", "layer_types"}, {"no_rope_layer_interval", "no_rope_layers"},
        {"decoder_sparse_step", "expert_layers"},   {"mlp_only_layers", "expert_layers"},
        {"first_k_dense_replace", "expert_layers"}};
    for (int i = 0; i < ARRAY_LEN(rules); i++)
        if (json_object_get(obj, rules[i].rule) && !json_object_get(obj, rules[i].list))
            json_object_del(all, rules[i].list);
    const json_t *width = json_object_get(obj, "sliding_window");
    bool none = json_is_null(width) || (json_is_number(width) && json_number_value(width) == 0);
    if (none && !json_object_get(obj, "layer_types")) drop_window_types(all);
}

/* Models of text and images hold the text model's config inside. */
static void take_text_config(json_t **base) {
    json_t *text = json_object_get(*base, "text_config");
    if (!json_is_object(text)) return;
    text = json_copy(text);
    const char *type = json_string_value(json_object_get(*base, "model_type"));
    if (type && strcmp(type, "gemma3") == 0 && !json_object_get(text, "model_type"))
        json_object_set_new(text, "model_type", json_string("gemma3_text"));
    json_decref(*base);
    *base = text;
}

static status read_config(arena *a, const json_t *obj, bool as_file, int64_t vocab_if_auto,
                          model_config *out, err *e) {
    json_t *base = NULL, *all = json_object();
    const json_t *ignored = as_file ? NULL : json_object_get(obj, "ignore_keys");
    const char *from = NULL;
    bool strict = as_file;
    int64_t vocab = 0, labels = 0;
    status st = ST_OK;
    *out = (model_config){0};
    if (as_file)
        base = json_incref((json_t *)obj);
    else
        TRY_GOTO(st, base_object(obj, &base, &from, &strict, e), done);
    take_text_config(&base);
    drop_ignored(base, ignored);
    TRY_GOTO(st, merge_base(all, base, strict, e), done);
    vocab = json_integer_value(json_object_get(all, "vocab_size"));
    out->from_labels = json_integer_value(json_object_get(all, "num_labels"));
    if (!as_file) {
        overrule_lists(all, obj);
        config_merge(all, obj, NULL);
        TRY_GOTO(st, config_count_labels(all, obj, e), done);
    }
    TRY_GOTO(st, find_family(all, strict, &out->family, e), done);
    if (!as_file) TRY_GOTO(st, config_check_rope(obj, out->family, e), done);
    if (strict) TRY_GOTO(st, config_check_strict(base, out->family, e), done);
    labels = out->from_labels;
    TRY_GOTO(st, read_all(a, all, strict, vocab_if_auto, out, e), done);
    TRY_GOTO(st, config_read_labels(a, all, out, e), done);
    out->from_labels = labels;
    out->from = from ? arena_strdup(a, from) : NULL;
    out->from_vocab = vocab > 0 ? vocab : out->vocab_size;
done:
    json_decref(base);
    json_decref(all);
    return st;
}

/* The family that a `model:` object says, or its base does; llama where neither can be read. */
static const model_family *family_of(const json_t *obj) {
    const model_family *f = NULL;
    json_t *base = NULL;
    const char *from;
    bool strict;
    err unread;
    if (!json_object_get(obj, "model_type") &&
        base_object(obj, &base, &from, &strict, &unread) == ST_OK)
        take_text_config(&base);
    status st = find_family(base ? base : obj, false, &f, &unread);
    json_decref(base);
    return st == ST_OK ? f : model_family_find("llama");
}

json_t *model_config_idle_keys(const json_t *obj) {
    const model_family *f = family_of(obj);
    json_t *idle = json_array(), *v;
    const char *key;
    json_object_foreach((json_t *)obj, key, v) {
        bool here = !key_find(key_canonical(key)) && key_in_words(f->inert_keys, key);
        if (here || config_key_inert(key)) json_array_append_new(idle, json_string(key));
    }
    return idle;
}

status model_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                         err *e) {
    return read_config(a, obj, false, vocab_if_auto, out, e);
}

status model_config_read_file(arena *a, const json_t *obj, model_config *out, err *e) {
    return read_config(a, obj, true, 0, out, e);
}
