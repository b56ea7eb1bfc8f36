/* Configs as JSON objects, before their values are read into a model_config.
 *
 * An object is a published config.json, or the `model:` of a user's YAML. A base (a preset, or the
 * config.json of `from`) is updated with the user's keys; config_read.c then reads what comes of
 * it. A published config.json is also checked: no key of it may say something that is not obeyed
 * here. */
#ifndef MODEL_CONFIG_FILE_H
#define MODEL_CONFIG_FILE_H

#include "model/family.h"

/* The object in a config.json. ST_FORMAT: the file holds no JSON, or another value. */
status config_read_object(const char *path, json_t **out, err *e) ATH_MUST_USE;

/* Keys with a meaning of their own, which are no options: "preset", "rope_scaling". */
bool config_key_special(const char *key);
/* A key of published config.json files that does not change the function. */
bool config_key_inert(const char *key);

/* Updates dst with src. Keys get their canonical names. A null in src removes the key from dst; but
 * of an option that may be null, null is the value ("none", or "derived from others").
 *
 * Rotary keys, which files say in several ways, come out in one: rope_theta, rope_local_base_freq
 * and partial_rotary_factor at the top; what else rope_scaling or rope_parameters hold stays under
 * that name, and if src has both, under rope_scaling, which counts in transformers. skip: a family
 * whose inert keys are left out; NULL: none are. */
void config_merge(json_t *dst, const json_t *src, const model_family *skip);
/* Removes windows from `all` that `base` switches off by use_sliding_window: false. strict: base is
 * a published config.json, where a switch that is missing means false. */
void config_drop_switched_off(json_t *all, const json_t *base, const model_family *f, bool strict);

/* ---- heads of labels (config_head.c) ---- */

/* Of a model with such a head (an architecture that ends in ForSequenceClassification), base's num_labels, problem_type and
 * names of classes, as a list "labels"; of any other model these keys mean nothing, and are removed from `all`. */
status config_merge_head(json_t *all, const json_t *base, err *e) ATH_MUST_USE;
/* After a user's keys `obj` were merged: their number of labels is that of the names, if these are given; names that were there for
 * another number of labels are removed. */
status config_count_labels(json_t *all, const json_t *obj, err *e) ATH_MUST_USE;
/* Takes the names over into the model's config; in the arena. */
status config_read_labels(arena *a, const json_t *all, model_config *mc, err *e) ATH_MUST_USE;
/* id2label and label2id, which say the number of labels in transformers, and problem_type. */
void config_put_head(const model_config *mc, json_t *o);

/* Whether a quantization_config means weights in fp8 (E4M3) with factors (io/safetensors/fp8.h): numbers like others once they
 * are read. Activations, which other programs may round to fp8 as well, are not. */
bool config_is_fp8(const json_t *q);
/* The same for NF4 of bitsandbytes (io/hf/bnb.h). */
bool config_is_nf4(const json_t *q);
/* The error for a model whose weights are quantised in another way. */
status config_refuse_quantised(const json_t *q, err *e);

/* ---- steps of reading an object whose keys are all known ---- */

/* The error of that key: adds where it stands, and returns its status. */
status config_at_key(err *e, const char *key);
/* "layer_types": ["sliding_attention", "full_attention", ...] with sliding_window, the width of all
 * windows, becomes a list of windows; chunked_attention likewise. */
status config_resolve_layer_types(json_t *all, int64_t layers, const model_family *f,
                                  err *e) ATH_MUST_USE;
/* Derives what `all` leaves out, and refuses what does not go together. */
status config_settle(const json_t *all, model_config *mc, err *e) ATH_MUST_USE;

/* ---- published files ---- */

/* Checks a published config.json. Every key must be one that other readers of the family know, by
 * the name that they read; and what is said twice must be the same. */
status config_check_strict(const json_t *base, const model_family *f, err *e) ATH_MUST_USE;
/* The key of an error of config_check_strict that ignore_keys could name; NULL: it is another error. */
const char *config_ignorable_key(const err *e);
/* Checks rope_parameters that hold an object for each kind of layer (full_attention,
 * sliding_attention): the family must have such, and the layers with a window no scaling. */
status config_check_rope(const json_t *o, const model_family *f, err *e) ATH_MUST_USE;
/* Some keys of config.json are switches of which one setting is computed here. *known: key is such
 * a switch. ST_USAGE: it has the other setting. */
status config_check_switch(const char *key, const json_t *v, bool *known, err *e) ATH_MUST_USE;

#endif
