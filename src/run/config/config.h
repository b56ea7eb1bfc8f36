/* The config of a run: a C struct of all options, and where each value came from.
 *
 * options.def has one row per option; the struct, parsing, ranges, help, the JSON Schema and the
 * reference page are made from it. A value comes from the command line, else from the file, else
 * from the row's default. Reading a config goes through these steps, each in its file:
 *
 *     config_load.c      the file and the overrides become one JSON tree
 *     config_override.c  "key.path=value" on that tree
 *     config_keys.c      a key that no row knows is an error, with the nearest one that is known
 *     config_read.c      the tree becomes typed values, each within its range
 *     config_check.c     what concerns several values; what training needs; what cannot be run yet
 *     config_stage.c     the same for the config of each stage
 *     config_from.c      what `model.from` names is looked up
 *     config_idle.c      keys that were given and do nothing become notes
 *
 * config_table.c is the table as data, config_json.c turns values back into JSON, config_doc.c into
 * texts for people; config_device.h opens the device that a config asks for.
 *
 * A command calls config_load, config_tell_notes and then what it is for (train_run, say), which
 * asks for config_check_train and config_check_supported itself. A run's stored config is read by
 * config_from_json and compared by config_diff. An error names the key and its line
 * ("tiny.yaml:7 (optim.lr)") and has a hint. */
#ifndef RUN_CONFIG_H
#define RUN_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Words that only a config has; those of options that a lower module obeys are that module's own
 * lists (LOADER_PACKINGS, SCHEDULE_KINDS, ...), which config_table.c takes from there. */
#define CONFIG_SET_DEVICE(W)                                                                       \
    W(CONFIG_DEVICE_AUTO, "auto")                                                                  \
    W(CONFIG_DEVICE_CPU, "cpu")                                                                    \
    W(CONFIG_DEVICE_CUDA, "cuda")
#define CONFIG_SET_PRECISION(W)                                                                    \
    W(CONFIG_PRECISION_AUTO, "auto")                                                               \
    W(CONFIG_PRECISION_FP32, "fp32")                                                               \
    W(CONFIG_PRECISION_BF16, "bf16")                                                               \
    W(CONFIG_PRECISION_FP16, "fp16")                                                               \
    W(CONFIG_PRECISION_FP8, "fp8")
#define CONFIG_SET_ARITHMETIC(W)                                                                   \
    W(CONFIG_ARITHMETIC_AUTO, "auto")                                                              \
    W(CONFIG_ARITHMETIC_FP32, "fp32")                                                              \
    W(CONFIG_ARITHMETIC_BF16, "bf16")
#define CONFIG_SET_REDUCE_DTYPE(W)                                                                 \
    W(CONFIG_REDUCE_FP32, "fp32")                                                                  \
    W(CONFIG_REDUCE_BF16, "bf16")
#define CONFIG_SET_OFFLOAD(W)                                                                      \
    W(CONFIG_OFFLOAD_NONE, "none")                                                                 \
    W(CONFIG_OFFLOAD_OPTIMIZER, "optimizer")                                                       \
    W(CONFIG_OFFLOAD_WEIGHTS, "weights")                                                           \
    W(CONFIG_OFFLOAD_ALL, "all")
#define CONFIG_SET_OBJECTIVE(W)                                                                    \
    W(CONFIG_OBJECTIVE_LM, "lm")                                                                   \
    W(CONFIG_OBJECTIVE_SFT, "sft")                                                                 \
    W(CONFIG_OBJECTIVE_DPO, "dpo")                                                                 \
    W(CONFIG_OBJECTIVE_IPO, "ipo")                                                                 \
    W(CONFIG_OBJECTIVE_APO_ZERO, "apo-zero")                                                       \
    W(CONFIG_OBJECTIVE_APO_DOWN, "apo-down")                                                       \
    W(CONFIG_OBJECTIVE_KTO, "kto")                                                                 \
    W(CONFIG_OBJECTIVE_ORPO, "orpo")                                                               \
    W(CONFIG_OBJECTIVE_CLASSIFY, "classify")                                                       \
    W(CONFIG_OBJECTIVE_REWARD, "reward")
#define CONFIG_SET_TRAIN_EMBEDDINGS(W)                                                             \
    W(CONFIG_TRAIN_AUTO, "auto")                                                                   \
    W(CONFIG_TRAIN_ALWAYS, "always")                                                               \
    W(CONFIG_TRAIN_NEVER, "never")
#define CONFIG_SET_BASE_DTYPE(W)                                                                   \
    W(CONFIG_BASE_STORED, "stored")                                                                \
    W(CONFIG_BASE_NF4, "nf4")
