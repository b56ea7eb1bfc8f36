/* See config_file.h. Reading order: config_merge, config_check_strict. */
#include "model/config_file.h"

#include <string.h>

#include "model/config_keys.h"

status config_at_key(err *e, const char *key) {
    err_where(e, "model.%s", key);
    return e ? e->code : ST_USAGE;
}

static const char special[] = "preset from model_type hidden_act rope_scaling rope_parameters "
                              "layer_types ignore_keys athanor labels";

/* By what they are for: where it came from, numbers and devices, what a program returns, other
 * heads than a language model's, texts and special tokens, generation. */
static const char inert[] =
    "architectures auto_map _name_or_path _commit_hash transformers_version transformers.js_config "
    "model_name is_llama_config unsloth_version unsloth_fixed finetuning_task prefix "
    "task_specific_params "
    "torch_dtype dtype pretraining_tp gradient_checkpointing chunk_size_feed_forward torchscript "
    "use_bfloat16 use_flash_attn attn_implementation _attn_implementation "
    "_attn_implementation_autoset _attn_implementation_internal _flash_attn_2_enabled "
    "reorder_and_upcast_attn tf_legacy_loss pruned_heads "
    "return_dict output_hidden_states output_attentions output_scores return_dict_in_generate "
    "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj "
    "classifier_dropout id2label label2id "
    "is_decoder cross_attention_hidden_size "
    "tokenizer_class bos_token_id eos_token_id sep_token_id cls_token_id decoder_start_token_id "
    "forced_bos_token_id forced_eos_token_id model_max_length max_sequence_length "
    "use_cache cache_implementation max_length min_length max_new_tokens do_sample early_stopping "
    "num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p "
    "repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "bad_words_ids num_return_sequences remove_invalid_values exponential_decay_length_penalty "
    "suppress_tokens begin_suppress_tokens quantization_config";

/* Switches of published configs that change the function, each with the only setting we compute. */
static const struct {
    const char *key;
    bool only;
} switches[] = {
    {"add_cross_attention", false}, {"use_bidirectional_attention", false}, {"use_mrope", false},
    {"use_sliding_window", false}, /* where it is no key of the family's own */
    {"tie_encoder_decoder", false}, {"is_encoder_decoder", false}};

/* Options of which null means "none", or "derived", rather than "as usual". */
static const char nullable[] =
    "num_key_value_heads head_dim intermediate_size sliding_window clip_qkv q_lora_rank "
    "attn_logit_softcapping final_logit_softcapping pad_token_id scale_depth dim_model_base";

/* Switches that classes of transformers allow to be null, which they take as false. */
static const char false_if_null[] = "norm_topk_prob rope_interleave scale_decoder_outputs";

bool config_key_special(const char *key) {
    return key_in_words(special, key);
}

bool config_key_inert(const char *key) {
    return key_in_words(inert, key);
}

static bool is_rope_object(const char *key) {
    return strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0;
}

/* Beside the rotary objects in some files: theirs, whether they have it or not. */
static const char original[] = "original_max_position_embeddings";

static bool is_null(const json_t *v) {
    return !v || json_is_null(v);
}

/* ---- merging ---- */

/* Options that stand inside rope_parameters, and on top for transformers 4. */
static const char *const hoisted[] = {"rope_theta", "partial_rotary_factor"};

static void hoist(json_t *dst, const json_t *rope) {
    for (int i = 0; i < ARRAY_LEN(hoisted); i++) {
        json_t *v = json_object_get(rope, hoisted[i]);
        if (!is_null(v)) json_object_set(dst, hoisted[i], v);
    }
}

/* An object for each kind of layer: the local base goes on top; returns the other kind's object. */
static const json_t *split_rope(json_t *dst, const json_t *params) {
    const json_t *global = json_object_get(params, "full_attention");
    const json_t *local = json_object_get(params, "sliding_attention");
    if (!json_is_object(global) && !json_is_object(local)) return params;
    json_t *base = json_object_get(local, "rope_theta");
    bool alike = local && global && json_equal(local, global); /* also in scaling */
    if (alike && !is_null(base))
        json_object_set_new(dst, "rope_local_base_freq", json_integer(0));
    else if (!is_null(base))
        json_object_set(dst, "rope_local_base_freq", base);
    return global;
}

