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

static status at_key(err *e, const char *key) {
    err_where(e, "model.%s", key);
    return e ? e->code : ST_USAGE;
}

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
    return at_key(e, "preset");
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
        return at_key(e, "preset");
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
        return at_key(e, "model_type");
    }
    if (!type) type = "llama";
    *f = model_family_find(type);
    if (*f) return ST_OK;
    err_set(e, ST_USAGE, "model_type '%s' is not available in this version", type);
    hint_families(type, e);
    return at_key(e, "model_type");
}

/* By the name that the file has, before it becomes an option's. */
static void drop_ignored(json_t *o, const json_t *ignored) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)ignored, i, v) {
        if (json_is_string(v)) json_object_del(o, json_string_value(v));
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
    return at_key(e, key);
}

static status check_range(const key_row *k, double x, err *e) {
    if (x >= k->lo && x <= k->hi) return ST_OK;
    err_set(e, ST_USAGE, "%s is %.10g, outside %.10g..%.10g", k->name, x, k->lo, k->hi);
    err_hint(e, "the nearest possible value is %.10g", x < k->lo ? k->lo : k->hi);
    return at_key(e, k->name);
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
        return at_key(e, k->name);
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
        return at_key(e, k->name);
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
    return at_key(e, k->name);
}

static status read_word(const key_row *k, const json_t *v, int *out, err *e) {
    const char *word = json_string_value(v);
    *out = word ? key_word_index(k->words, word) : -1;
    if (*out >= 0) return ST_OK;
    err_set(e, ST_USAGE, "%s cannot be '%s'", k->name, word ? word : "(not a word)");
    err_hint(e, "use one of: %s", k->words);
    return at_key(e, k->name);
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
    return at_key(e, "hidden_act");
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
    return at_key(e, "vocab_size");
}

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
    return at_key(e, "layer_types");
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
        st = at_key(e, option);
        goto done;
    }
    if (any) json_object_set(all, option, list);
done:
    json_decref(list);
    return st;
}

/* "layer_types": ["sliding_attention", "full_attention", ...] with sliding_window, the width of all
 * windows, becomes a list of windows; chunked_attention likewise. */
static status resolve_layer_types(json_t *all, int64_t layers, const model_family *f, err *e) {
    json_t *types = json_object_get(all, "layer_types");
    if (!types) return ST_OK;
    if ((int64_t)json_array_size(types) != layers) {
        err_set(e, ST_USAGE, "layer_types lists %ld layers of %ld", (long)json_array_size(types),
                (long)layers);
        err_hint(e, "give one type for each layer");
        return at_key(e, "layer_types");
    }
    for (int type = 0; type < N_LAYER_TYPES; type++) TRY(spread_type(all, types, type, f, e));
    return ST_OK;
}

/* ---- what depends on several keys ---- */

static status not_multiple(const char *key, int64_t a, const char *of, int64_t b, err *e) {
    err_set(e, ST_USAGE, "%s %ld is not a multiple of %s %ld", key, (long)a, of, (long)b);
    err_hint(e, "choose a divisor of %ld", (long)a);
    return at_key(e, of);
}

/* Options that do not go with latent attention, since keys are never made one by one in generation. */
static status check_latents(const model_config *mc, err *e) {
    const struct {
        const char *key;
        bool set;
        const char *why;
    } others[] = {
        {"qk_norm", mc->qk_norm != QK_NORM_NONE,
         "keys are not made one by one when a model writes"},
        {"clip_qkv", mc->clip_qkv > 0, "keys are not made one by one when a model writes"},
        {"partial_rotary_factor", mc->partial_rotary_factor != 1,
         "qk_rope_head_dim says how much of a key is rotated"},
        {"attn_output_gate", mc->attn_output_gate, "its queries have no gate beside them"},
        {"num_encoder_layers", mc->num_encoder_layers > 0,
         "an encoder's keys are read by another stack"},
        {"position_type", mc->positions == POSITIONS_RELATIVE,
         "its cache has no place for biases by distance"},
    };
    for (int i = 0; i < ARRAY_LEN(others); i++) {
        if (!others[i].set) continue;
        err_set(e, ST_USAGE, "%s does not go with latent attention (kv_lora_rank): %s",
                others[i].key, others[i].why);
        err_hint(e, "leave %s out", others[i].key);
        return at_key(e, others[i].key);
    }
    return ST_OK;
}

