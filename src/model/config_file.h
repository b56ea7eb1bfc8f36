/* Objects of keys before their values are read: what a config.json may say, and how one object
 * updates another. */
#ifndef MODEL_CONFIG_FILE_H
#define MODEL_CONFIG_FILE_H

#include "model/family.h"

/* Keys with a meaning of their own, which are no options. */
bool config_key_special(const char *key);
/* A key of published config.json files that does not change the function. */
bool config_key_inert(const char *key);

/* dst gets every key of src under its canonical name; a null removes the key, unless it is a value
 * of its own ("none", "derived"). Rotary keys come out one way: rope_theta, rope_local_base_freq
 * and partial_rotary_factor on top, and what else rope_scaling or rope_parameters hold under the
 * one name that counts (rope_scaling, as in transformers). `skip`: the family whose inert keys stay
 * out, or NULL. */
void config_merge(json_t *dst, const json_t *src, const model_family *skip);
/* What use_sliding_window switches off in somebody's object is as good as not there. strict: where
 * it is missing, it is off. */
void config_drop_switched_off(json_t *all, const json_t *base, const model_family *f, bool strict);

/* Whether a quantization_config is that of fp8 in blocks of 128 x 128, which an import reads. */
bool config_fp8_blocks(const json_t *q);
/* The error that says so of a model whose weights are quantised. */
status config_refuse_quantised(const json_t *q, err *e);

/* Every key of a config.json must be one that readers of the family know, said once. */
status config_check_strict(const json_t *base, const model_family *f, err *e) ATH_MUST_USE;
/* rope_parameters with an object for each kind of layer, where the family has that. */
status config_check_rope(const json_t *o, const model_family *f, err *e) ATH_MUST_USE;
/* A switch that changes the function, of which we compute one setting; *known: key is one. */
status config_check_switch(const char *key, const json_t *v, bool *known, err *e) ATH_MUST_USE;

#endif
