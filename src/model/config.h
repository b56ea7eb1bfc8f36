/* What a model is: one record that every family reads, made from a preset, a config.json or the
 * `model:` part of a config. Keys are the Llama names of Hugging Face; other families' names are
 * aliases (keys.def).
 *
 * Reading order: keys.def (the keys), this file, config.c (JSON to record and back), presets.c,
 * family.h. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <jansson.h>

#include "base/arena.h"
#include "op/op.h"

typedef enum rope_scaling_kind { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 } rope_scaling_kind;

/* Scaled rotary frequencies; fields of config.json's rope_scaling / rope_parameters. */
typedef struct rope_scaling {
    rope_scaling_kind kind;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_max_position_embeddings;
} rope_scaling;

struct model_family;

typedef struct model_config {
    const struct model_family *family;
#define KEY_INT(member, name, aliases, lo, hi, help) int64_t member;
#define KEY_NUM(member, name, aliases, lo, hi, help) double member;
#define KEY_BOOL(member, name, aliases, help) bool member;
#include "model/keys.def"
    act_kind act;
    rope_scaling rope;
    const char *from; /* folder whose weights training starts from, or NULL */
} model_config;

/* Reads a JSON object: `model:` of a config (which may hold `preset` or `from`) or a whole
 * config.json. vocab_size "auto" becomes vocab_if_auto (0: an error that asks for a tokenizer).
 * Unknown keys stop with the nearest known one; keys known to be harmless are skipped. e->where is
 * the key ("model.hidden_size"). */
status model_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                         err *e) ATH_MUST_USE;
/* config.json as transformers writes it for this family. bos, eos: -1 for none. `dt`: dtype of the
 * stored weights. */
json_t *model_config_json(const model_config *mc, int32_t bos, int32_t eos, dtype dt);
/* JSON Schema of the `model:` object. */
json_t *model_config_schema(void);

#endif