static void merge_rope(json_t *dst, const json_t *src) {
    const json_t *scaling = json_object_get(src, "rope_scaling");
    const json_t *params = json_object_get(src, "rope_parameters");
    if (!scaling && !params) return;
    json_object_del(dst, "rope_scaling");
    json_object_del(dst, "rope_parameters");
    params = split_rope(dst, params);
    hoist(dst, params);
    bool old = !is_null(scaling);
    const json_t *one = old ? scaling : params;
    hoist(dst, one);
    if (is_null(one)) return;
    json_t *rest = json_copy((json_t *)one);
    json_t *length = json_object_get(src, original);
    if (!is_null(length)) json_object_set(rest, original, length);
    for (int i = 0; i < ARRAY_LEN(hoisted); i++) json_object_del(rest, hoisted[i]);
    json_object_set_new(dst, old ? "rope_scaling" : "rope_parameters", rest);
}

static bool left_out(const char *key, const model_family *skip) {
    bool inert_here = skip && (key_in_words(skip->inert_keys, key) || strcmp(key, original) == 0);
    return inert_here || is_rope_object(key);
}

static bool is_null_for_false(const char *key, const json_t *v, const model_family *f) {
    bool has = !f || key_in_words(f->keys, key) || key_in_words(f->own_keys, key);
    return has && json_is_null(v) && key_in_words(false_if_null, key);
}

static bool only_removes(const char *key, const json_t *v, const model_family *f) {
    bool means_something =
        key_in_words(nullable, key_canonical(key)) || is_null_for_false(key, v, f);
    return json_is_null(v) && !means_something;
}

void config_merge(json_t *dst, const json_t *src, const model_family *skip) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)src, key, v) {
        if (!left_out(key, skip) && only_removes(key, v, skip))
            json_object_del(dst, key_canonical(key));
    }
    merge_rope(dst, src); /* a null on top does not remove what stands inside */
    json_object_foreach((json_t *)src, key, v) {
        if (left_out(key, skip) || only_removes(key, v, skip)) continue;
        json_object_set(dst, key_canonical(key),
                        is_null_for_false(key, v, skip) ? json_false() : v);
    }
}

void config_drop_switched_off(json_t *all, const json_t *base, const model_family *f, bool strict) {
    if (!key_in_words(f->own_keys, "use_sliding_window")) return;
    const json_t *use = json_object_get(base, "use_sliding_window");
    if (is_null(use) ? !strict : !json_is_false(use)) return;
    json_object_del(all, "use_sliding_window");
    json_object_del(all, "sliding_window");
    json_object_del(all, "layer_types");
}

/* ---- strictness ---- */

/* The number of a switch; -1: the key is none. */
static int find_switch(const char *key) {
    int i = ARRAY_LEN(switches) - 1;
    while (i >= 0 && strcmp(switches[i].key, key) != 0) i--;
    return i;
}

/* What only the user of a config.json says, never its author. */
static bool is_users(const char *key) {
    return key_in_words("preset from ignore_keys labels", key);
}

static bool family_has_key(const model_family *f, const char *key, const json_t *v) {
    const char *name = key_canonical(key);
    bool of_its_own = key_in_words(f->own_keys, "feed_forward_proj") ||
                      key_in_words(f->own_keys, "activation_fn_name"); /* says the activation */
    if (of_its_own && strcmp(name, "hidden_act") == 0) return false;
    if (strcmp(key, "pruned_heads") == 0) return json_object_size(v) == 0;
    return find_switch(key) >= 0 || key_in_words("num_labels problem_type", key) ||
           key_in_words(f->keys, name) || key_in_words(f->own_keys, key) ||
           key_in_words(f->inert_keys, key) || (config_key_special(name) && !is_users(key)) ||
           config_key_inert(key) || strcmp(key, original) == 0;
}