/* Widths of latent attention, of which head_dim is the sum. All heads have keys of their own. */
static status derive_latents(model_config *mc, err *e) {
    const char *missing = mc->qk_nope_head_dim == 0   ? "qk_nope_head_dim"
                          : mc->qk_rope_head_dim == 0 ? "qk_rope_head_dim"
                                                      : NULL;
    if (missing) {
        err_set(e, ST_USAGE, "latent attention (kv_lora_rank) needs %s", missing);
        err_hint(e, "published models have qk_nope_head_dim=128 and qk_rope_head_dim=64");
        return at_key(e, missing);
    }
    if (mc->kv_lora_rank + mc->qk_rope_head_dim > OP_MAX_HEAD_DIM) {
        err_set(e, ST_USAGE, "kv_lora_rank %ld and qk_rope_head_dim %ld are together more than %d",
                (long)mc->kv_lora_rank, (long)mc->qk_rope_head_dim, OP_MAX_HEAD_DIM);
        return at_key(e, "kv_lora_rank");
    }
    if (mc->v_head_dim == 0) mc->v_head_dim = mc->qk_nope_head_dim;
    mc->head_dim = mc->qk_nope_head_dim + mc->qk_rope_head_dim;
    mc->num_key_value_heads = mc->num_attention_heads;
    mc->num_key_value_heads_of = mc->num_attention_heads_of;
    return check_latents(mc, e);
}

static status check_heads(model_config *mc, err *e) {
    if (mc->num_key_value_heads == 0) {
        mc->num_key_value_heads = mc->num_attention_heads;
        mc->num_key_value_heads_of = mc->num_attention_heads_of;
    }
    if (mc->kv_lora_rank > 0) TRY(derive_latents(mc, e));
    if (mc->head_dim == 0 && mc->num_attention_heads_of) {
        err_set(e, ST_USAGE, "numbers of heads differ by layer, so head_dim must be given");
        err_hint(e, "for example model.head_dim=64");
        return at_key(e, "head_dim");
    }
    if (mc->head_dim == 0 && mc->hidden_size % mc->num_attention_heads != 0) {
        not_multiple("hidden_size", mc->hidden_size, "num_attention_heads", mc->num_attention_heads,
                     e);
        return err_hint(e, "choose a divisor of %ld, or give head_dim", (long)mc->hidden_size);
    }
    if (mc->head_dim == 0) mc->head_dim = mc->hidden_size / mc->num_attention_heads;
    for (int l = 0; l < mc->num_hidden_layers; l++) {
        attention_layer a = model_layer(mc, l * (int)mc->block_repeat).attn;
        if (a.H % a.K != 0)
            return not_multiple("num_attention_heads", a.H, "num_key_value_heads", a.K, e);
    }
    return ST_OK;
}

static status check_rotary(const model_config *mc, err *e) {
    bool whole = mc->positions == POSITIONS_ROTARY && mc->partial_rotary_factor >= 1 &&
                 mc->kv_lora_rank == 0;
    if (mc->logn_length > 0 && !whole) {
        err_set(e, ST_USAGE, "logn_attn_length is of queries that are rotated as a whole");
        err_hint(e, "use position_type: rotary, partial_rotary_factor: 1 and no kv_lora_rank, or "
                    "leave it out");
        return at_key(e, "logn_attn_length");
    }
    if (mc->logn_length == 1) {
        err_set(e, ST_USAGE, "logn_attn_length is 1, whose logarithm divides nothing");
        err_hint(e, "use the length that the model was trained on");
        return at_key(e, "logn_attn_length");
    }
    if (mc->positions != POSITIONS_ROTARY) return ST_OK;
    rope_spec s = model_rope(mc, false);
    if (mc->kv_lora_rank > 0 && mc->qk_rope_head_dim % 2 != 0) {
        err_set(e, ST_USAGE, "qk_rope_head_dim %ld is odd, rotary positions need pairs",
                (long)mc->qk_rope_head_dim);
        err_hint(e, "use %ld", (long)mc->qk_rope_head_dim + 1);
        return at_key(e, "qk_rope_head_dim");
    }
    if (mc->kv_lora_rank == 0 && mc->partial_rotary_factor >= 1 && mc->head_dim % 2 != 0) {
        err_set(e, ST_USAGE, "head_dim %ld is odd, rotary positions need pairs",
                (long)mc->head_dim);
        err_hint(e, "use %ld", (long)mc->head_dim + 1);
        return at_key(e, "head_dim");
    }
    if (s.rotary_dim < 2) {
        err_set(e, ST_USAGE, "partial_rotary_factor %g leaves no pair of head_dim %ld to rotate",
                mc->partial_rotary_factor, (long)mc->head_dim);
        err_hint(e, "use at least %g", 2.0 / (double)mc->head_dim);
        return at_key(e, "partial_rotary_factor");
    }
    if (mc->rope_local_theta > 0 && mc->rope_local_theta < 1) {
        err_set(e, ST_USAGE, "rope_local_base_freq is %g, and bases begin at 1",
                mc->rope_local_theta);
        err_hint(e, "0 means the base of the other layers");
        return at_key(e, "rope_local_base_freq");
    }
    return rope_check(&s, e);
}

