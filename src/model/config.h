/* What a model is: one record that every family reads, made from a preset, a config.json or the
 * `model:` part of a config. Keys are the Llama names of Hugging Face; other families' names are
 * aliases (keys.def).
 *
 * Reading order: keys.def (the keys), this file, layer.h (what they make of one layer),
 * config_file.h (objects of keys), config_read.c, config_settle.c and config_write.c (from JSON and
 * back), presets.c, family.h. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <jansson.h>

#include "model/rope.h"

typedef enum position_kind {
    POSITIONS_ROTARY,
    POSITIONS_LEARNED,
    POSITIONS_NONE,
    POSITIONS_RELATIVE
} position_kind;
typedef enum norm_kind { NORM_RMS, NORM_LAYER } norm_kind;
typedef enum norm_weights {
    NORM_WEIGHTS_NONE,
    NORM_WEIGHTS_W,
    NORM_WEIGHTS_WB,
    NORM_WEIGHTS_OFFSET
} norm_weights;
typedef enum norm_place { NORM_PRE, NORM_POST, NORM_SANDWICH } norm_place;
typedef enum residual_kind {
    RESIDUAL_SEQUENTIAL,
    RESIDUAL_PARALLEL,
    RESIDUAL_PARALLEL_SHARED
} residual_kind;
typedef enum qk_norm_kind { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_FULL } qk_norm_kind;
typedef enum mlp_kind { MLP_GATED, MLP_PLAIN } mlp_kind;
typedef enum router_kind { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFT } router_kind;
typedef enum problem_kind {
    PROBLEM_AUTO,
    PROBLEM_REGRESSION,
    PROBLEM_SINGLE_LABEL,
    PROBLEM_MULTI_LABEL
} problem_kind;
typedef enum init_scheme {
    INIT_SCHEME_NORMAL,
    INIT_SCHEME_GPT2,
    INIT_SCHEME_SMALL_WANG,
    INIT_SCHEME_MITCHELL,
    INIT_SCHEME_TRUNCATED,
    INIT_SCHEME_FAN_IN,
    INIT_SCHEME_WIDTH,
    INIT_SCHEME_T5
} init_scheme;

/* A KEY_LAYERS option has two members: the value of all layers (the largest, where they differ),
 * and, where they differ, NAME_of[L]. */
typedef struct model_config {
    const struct model_family *family;
#define KEY_INT(member, name, aliases, lo, hi, help) int64_t member;
#define KEY_NUM(member, name, aliases, lo, hi, help) double member;
#define KEY_LAYERS(member, name, aliases, lo, hi, help)                                            \
    int64_t member;                                                                                \
    const int64_t *member##_of;
#define KEY_BOOL(member, name, aliases, help) bool member;
#define KEY_WORD(member, name, aliases, words, help) int member;
#include "model/keys.def"
    act_kind act;
    rope_scaling rope;
    const char *const *names; /* of tensors by part, where they are not the family's: those of a
                                 GGUF file (io/gguf/gguf_arch.c) */
    const char *const *encoder_names; /* the same of the layers of an encoder */
    bool gguf_order; /* weights lie as a GGUF file holds them: rotary pairs as neighbours where its
                         converter makes them so, (1 + w) of norms already added */
    const char *const *labels; /* [num_labels] names of the classes; NULL: they have none */
    const char *from;          /* folder whose weights training starts from, or NULL */
    int64_t from_vocab;        /* its vocabulary: where the model's is larger, rows are added */
    bool
        from_unties; /* its config.json ties the head to the embedding, and what it stores differs */
    int64_t from_labels; /* its num_labels: where the model's differs, the head is a new one */
} model_config;

/* Reads a JSON object: `model:` of a config (which may hold `preset` or `from`) or a whole
 * config.json. vocab_size "auto" becomes vocab_if_auto (0: an error that asks for a tokenizer).
 * Unknown keys stop with the nearest known one; so does any key of a config.json (`from`, or
 * as_file) that the family does not have, unless "ignore_keys" names it: it may change the
 * function. e->where is the key ("model.hidden_size"). Lists go to the arena. */
status model_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                         err *e) ATH_MUST_USE;
/* The same for the object of a config.json itself. */
status model_config_read_file(arena *a, const json_t *obj, model_config *out, err *e) ATH_MUST_USE;
/* The keys of a `model:` object, its base aside, that change nothing of the model: a list of names.
 * The caller owns it. */
json_t *model_config_idle_keys(const json_t *obj);
/* A copy whose lists are the arena's; strings are shared. */
model_config model_config_copy(arena *a, const model_config *mc);
/* Whether two stored layers differ in nothing but their weights; a model with some of the layers only, in that order. */
bool model_layers_alike(const model_config *mc, int a, int b);
model_config model_config_pick(arena *a, const model_config *mc, const int *layers, int n);
/* config.json as transformers writes it for this family. bos, eos: -1 for none. `dt`: dtype of the
 * stored weights. Options that the family's config.json cannot say are in an object "athanor". */
json_t *model_config_json(const model_config *mc, int32_t bos, int32_t eos, dtype dt);
/* The class of transformers that config.json names. */
const char *model_architecture(const model_config *mc);
/* The options that no reader of the family's config.json knows, and their values: empty when every
 * tool for the family computes this model. */
json_t *model_config_extensions(const model_config *mc);
/* JSON Schema of the `model:` object. */
json_t *model_config_schema(void);

#endif
