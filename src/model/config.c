/* JSON to model_config and back. A base object (preset or config.json of `from`) is updated with
 * the user's keys, both with canonical names, then read by one table. */
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "model/family.h"
#include "model/presets.h"

typedef enum key_type { KEY_TYPE_INT, KEY_TYPE_NUM, KEY_TYPE_BOOL } key_type;

typedef struct key_row {
    const char *name, *aliases, *help;
    key_type type;
    size_t offset;
    double lo, hi;
} key_row;

static const key_row keys[] = {
#define KEY_INT(member, name, aliases, lo, hi, help)                                               \
    {name, aliases, help, KEY_TYPE_INT, offsetof(model_config, member), lo, hi},
#define KEY_NUM(member, name, aliases, lo, hi, help)                                               \
    {name, aliases, help, KEY_TYPE_NUM, offsetof(model_config, member), lo, hi},
#define KEY_BOOL(member, name, aliases, help)                                                      \
    {name, aliases, help, KEY_TYPE_BOOL, offsetof(model_config, member), 0, 1},
#include "model/keys.def"
};

/* Keys with a meaning of their own, and keys of published config.json files that do not change the
 * function. */
static const char *const special[] = {"preset",     "from",         "model_type",
                                      "hidden_act", "rope_scaling", "rope_parameters"};
static const char *const harmless[] = {"architectures",
                                       "torch_dtype",
                                       "dtype",
                                       "transformers_version",
                                       "use_cache",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "pretraining_tp",
                                       "auto_map",
                                       "_name_or_path",
                                       "is_llama_config",
                                       "transformers.js_config",
                                       "return_dict",
                                       "output_hidden_states",
                                       "output_attentions",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "task_specific_params",
                                       "gradient_checkpointing",
                                       "reorder_and_upcast_attn",
                                       "chunk_size_feed_forward",
                                       "id2label",
                                       "label2id",
                                       "problem_type",
                                       "_commit_hash",
                                       "_attn_implementation_autoset",
                                       "is_decoder",
                                       "cross_attention_hidden_size"};

static bool in_words(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *s = words; s && *s; s += strcspn(s, " "), s += *s == ' ')
        if (strcspn(s, " ") == n && memcmp(s, word, n) == 0) return true;
    return false;
}

static bool in_list(const char *const *list, int n, const char *word) {
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0) return true;
    return false;
}

static const char *canonical(const char *key) {
    if (strcmp(key, "activation_function") == 0 || strcmp(key, "hidden_activation") == 0)
        return "hidden_act";
    for (int i = 0; i < ARRAY_LEN(keys); i++)
        if (in_words(keys[i].aliases, key)) return keys[i].name;
    return key;
}

static status at_key(err *e, const char *key) {
    err_where(e, "model.%s", key);
    return e ? e->code : ST_USAGE;
}

/* dst gets every key of src under its canonical name; nulls mean "omitted". */
static void merge(json_t *dst, const json_t *src) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)src, key, v) {
        if (json_is_null(v))
            json_object_del(dst, canonical(key));
        else
            json_object_set(dst, canonical(key), v);
    }
}

static status read_object_file(const char *path, json_t **out, err *e) {
    char *text;
    size_t len;
    TRY(file_read_all(path, &text, &len, e));
    json_error_t je;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    free(text);
    if (json_is_object(*out)) return ST_OK;
    json_decref(*out);
    err_set(e, ST_FORMAT, "%s is not a JSON object: %s", path, je.text);
    return err_where(e, "%s:%d", path, je.line);
}

static status base_object(const json_t *obj, json_t **base, const char **from, err *e) {
    const char *preset = json_string_value(json_object_get(obj, "preset"));
    *from = json_string_value(json_object_get(obj, "from"));
    *base = NULL;
    if (preset && *from) {
        err_set(e, ST_USAGE, "model has both preset and from");
        err_hint(e, "keep one of them");
        return at_key(e, "preset");
    }
    if (*from) {
        char path[4096];
        snprintf(path, sizeof path, "%s/config.json", *from);
        return read_object_file(path, base, e);
    }
    if (!preset) {
        *base = json_object();
        return ST_OK;
    }
    const char *text = preset_json(preset);
    if (text) {
        *base = json_loads(text, 0, NULL);
        return ST_OK;
    }
    const char *names[64];
    int n = 0;
    while (n < 64 && preset_name(n)) names[n] = preset_name(n), n++;
    int near = text_nearest(preset, names, n);
    err_set(e, ST_USAGE, "there is no preset '%s'", preset);
    err_hint(e, near >= 0 ? "nearest: %s" : "for example %s", names[near >= 0 ? near : 0]);
    return at_key(e, "preset");
}