static bool same_value(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static status said_twice(const char *key, const char *also, err *e) {
    err_set(e, ST_USAGE, "config.json says both %s and %s, and they differ", also, key);
    err_hint(e, "keep the one that is meant");
    return err_where(e, "model.%s", key);
}

/* An option under two of its names. `first`: names by option. */
static status check_once(json_t *first, const json_t *base, const char *key, err *e) {
    const char *name = key_canonical(key);
    const char *also = json_string_value(json_object_get(first, name));
    if (!also) json_object_set_new(first, name, json_string(key));
    if (!also || same_value(json_object_get(base, also), json_object_get(base, key))) return ST_OK;
    return said_twice(key, also, e);
}

/* The family's name for an option that goes by several names and is not seen in shapes; NULL:
 * `name` is none. */
static const char *own_name(const model_family *f, const char *name, char buffer[64]) {
    if (!key_in_words("rope_theta partial_rotary_factor rms_norm_eps hidden_act", name))
        return NULL;
    const char *words = f->own_names ? f->own_names : "";
    while (key_next_word(&words, buffer))
        if (strcmp(key_canonical(buffer), name) == 0) return buffer;
    return name;
}

/* An option under a name that only other families' readers know: they would take the default. */
static status check_name(const json_t *base, const char *key, const model_family *f, err *e) {
    char buffer[64];
    const char *name = key_canonical(key), *own = own_name(f, name, buffer);
    if (!own || strcmp(own, key) == 0 || !is_null(json_object_get(base, own))) return ST_OK;
    bool inside = is_null(json_object_get(base, "rope_scaling")) &&
                  !is_null(json_object_get(json_object_get(base, "rope_parameters"), name));
    if (inside) return ST_OK;
    err_set(e, ST_USAGE, "config.json says %s, which %s models call %s", key, f->model_type, own);
    err_hint(e, "rename it, or if it is not meant: model.ignore_keys=[\"%s\"]", key);
    return err_where(e, "model.%s", key);
}

/* `inner` of a rotary object against the same option on top. */
static status check_inner(const json_t *first, const json_t *base, const json_t *rope,
                          const char *inner, const char *option, err *e) {
    const json_t *v = json_object_get(rope, inner);
    const char *also = json_string_value(json_object_get(first, option));
    if (is_null(v) || !also || same_value(v, json_object_get(base, also))) return ST_OK;
    char where[64] = "rope_parameters.";
    strncat(where, inner, sizeof where - strlen(where) - 1);
    return said_twice(where, also, e);
}

/* Where each kind of layer has its own object, no reader looks beside them. */
static status check_rope_kinds(const json_t *params, const model_family *f, err *e) {
    bool kinds =
        json_object_get(params, "full_attention") || json_object_get(params, "sliding_attention");
    bool needed = key_in_words(f->keys, "rope_local_base_freq") && json_object_size(params) > 0;
    if (!needed || kinds) return ST_OK;
    err_at(e, ST_USAGE, "model.rope_parameters",
           "rope_parameters of %s models has an object for each kind of layer", f->model_type);
    return err_hint(e, "put these keys into full_attention and sliding_attention");
}

static const char *rope_word(const json_t *rope) {
    const char *word = json_string_value(json_object_get(rope, "rope_type"));
    if (!word) word = json_string_value(json_object_get(rope, "type"));
    return word && strcmp(word, "su") == 0 ? "longrope" : word ? word : "default";
}

/* Whether b says all that a says of its kind: bases and shares are compared elsewhere, and the
 * original length need not be said twice. */
static bool says_all_of(const json_t *b, const json_t *a) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a, key, v) {
        const json_t *other = json_object_get(b, key);
        if (is_null(v) || key_in_words("rope_type type rope_theta partial_rotary_factor", key))
            continue;
        if (is_null(other) ? strcmp(key, original) != 0 : !same_value(v, other)) return false;
    }
    return true;
}

/* Beside rope_scaling nobody reads rope_parameters: a base that stands there alone would not count. */
static status check_alone(const json_t *base, const json_t *scaling, const json_t *params,
                          const model_family *f, err *e) {
    char buffer[64];
    for (int i = 0; i < ARRAY_LEN(hoisted); i++) {
        const char *name = hoisted[i], *own = own_name(f, name, buffer);
        bool elsewhere =
            !is_null(json_object_get(base, own)) || !is_null(json_object_get(scaling, name));
        if (elsewhere || is_null(json_object_get(params, name))) continue;
        err_set(e, ST_USAGE,
                "config.json says %s in rope_parameters, which is not read beside rope_scaling",
                name);
        err_hint(e, "say %s on top, too, or leave one of both objects out", own);
        return err_where(e, "model.rope_parameters.%s", name);
    }
    return ST_OK;
}

