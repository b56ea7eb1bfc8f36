/* Adapters in the format of PEFT (huggingface.co/docs/peft, 0.21): a folder with
 *
 *     adapter_config.json          rank, alpha, targets, and where the base model is
 *     adapter_model.safetensors    base_model.model.NAME.lora_A.weight, .lora_B.weight, as fp32;
 *                                  and whole tensors that were trained (modules_to_save)
 *
 * NAME is the module's name in the base model's files, but for the head (PEFT_HEAD). The folder holds no model: the base model is
 * read beside it. Which matrices have adapters is taken from the tensors that are there, so
 * target_modules may be anything that PEFT allows. What this program would compute otherwise than
 * PEFT (DoRA, ranks that differ, ...) is refused by its key.
 *
 * Reading order: peft_open, peft_load; peft_merge; peft_config. */
#ifndef IO_PEFT_H
#define IO_PEFT_H

#include "io/checkpoint/held.h"
#include "model/family.h"

#define PEFT_CONFIG "adapter_config.json"
#define PEFT_WEIGHTS "adapter_model.safetensors"
#define PEFT_PREFIX "base_model.model."
/* The module of the head in transformers, also where a family's files have another name for it: embed_out of GPT-NeoX. */
#define PEFT_HEAD "lm_head"

typedef struct peft_adapter {
    arena *a;
    const char *dir;
    const char *base;        /* base_model_name_or_path; NULL: it names none */
    model_adapters adapters; /* targets by whole names */
    bool ties;               /* ensure_weight_tying: a tied head is trained with the embedding */
    int64_t vocab;           /* rows of the embedding, if it is among the tensors; 0: it is not */
    st_reader *file;
} peft_adapter;

/* Whether a folder holds an adapter. */
bool peft_is_folder(const char *dir);
/* Reads the config and maps the tensors. Strings are in the adapter's own arena. */
status peft_open(peft_adapter *p, const char *dir, err *e) ATH_MUST_USE;
/* What an adapter_config.json says, without its tensors. ST_FORMAT: it is none, or asks for what is
 * not available here. */
status peft_take_config(peft_adapter *p, json_t *o, err *e) ATH_MUST_USE;
void peft_close(peft_adapter *p); /* also after a failure, and of {0} */

/* The folder of the base model: base_model_name_or_path, from here or from the folder that the
 * adapter is in. In the adapter's arena. ST_USAGE: there is none; `hint` says how to name one. */
status peft_find_base(peft_adapter *p, const char *hint, const char **base, err *e) ATH_MUST_USE;
/* Fills what is trained in a store that was declared with the adapters (model_declare_adapted).
 * order: that of the base model's files. ST_FORMAT: it is of another base model. */
status peft_load(const peft_adapter *p, const param_store *s, hf_order order, err *e) ATH_MUST_USE;

/* Adds scale * B A to the masters of a store of the base model, which has no adapters and is bound
 * to the host's memory, and puts in what was trained as a whole. In fp32. */
status peft_merge(const peft_adapter *p, const param_store *s, err *e) ATH_MUST_USE;

/* What a store trains, as PEFT_WEIGHTS holds it: hf_declare in fp32, with PEFT's names. */
st_tensor *peft_declare(arena *a, const param_store *s, hf_order order);
/* adapter_config.json of what a store has. The caller owns it. */
json_t *peft_config(const model_adapters *ad, const param_store *s, const model_config *mc,
                    const char *base);

#endif