/* RMSNorm has no bias, LayerNorm no (1 + w): what the user said of one decides the other. */
static status check_norm(const json_t *all, model_config *mc, err *e) {
    int misfit = mc->norm == NORM_RMS ? NORM_WEIGHTS_WB : NORM_WEIGHTS_OFFSET;
    if (mc->norm_weights != misfit) return ST_OK;
    if (!json_object_get(all, "norm_weights")) {
        mc->norm_weights = NORM_WEIGHTS_W;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "norm_weights %s does not go with norm_type %s",
            mc->norm == NORM_RMS ? "bias" : "offset", mc->norm == NORM_RMS ? "rms" : "layer");
    err_hint(e, "use norm_weights: weight");
    return at_key(e, "norm_weights");
}

static status check_groups(const model_config *mc, err *e) {
    int64_t groups = mc->router_groups, of_group = groups ? mc->num_experts / groups : 0;
    if (groups <= 1) return ST_OK;
    if (mc->num_experts % groups)
        return not_multiple("num_experts", mc->num_experts, "router_groups", groups, e);
    if (mc->router_group_best > of_group) {
        err_set(e, ST_USAGE, "a group of %ld experts has no %ld best ones", (long)of_group,
                (long)mc->router_group_best);
        err_hint(e, "use at most %ld", (long)of_group);
        return at_key(e, "router_group_best");
    }
    if (mc->router_groups_kept > groups ||
        mc->router_groups_kept * of_group < mc->num_experts_per_tok) {
        err_set(e, ST_USAGE, "%ld of %ld groups have no %ld experts of a token",
                (long)mc->router_groups_kept, (long)groups, (long)mc->num_experts_per_tok);
        int64_t least = (mc->num_experts_per_tok + of_group - 1) / of_group;
        err_hint(e, "use %ld to %ld", (long)least, (long)groups);
        return at_key(e, "router_groups_kept");
    }
    return ST_OK;
}

/* Slots mix all tokens of a text. */
static status check_soft(const model_config *mc, err *e) {
    if (mc->router_bias || mc->router_groups > 1) {
        err_set(e, ST_USAGE, "router soft picks no experts: it has no bias and no groups");
        return at_key(e, mc->router_bias ? "router_bias" : "router_groups");
    }
    if (mc->num_shared_experts > 0 || mc->shared_expert_intermediate_size > 0) {
        err_set(e, ST_USAGE, "beside router soft there are no shared experts");
        err_hint(e, "every expert works on tokens of all texts; leave the key out");
        return at_key(e, mc->num_shared_experts > 0 ? "num_shared_experts"
                                                    : "shared_expert_intermediate_size");
    }
    for (int64_t l = mc->num_encoder_layers; l < mc->num_hidden_layers; l++) {
        if (!model_layer(mc, (int)(l * mc->block_repeat)).mlp.E) continue;
        err_set(e, ST_USAGE,
                "layer %ld is a decoder's, whose tokens would see later ones through router soft",
                (long)l);
        err_hint(e, "soft experts belong into the layers of an encoder (t5): expert_layers with 1 "
                    "for these and 0 for the others");
        return at_key(e, "router");
    }
    return ST_OK;
}