static status unknown_key(const model_family *f, const char *key, err *e) {
    const char *names[ARRAY_LEN(keys) + ARRAY_LEN(special)];
    int n = 0;
    for (int i = 0; i < ARRAY_LEN(keys); i++)
        if (in_words(f->keys, keys[i].name)) names[n++] = keys[i].name;
    for (int i = 0; i < ARRAY_LEN(special); i++) names[n++] = special[i];
    int near = text_nearest(key, names, n);
    err_set(e, ST_USAGE, "model_type %s has no key '%s'", f->model_type, key);
    if (near >= 0) err_hint(e, "nearest: model.%s", names[near]);
    return at_key(e, key);
}

static status read_number(const key_row *k, const json_t *v, double *out, err *e) {
    double x = 0;
    bool ok = json_is_number(v);
    if (ok) x = json_number_value(v);
    if (json_is_string(v)) ok = text_parse_number(json_string_value(v), &x);
    bool whole = k->type != KEY_TYPE_INT || x == (double)(int64_t)x;
    if (!ok || !whole) {
        err_set(e, ST_USAGE, "%s must be %s", k->name,
                k->type == KEY_TYPE_INT ? "a whole number" : "a number");
        err_hint(e, k->type == KEY_TYPE_INT ? "write it like 384 or 32k" : "write it like 0.1");
        return at_key(e, k->name);
    }
    if (x < k->lo || x > k->hi) {
        err_set(e, ST_USAGE, "%s is %g, outside %g..%g", k->name, x, k->lo, k->hi);
        err_hint(e, "the nearest possible value is %g", x < k->lo ? k->lo : k->hi);
        return at_key(e, k->name);
    }
    *out = x;
    return ST_OK;
}

static status read_key(const key_row *k, const json_t *v, model_config *mc, err *e) {
    char *member = (char *)mc + k->offset;
    if (k->type == KEY_TYPE_BOOL) {
        if (!json_is_boolean(v)) {
            err_set(e, ST_USAGE, "%s must be true or false", k->name);
            err_hint(e, "write true or false without quotes");
            return at_key(e, k->name);
        }
        *(bool *)member = json_is_true(v);
        return ST_OK;
    }
    double x = 0;
    TRY(read_number(k, v, &x, e));
    if (k->type == KEY_TYPE_INT)
        *(int64_t *)member = (int64_t)x;
    else
        *(double *)member = x;
    return ST_OK;
}

static status read_activation(const json_t *v, const model_family *f, model_config *mc, err *e) {
    static const struct {
        const char *word;
        act_kind act;
    } acts[] = {{"silu", ACT_SILU},          {"swish", ACT_SILU},
                {"gelu_new", ACT_GELU_TANH}, {"gelu_pytorch_tanh", ACT_GELU_TANH},
                {"gelu", ACT_GELU_EXACT},    {"relu", ACT_RELU}};
    const char *word = json_string_value(v);
    for (int i = 0; word && i < ARRAY_LEN(acts); i++) {
        if (strcmp(acts[i].word, word) != 0 || !in_words(f->activations, word)) continue;
        mc->act = acts[i].act;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "model_type %s does not support the activation '%s'", f->model_type,
            word ? word : "(not a string)");
    err_hint(e, "use one of: %s", f->activations);
    return at_key(e, "hidden_act");
}

/* Switches of published configs that change the function, each with the only setting we compute. */
static const struct {
    const char *key;
    bool only;
} fixed[] = {{"scale_attn_weights", true},
             {"scale_attn_by_inverse_layer_idx", false},
             {"add_cross_attention", false},
             {"is_encoder_decoder", false},
             {"rope_interleaved", false}};

/* *known: the key is one of them. */
static status read_fixed(const char *key, const json_t *v, bool *known, err *e) {
    *known = false;
    for (int i = 0; i < ARRAY_LEN(fixed); i++) {
        if (strcmp(fixed[i].key, key) != 0) continue;
        *known = true;
        if (json_is_boolean(v) && json_is_true(v) == fixed[i].only) return ST_OK;
        err_set(e, ST_USAGE, "%s other than %s is not available in this version", key,
                fixed[i].only ? "true" : "false");
        err_hint(e, "the model would compute another function; leave it out only if that is meant");
        return at_key(e, key);
    }
    return ST_OK;
}

static double number_or(const json_t *o, const char *key, double fallback) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : fallback;
}

/* rope_scaling {type|rope_type, factor, ...} of transformers 4, rope_parameters of 5. */
static status read_rope(const json_t *o, const char *key, model_config *mc, err *e) {
    if (!json_is_object(o)) {
        err_set(e, ST_USAGE, "%s must be an object or null", key);
        return at_key(e, key);
    }
    const char *kind = json_string_value(json_object_get(o, "rope_type"));
    if (!kind) kind = json_string_value(json_object_get(o, "type"));
    if (!kind) kind = "default";
    mc->rope_theta = number_or(o, "rope_theta", mc->rope_theta);
    rope_scaling *s = &mc->rope;
    if (strcmp(kind, "default") == 0)
        s->kind = ROPE_PLAIN;
    else if (strcmp(kind, "linear") == 0)
        s->kind = ROPE_LINEAR;
    else if (strcmp(kind, "llama3") == 0)
        s->kind = ROPE_LLAMA3;
    else {
        err_set(e, ST_USAGE, "rope_type '%s' is not available in this version", kind);
        err_hint(e, "use default, linear or llama3");
        return at_key(e, key);
    }
    s->factor = number_or(o, "factor", 0);
    s->low_freq_factor = number_or(o, "low_freq_factor", 1);
    s->high_freq_factor = number_or(o, "high_freq_factor", 4);
    s->original_max_position_embeddings =
        (int64_t)number_or(o, "original_max_position_embeddings", 8192);
    if (s->kind != ROPE_PLAIN && !(s->factor > 0)) {
        err_set(e, ST_USAGE, "rope_type %s needs a positive factor", kind);
        return at_key(e, key);
    }
    return ST_OK;
}