#define CONFIG_SET_PP_SCHEDULE(W)                                                                  \
    W(CONFIG_PP_AFAB, "afab")                                                                      \
    W(CONFIG_PP_1F1B, "1f1b")                                                                      \
    W(CONFIG_PP_INTERLEAVED, "interleaved")                                                        \
    W(CONFIG_PP_ZB_H1, "zb-h1")                                                                    \
    W(CONFIG_PP_ZB_V, "zb-v")

#define CONFIG_SET_TOKEN_DTYPE(W)                                                                  \
    W(CONFIG_TOKEN_DTYPE_AUTO, "auto")                                                             \
    W(CONFIG_TOKEN_DTYPE_U16, "u16")                                                               \
    W(CONFIG_TOKEN_DTYPE_U32, "u32")
#define CONFIG_SET_GUARD_ACTION(W)                                                                 \
    W(CONFIG_GUARD_LOG, "log")                                                                     \
    W(CONFIG_GUARD_SKIP, "skip")                                                                   \
    W(CONFIG_GUARD_LOWER, "lower")                                                                 \
    W(CONFIG_GUARD_REWIND, "rewind")

typedef enum config_device { CONFIG_SET_DEVICE(LIST_ENUMERATOR) } config_device;
typedef enum config_precision { CONFIG_SET_PRECISION(LIST_ENUMERATOR) } config_precision;
typedef enum config_arithmetic { CONFIG_SET_ARITHMETIC(LIST_ENUMERATOR) } config_arithmetic;
typedef enum config_reduce { CONFIG_SET_REDUCE_DTYPE(LIST_ENUMERATOR) } config_reduce;
typedef enum config_offload { CONFIG_SET_OFFLOAD(LIST_ENUMERATOR) } config_offload;
typedef enum config_objective { CONFIG_SET_OBJECTIVE(LIST_ENUMERATOR) } config_objective;
typedef enum config_train_embeddings {
    CONFIG_SET_TRAIN_EMBEDDINGS(LIST_ENUMERATOR)
} config_train_embeddings;
typedef enum config_base_dtype { CONFIG_SET_BASE_DTYPE(LIST_ENUMERATOR) } config_base_dtype;
typedef enum config_pp_schedule { CONFIG_SET_PP_SCHEDULE(LIST_ENUMERATOR) } config_pp_schedule;
typedef enum config_token_dtype { CONFIG_SET_TOKEN_DTYPE(LIST_ENUMERATOR) } config_token_dtype;
typedef enum config_guard_action { CONFIG_SET_GUARD_ACTION(LIST_ENUMERATOR) } config_guard_action;

enum { CONFIG_AUTO = -1 }; /* an AUTO option that was left "auto" */

#define CONFIG_LIST(type)                                                                          \
    struct {                                                                                       \
        type *items;                                                                               \
        int n;                                                                                     \
    }
typedef CONFIG_LIST(const char *) config_texts;
typedef CONFIG_LIST(int64_t) config_ints;

typedef struct config_source {
    const char *path;
    double weight; /* share in the mixture, beside the other weights */
    double epochs; /* passes over it after which the run warns */
    int format;    /* shards_format */
    int dtype;     /* config_token_dtype */
} config_source;

/* One stage of a run. */
typedef struct config_stage {
    const char *name;
    struct {
        int64_t steps, tokens; /* of the whole run; exactly one is not 0. In the last stage both may
                                  be 0: it lasts to the end of the run */
    } until;
    json_t *changes; /* keys of data, train, optim and model that differ from then on, as given */
} config_stage;

#define CONFIG_TYPE_BOOL bool
#define CONFIG_TYPE_INT int64_t
#define CONFIG_TYPE_NUM double
#define CONFIG_TYPE_TEXT const char *
#define CONFIG_TYPE_CHOICE int
#define CONFIG_TYPE_AUTO int64_t
#define CONFIG_TYPE_TEXTS config_texts
#define CONFIG_TYPE_INTS config_ints
#define CONFIG_TYPE_NUMS CONFIG_LIST(double)
#define CONFIG_TYPE_SOURCES CONFIG_LIST(config_source)
#define CONFIG_TYPE_STAGES CONFIG_LIST(config_stage)

/* c->train.steps, c->optim.schedule.kind, ... A CHOICE is the enumerator of its word. What was not
 * given and has no default is NULL (TEXT) or 0 (INT, NUM). */
typedef struct config {
#define TOP(name, type, ...) CONFIG_TYPE_##type name;
#define GROUP(path, name) struct {
#define GROUP_END(name)                                                                            \
    }                                                                                              \
    name;
#define OPTION(group, name, type, ...) CONFIG_TYPE_##type name;
#include "run/config/options.def"
    json_t *model;        /* the open object `model`, raw; {} when absent */
    json_t *origins;      /* key path -> "file:line" or "command line"; see base/yaml.h */
    arena *memory;        /* all strings and lists */
    const char *source;   /* the file's name, for messages */
    const char *from_run; /* the run's folder that `model.from` named; NULL: it named none */
    config_texts notes;   /* sentences about what was given in vain */
} config;