static status check_experts(const model_config *mc, err *e) {
    if (mc->num_experts == 0) return ST_OK;
    if (mc->router != ROUTER_SOFT && mc->num_experts_per_tok > mc->num_experts) {
        err_set(e, ST_USAGE, "a token goes through %ld experts, and there are %ld",
                (long)mc->num_experts_per_tok, (long)mc->num_experts);
        err_hint(e, "use at most %ld", (long)mc->num_experts);
        return at_key(e, "num_experts_per_tok");
    }
    if (mc->mlp_bias) {
        err_set(e, ST_USAGE, "experts have no biases");
        return at_key(e, "mlp_bias");
    }
    if (mc->router == ROUTER_SOFT) return check_soft(mc, e);
    return check_groups(mc, e);
}

static status check_relative(const model_config *mc, err *e) {
    if (mc->positions != POSITIONS_RELATIVE) return ST_OK;
    if (mc->num_attention_heads_of) {
        err_set(e, ST_USAGE,
                "biases by distance are shared by all layers, whose numbers of heads differ");
        err_hint(e, "give all layers as many heads, or another position_type");
        return at_key(e, "position_type");
    }
    int64_t of_side = mc->num_encoder_layers ? mc->relative_buckets / 2 : mc->relative_buckets;
    if (of_side < 2) {
        err_set(e, ST_USAGE, "%ld buckets are too few for distances to both sides",
                (long)mc->relative_buckets);
        err_hint(e, "use at least 4");
        return at_key(e, "relative_attention_num_buckets");
    }
    int64_t most = mc->relative_buckets / 2;
    if (mc->relative_distance > most) return ST_OK;
    err_set(
        e, ST_USAGE,
        "relative_attention_max_distance %ld is below the %ld distances that have a bucket each",
        (long)mc->relative_distance, (long)most);
    err_hint(e, "use at least %ld", (long)most + 1);
    return at_key(e, "relative_attention_max_distance");
}

/* An encoder and a decoder. */
static status check_encoder(const model_config *mc, err *e) {
    if (mc->num_encoder_layers == 0) return ST_OK;
    if (!mc->family->encoder_names[PART_Q]) {
        err_set(e, ST_USAGE, "%s models have no encoder", mc->family->model_type);
        err_hint(e, "model_type: t5 has one, and takes every option");
        return at_key(e, "num_encoder_layers");
    }
    if (mc->num_encoder_layers >= mc->num_hidden_layers) {
        err_set(e, ST_USAGE, "all %ld layers are the encoder's, and none the decoder's",
                (long)mc->num_hidden_layers);
        return at_key(e, "num_encoder_layers");
    }
    if (mc->residual != RESIDUAL_SEQUENTIAL) {
        err_set(e, ST_USAGE,
                "a decoder that looks at an encoder has its branches one after the other");
        err_hint(e, "use residual_type: sequential");
        return at_key(e, "residual_type");
    }
    if (mc->num_nextn_predict_layers > 0) {
        err_set(e, ST_USAGE, "modules that predict further tokens do not go with an encoder");
        err_hint(e, "leave num_nextn_predict_layers out");
        return at_key(e, "num_nextn_predict_layers");
    }
    if (mc->num_experts > 0 && mc->router_aux_loss_coef > 0) {
        err_set(e, ST_USAGE,
                "the loss that keeps the load of experts even does not go with an encoder");
        err_hint(e, "use router_aux_loss_coef: 0");
        return at_key(e, "router_aux_loss_coef");
    }
    bool pad = mc->decoder_start_id < 0;
    int64_t start = pad ? mc->pad_token_id : mc->decoder_start_id;
    if (start >= mc->vocab_size) {
        err_set(e, ST_USAGE, "the decoder begins with the token %lld, ids are below %lld",
                (long long)start, (long long)mc->vocab_size);
        err_hint(e, pad ? "give pad_token_id or decoder_start_id" : "give one of the vocabulary");
        return at_key(e, pad ? "pad_token_id" : "decoder_start_id");
    }
    if (model_has_states(mc)) {
        err_set(e, ST_USAGE, "a model with an encoder has no linear layers");
        err_hint(e, "leave linear_layers out");
        return at_key(e, "linear_layers");
    }
    for (int64_t l = 0; l < mc->num_encoder_layers; l++) {
        attention_layer a = model_layer(mc, (int)(l * mc->block_repeat)).attn;
        if (a.window == 0 && a.chunk == 0) continue;
        err_set(e, ST_USAGE, "layer %ld of the encoder has a %s, which looks back only", (long)l,
                a.window > 0 ? "window" : "chunk");
        err_hint(e, "give %ss by layer, 0 in the encoder", a.window > 0 ? "window" : "chunk");
        return at_key(e, a.window > 0 ? "sliding_window" : "attention_chunk_size");
    }
    return ST_OK;
}