static status read_entry(const char *key, const json_t *v, model_config *mc, err *e) {
    const model_family *f = mc->family;
    if (strcmp(key, "hidden_act") == 0) return read_activation(v, f, mc, e);
    if (f->rotary && (strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0))
        return read_rope(v, key, mc, e);
    if (in_list(special, 3, key) || in_list(harmless, ARRAY_LEN(harmless), key)) return ST_OK;
    bool known;
    TRY(read_fixed(key, v, &known, e));
    if (known) return ST_OK;
    for (int i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(keys[i].name, key) == 0 && in_words(f->keys, key))
            return read_key(&keys[i], v, mc, e);
    return unknown_key(f, key, e);
}

static status find_family(const json_t *all, model_config *mc, err *e) {
    const char *type = json_string_value(json_object_get(all, "model_type"));
    if (!type) type = "llama";
    mc->family = model_family_find(type);
    if (mc->family) return ST_OK;
    const char *names[32];
    int n = 0;
    while (n < 32 && model_family_at(n)) names[n] = model_family_at(n)->model_type, n++;
    int near = text_nearest(type, names, n);
    err_set(e, ST_USAGE, "model_type '%s' is not available in this version", type);
    err_hint(e, "nearest: %s", names[near >= 0 ? near : 0]);
    return at_key(e, "model_type");
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
    return at_key(e, "vocab_size");
}

status model_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                         err *e) {
    json_t *base = NULL, *all = json_object();
    const char *from = NULL;
    status st;
    *out = (model_config){0};
    TRY_GOTO(st, base_object(obj, &base, &from, e), done);
    merge(all, base);
    merge(all, obj);
    TRY_GOTO(st, find_family(all, out, e), done);
    out->family->defaults(out);
    TRY_GOTO(st, resolve_vocab(all, vocab_if_auto, e), done);
    const char *key;
    json_t *v;
    json_object_foreach(all, key, v) TRY_GOTO(st, read_entry(key, v, out, e), done);
    v = json_object_get(all, "rope_theta"); /* the top-level key wins over rope_parameters */
    if (v) TRY_GOTO(st, read_entry("rope_theta", v, out, e), done);
    TRY_GOTO(st, out->family->check(out, e), done);
    out->from = from ? arena_strdup(a, from) : NULL;
done:
    json_decref(base);
    json_decref(all);
    return st;
}

json_t *model_config_json(const model_config *mc, int32_t bos, int32_t eos, dtype dt) {
    json_t *o = json_object();
    json_object_set_new(o, "architectures", json_pack("[s]", mc->family->architecture));
    json_object_set_new(o, "model_type", json_string(mc->family->model_type));
    json_object_set_new(o, "vocab_size", json_integer(mc->vocab_size));
    mc->family->write_config(mc, o);
    json_object_set_new(o, "initializer_range", json_real(mc->initializer_range));
    json_object_set_new(o, "tie_word_embeddings", json_boolean(mc->tie_word_embeddings));
    json_object_set_new(o, "bos_token_id", bos < 0 ? json_null() : json_integer(bos));
    json_object_set_new(o, "eos_token_id", eos < 0 ? json_null() : json_integer(eos));
    const char *torch = dt == DT_BF16 ? "bfloat16" : dt == DT_F16 ? "float16" : "float32";
    json_object_set_new(o, "torch_dtype", json_string(torch));
    json_object_set_new(o, "use_cache", json_true());
    return o;
}

json_t *model_config_schema(void) {
    json_t *props = json_object();
    for (int i = 0; i < ARRAY_LEN(keys); i++) {
        const key_row *k = &keys[i];
        json_t *p = json_pack("{s:s}", "description", k->help);
        if (k->type == KEY_TYPE_BOOL)
            json_object_set_new(p, "type", json_string("boolean"));
        else {
            json_object_set_new(p, "type",
                                json_pack("[s,s,s]", k->type == KEY_TYPE_INT ? "integer" : "number",
                                          "string", "null"));
            json_object_set_new(p, "minimum", json_real(k->lo));
            json_object_set_new(p, "maximum", json_real(k->hi));
        }
        json_object_set_new(props, k->name, p);
    }
    return json_pack("{s:s,s:o}", "type", "object", "properties", props);
}
