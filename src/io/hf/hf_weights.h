/* Finds the parameters of a model in safetensors files of Hugging Face, which differ from memory in prefixes of names, and
 * hold more than a model's parameters. hf_stored.h reads the numbers, hf_load.h fills a store with them, hf_model.h leaves
 * them in the files, hf_part.h writes. */
#ifndef IO_HF_WEIGHTS_H
#define IO_HF_WEIGHTS_H

#include "io/checkpoint/held.h"
#include "io/hf/hf_stored.h"
#include "model/config.h"

/* How files differ from the store. */
typedef struct hf_differs {
    int64_t vocab; /* tokens that the files have; 0: those of the store */
    bool
        new_head; /* of labels: it is not looked for, and what the files have as a head is passed over */
} hf_differs;

/* Finds the tensor of every parameter of the whole model (param_store_whole): list[i] is that of
 * parameter i. ST_FORMAT names a tensor that is missing or has another shape. So does it one that
 * is no parameter, except buffers that files are known to hold, a head that equals the
 * embedding, modules of multi-token prediction that the store does not have, and what modules repeat. */
status hf_find_weights(const param_store *s, st_reader *r, hf_differs how, hf_weight *list,
                       err *e) ATH_MUST_USE;
/* Its first step: tensors that hold all experts of a layer give way to those of each (hf_experts.c). s: of the whole model.
 * ST_FORMAT: one has another shape. */
status hf_part_experts(st_reader *r, const param_store *s, err *e) ATH_MUST_USE;
/* Whether a parameter has a row (of a vector: an element) for each token. */
bool hf_is_of_tokens(const param *p);
/* Whether a head is stored that differs from the embedding `table`. */
status hf_head_differs(const st_reader *r, const st_view *head, const st_view *table, bool *differs,
                       err *e) ATH_MUST_USE;
/* The same of a folder: whether what it stores as the head makes a model of its own, though config.json ties it to the
 * embedding. What is stored decides, as in transformers. false: also where nothing can be read. */
bool hf_has_own_head(const char *dir, const model_config *mc);
/* model_config_read, with that rule where the object has `from` and does not say tie_word_embeddings itself. */
status hf_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                      err *e) ATH_MUST_USE;
/* A tensor by its name, or by one that differs in a prefix that other tools leave out or add; NULL:
 * there is none. */
const st_view *hf_find_view(const st_reader *r, const char *name);
/* How many of the modules of multi-token prediction that the config names are stored: transformers
 * leaves them out of what it writes, and keeps the config's word of them. */
int hf_count_ahead(const st_reader *r, const model_config *mc);
/* Leaves out of mc the modules that the folder does not hold. */
status hf_settle_ahead(model_config *mc, const char *dir, err *e) ATH_MUST_USE;
/* In which order a folder has rotated rows: as its config.json says. */
hf_order hf_order_of(const char *dir);

#endif