/* Beyond this, bytes of weights, their gradients and moments would not be counted in 64 bits. */
#define PARAMS_MAX 1e15

static status check_size(const model_config *mc, err *e) {
    double C = (double)mc->hidden_size, n = 0;
    for (int l = 0; l < mc->num_hidden_layers; l++) {
        layer_spec k = model_layer(mc, l * (int)mc->block_repeat);
        double heads = 2.0 * (double)((k.attn.H + k.attn.K) * k.attn.D);
        if (k.linear.Hv)
            heads = 3.0 * (double)(k.linear.Hk * k.linear.Dk + k.linear.Hv * k.linear.Dv);
        double F = (double)k.mlp.F * (double)(k.mlp.E ? k.mlp.E : 1) + (double)k.mlp.shared;
        n += C * (heads + 3.0 * F);
    }
    n += C * (2.0 * (double)mc->vocab_size + (double)mc->max_position_embeddings);
    if (n <= PARAMS_MAX) return ST_OK;
    err_set(e, ST_USAGE, "these sizes make about %.1e parameters, more than %.0e", n, PARAMS_MAX);
    err_hint(e, "check hidden_size, intermediate_size, the heads and the number of layers");
    return at_key(e, "hidden_size");
}

static status check_linear(const model_config *mc, err *e) {
    if (!model_has_states(mc)) return ST_OK;
    if (mc->linear_num_value_heads % mc->linear_num_key_heads != 0)
        return not_multiple("linear_num_value_heads", mc->linear_num_value_heads,
                            "linear_num_key_heads", mc->linear_num_key_heads, e);
    return ST_OK;
}

/* A config.json that has a width of experts has no word for "as wide as other parts". */
static void settle_expert_width(model_config *mc) {
    bool said = key_in_words(mc->family->keys, "moe_intermediate_size");
    if (said && mc->num_experts > 0 && mc->moe_intermediate_size == 0 && !mc->intermediate_size_of)
        mc->moe_intermediate_size = mc->intermediate_size;
}

static status finish(const json_t *all, model_config *mc, err *e) {
    TRY(check_norm(all, mc, e));
    if (json_object_get(all, "attention_bias") && !json_object_get(all, "qkv_bias"))
        mc->qkv_bias = mc->attention_bias;
    if (mc->family->derive) mc->family->derive(mc);
    if (mc->intermediate_size == 0) mc->intermediate_size = 4 * mc->hidden_size;
    settle_expert_width(mc);
    TRY(check_heads(mc, e));
    TRY(check_experts(mc, e));
    TRY(check_relative(mc, e));
    TRY(check_encoder(mc, e));
    TRY(check_linear(mc, e));
    TRY(check_size(mc, e));
    return check_rotary(mc, e);
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
    TRY(resolve_layer_types(all, out->num_hidden_layers, f, e));
    TRY(resolve_vocab(all, vocab_if_auto, e));
    const char *key;
    json_object_foreach(all, key, v) TRY(read_entry(a, key, v, out, e));
    return finish(all, out, e);
}

/* A preset or a config.json: what counts of it, then our extensions. */
static status merge_base(json_t *all, const json_t *base, bool strict, err *e) {
    const model_family *f;
    const json_t *more = json_object_get(base, "athanor");
    TRY(find_family(base, strict, &f, e));
    if (more && !json_is_null(more) && !json_is_object(more)) {
        err_set(e, ST_USAGE, "athanor must be an object of options");
        return at_key(e, "athanor");
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