/* rope_scaling and rope_parameters, where a file has both. */
static status check_rope_objects(const json_t *base, const model_family *f, err *e) {
    const json_t *scaling = json_object_get(base, "rope_scaling");
    const json_t *params = json_object_get(base, "rope_parameters");
    const json_t *global = json_object_get(params, "full_attention");
    if (json_is_object(global)) params = global;
    if (json_object_size(scaling) == 0 || !json_is_object(params)) return ST_OK;
    bool kind_said = json_object_get(params, "rope_type") || json_object_get(params, "type");
    bool alike = strcmp(rope_word(scaling), rope_word(params)) == 0 &&
                 says_all_of(scaling, params) && says_all_of(params, scaling);
    if (kind_said && !alike) return said_twice("rope_parameters", "rope_scaling", e);
    return params == global ? ST_OK : check_alone(base, scaling, params, f, e);
}

/* transformers 4 reads the keys on top, 5 those inside: they must not differ. Where a family turns
 * whole heads, it turns them whatever the object says. */
static status check_rope_keys(const json_t *first, const json_t *base, const model_family *f,
                              err *e) {
    const json_t *params = json_object_get(base, "rope_parameters");
    TRY(check_rope_kinds(params, f, e));
    const json_t *objects[] = {params, json_object_get(params, "full_attention"),
                               json_object_get(base, "rope_scaling")};
    for (int i = 0; i < ARRAY_LEN(objects); i++) {
        for (int k = 0; k < ARRAY_LEN(hoisted); k++)
            TRY(check_inner(first, base, objects[i], hoisted[k], hoisted[k], e));
        TRY(check_inner(first, base, objects[i], original, original, e));
        const json_t *share = json_object_get(objects[i], "partial_rotary_factor");
        if (is_null(share) || json_number_value(share) == 1.0 ||
            key_in_words(f->keys, "partial_rotary_factor"))
            continue;
        return err_at(e, ST_USAGE, "model.rope_parameters.partial_rotary_factor",
                      "rope_parameters has a partial_rotary_factor, which %s models of "
                      "other tools do not have",
                      f->model_type);
    }
    TRY(check_inner(first, base, json_object_get(params, "sliding_attention"), "rope_theta",
                    "rope_local_base_freq", e));
    return check_rope_objects(base, f, e);
}

/* Windows that are listed and switched off: some readers obey the one, some the other, some stop.
 */
static status check_switched_windows(const json_t *base, const model_family *f, err *e) {
    if (!key_in_words(f->own_keys, "use_sliding_window")) return ST_OK;
    if (json_is_true(json_object_get(base, "use_sliding_window"))) return ST_OK;
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(base, "layer_types"), i, v) {
        const char *type = json_string_value(v);
        if (!type || strcmp(type, "sliding_attention") != 0) continue;
        err_at(e, ST_USAGE, "model.use_sliding_window",
               "layer_types has windows, but use_sliding_window is not true");
        return err_hint(e, "make all full_attention, or use_sliding_window true");
    }
    return ST_OK;
}

/* layer_types of a class that has one window for all layers and looks at no list. */
static status check_unread_types(const json_t *base, const model_family *f, err *e) {
    if (!key_in_words(f->keys, "sliding_window") || key_in_words(f->lists, "sliding_window"))
        return ST_OK;
    bool on = !is_null(json_object_get(base, "sliding_window"));
    if (key_in_words(f->own_keys, "use_sliding_window"))
        on = json_is_true(json_object_get(base, "use_sliding_window"));
    const char *all = on ? "sliding_attention" : "full_attention";
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(base, "layer_types"), i, v) {
        const char *type = json_string_value(v);
        if (type && strcmp(type, all) == 0) continue;
        err_at(
            e, ST_USAGE, "model.layer_types",
            "layer_types is not %s in all layers, and %s models of other tools do not look at it",
            all, f->model_type);
        return err_hint(e, "if it changes nothing, name it: model.ignore_keys=[\"layer_types\"]");
    }
    return ST_OK;
}

static bool is_word(const json_t *o, const char *key, const char *word) {
    const char *said = json_string_value(json_object_get(o, key));
    return said && strcmp(said, word) == 0;
}

/* compressed-tensors: groups of layers, each with numbers of its own. */
static bool groups_are_fp8(const json_t *groups) {
    const char *name;
    json_t *group;
    json_object_foreach((json_t *)groups, name, group) {
        const json_t *w = json_object_get(group, "weights");
        if (!is_word(w, "type", "float") || json_integer_value(json_object_get(w, "num_bits")) != 8)
            return false;
    }
    return json_object_size(groups) > 0;
}