/* Applies "key.path=value" to a tree as it was read and to its origins (base/yaml.h), before anything is
 * typed. */
status config_apply_override(json_t *root, json_t *origins, const char *text, err *e) ATH_MUST_USE;
/* Reads a YAML or JSON file ("-": standard input; NULL: nothing but defaults), applies the
 * overrides ("key.path=value", value in YAML flow form; a list element by index) and checks each
 * value. A run's folder in `model.from` becomes its newest good checkpoint, and a file that names no
 * tokenizer gets that of `model.from`. On success *out is freed by config_free. */
status config_load(config **out, const char *path, const char *const *overrides, int n_overrides,
                   err *e) ATH_MUST_USE;
/* The same from a JSON value, such as a run's resolved config. `name` stands in errors; `origins`
 * (may be NULL) names the lines. Neither argument is kept or changed. */
status config_from_json(config **out, const json_t *root, const json_t *origins, const char *name,
                        const char *const *overrides, int n_overrides, err *e) ATH_MUST_USE;
void config_free(config *c); /* NULL is fine */
/* The config becomes one of a single stage, with the values that all stages begin with. */
void config_drop_stages(config *c);
/* Logs what `model.from` brought and, as warnings, the notes. Of several ranks one does. */
void config_tell_notes(const config *c);
/* What was looked up when a run began holds as long as the run lasts: takes precision and
 * arithmetic that are `auto` and the checkpoint of another run in `model.from` from the config that the run has stored. */
void config_keep_resolved(config *c, const config *stored);
/* Whether a stored value was such a checkpoint: it may differ when that is not there any more. */
bool config_is_resolved(const config *c, const char *key, const json_t *stored);

/* The config that holds in stage number `stage`: the changes of the stages so far are in force. It
 * has no stages itself. The caller frees it. */
status config_of_stage(const config *c, int stage, config **out, err *e) ATH_MUST_USE;
/* Whether the optimizer begins anew with the stage, and whether it brings a learning-rate schedule
 * of its own (it changes optim.lr or optim.schedule), which then counts from its beginning. */
bool config_stage_restarts(const config *c, int stage);
bool config_stage_has_schedule(const config *c, int stage);

/* What training needs beyond valid values: a run folder, a tokenizer, data, exactly one of steps,
 * tokens, epochs. */
status config_check_train(const config *c, err *e) ATH_MUST_USE;
/* Refuses what this version cannot run yet, one clear sentence each. */
status config_check_supported(const config *c, err *e) ATH_MUST_USE;

/* The key that has adapters trained beside a frozen model, lora.from before lora.rank; NULL: the model itself is trained. */
const char *config_adapts(const config *c);

/* Sequences per forward pass of one of `dp` ranks: micro_batch_size, or where it is auto the
 * largest divisor of the rank's share of the global batch that is at most 8. */
int64_t config_micro_batch(const config *c, int64_t dp);

/* "tiny.yaml:7", "command line" or "default". A key inside a value has the origin of its nearest
 * parent. The string lives as long as the config. */
#define CONFIG_COMMAND_LINE "command line"
const char *config_where(const config *c, const char *path);
/* e->where becomes the key with its origin: "tiny.yaml:7 (optim.lr)". The key may be e->where. */
void config_locate(const config *c, const char *key, err *e);
/* Fills e with a usage error about a key, located so. */
status config_error(const config *c, err *e, const char *path, const char *fmt, ...)
    ATH_PRINTF(4, 5);

/* The complete config, defaults included, in the order of the table; config_from_json reads it
 * back to an equal config. The caller owns it. */
json_t *config_to_json(const config *c);
/* The same as YAML with the origin of each value as a comment; it loads back. free() it. */
char *config_to_yaml(const config *c);
/* One value of it by key path; NULL when there is no such key. The caller owns it. */
json_t *config_get_json(const config *c, const char *path);
/* The default of an option. The caller owns it. */
json_t *config_default(const char *path);
/* [{"key", "a", "b"}], one element per key that differs; empty when equal. The caller owns it. */
json_t *config_diff(const config *a, const config *b);
/* Whether a key may change when a run that stands in stage `stage` is resumed: later stages are free,
 * and the end of this one. */
bool config_key_is_free_in(const char *path, int stage);

const char *config_precision_name(int precision);
const char *config_arithmetic_name(int arithmetic);
const char *config_device_name(int device);

/* What the table says: JSON Schema (draft 2020-12), a markdown reference, a plain list for --help.
 * The caller owns the schema and frees the texts. */
json_t *config_schema(void);
char *config_reference_markdown(void);
char *config_help(void);

#endif