bool config_is_fp8(const json_t *q) {
    const char *fmt = json_string_value(json_object_get(q, "fmt"));
    if (is_word(q, "quant_method", "fp8")) return !fmt || strcmp(fmt, "e4m3") == 0;
    if (is_word(q, "quant_method", "modelopt")) return is_word(q, "quant_algo", "FP8");
    if (is_word(q, "quant_method", "compressed-tensors"))
        return groups_are_fp8(json_object_get(q, "config_groups"));
    return is_word(q, "quant_method", "fbgemm_fp8");
}

bool config_is_nf4(const json_t *q) {
    return is_word(q, "quant_method", "bitsandbytes") && is_word(q, "bnb_4bit_quant_type", "nf4") &&
           json_is_true(json_object_get(q, "load_in_4bit"));
}

status config_refuse_quantised(const json_t *q, err *e) {
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    bool fp8 = is_word(q, "quant_method", "fp8"), bnb = is_word(q, "quant_method", "bitsandbytes");
    err_set(e, ST_FORMAT, "the weights are quantised by '%s'%s, which is not read",
            method ? method : "(no method)",
            fp8   ? " other than e4m3"
            : bnb ? " other than nf4"
                  : "");
    err_hint(e, "take the original in bf16, f16, f32, fp8 (e4m3) or NF4, or a GGUF file");
    return err_where(e, "model.quantization_config");
}

static status check_keys(json_t *first, const json_t *base, const model_family *f, err *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)base, key, v) {
        if (json_is_null(v)) continue;
        if (strcmp(key, "quantization_config") == 0) {
            if (!config_is_fp8(v) && !config_is_nf4(v)) return config_refuse_quantised(v, e);
            continue;
        }
        if (!family_has_key(f, key, v)) {
            err_set(e, ST_USAGE,
                    "config.json has the key '%s', which %s models of other tools do not have", key,
                    f->model_type);
            err_hint(e, "if it changes nothing, name it: model.ignore_keys=[\"%s\"]", key);
            return err_where(e, "model.%s", key);
        }
        if (key_in_words(f->inert_keys, key)) continue;
        TRY(check_once(first, base, key, e));
        TRY(check_name(base, key, f, e));
    }
    TRY(check_switched_windows(base, f, e));
    TRY(check_unread_types(base, f, e));
    return check_rope_keys(first, base, f, e);
}

status config_check_strict(const json_t *base, const model_family *f, err *e) {
    json_t *first = json_object();
    status st = check_keys(first, base, f, e);
    json_decref(first);
    return st;
}

const char *config_ignorable_key(const err *e) {
    bool of_model = strncmp(e->where, "model.", 6) == 0;
    return of_model && strstr(e->hint, "model.ignore_keys") ? e->where + 6 : NULL;
}

status config_check_rope(const json_t *o, const model_family *f, err *e) {
    const json_t *params = json_object_get(o, "rope_parameters");
    json_t *local = json_object_get(params, "sliding_attention"), *v;
    const json_t *global = json_object_get(params, "full_attention");
    if (is_null(local) && is_null(global)) return ST_OK;
    if (!key_in_words(f->keys, "rope_local_base_freq")) {
        err_at(e, ST_USAGE, "model.rope_parameters",
               "%s models have one rope_parameters for all layers", f->model_type);
        return err_hint(e, "write it without full_attention and sliding_attention");
    }
    if (global && json_equal(local, global)) return ST_OK;
    const char *key;
    json_object_foreach(local, key, v) {
        bool kind = strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0;
        const char *word = json_string_value(v);
        if (is_null(v) || strcmp(key, "rope_theta") == 0) continue;
        if (kind && word && strcmp(word, "default") == 0) continue;
        err_set(e, ST_USAGE, "rotary positions of layers with a window cannot be scaled");
        err_hint(e, "leave %s out, or say the same for all layers", key);
        return err_where(e, "model.rope_parameters.sliding_attention.%s", key);
    }
    return ST_OK;
}

status config_check_switch(const char *key, const json_t *v, bool *known, err *e) {
    int i = find_switch(key);
    *known = i >= 0;
    if (i < 0 || (json_is_boolean(v) && json_is_true(v) == switches[i].only)) return ST_OK;
    err_set(e, ST_USAGE, "%s other than %s is not available in this version", key,
            switches[i].only ? "true" : "false");
    err_hint(e, "the model would compute another function; leave it out only if that is meant");
    return err_where(e, "model.%s", key);
}
