/* Runs that train adapters (`lora:`): which matrices get them, the base model, and the adapter that
 * training goes on with.
 *
 * The base model stays frozen. Its matrices are read where they lie in its files, if the programs
 * can compute with them as they are stored (plan_spec.locate); all else is read into the plan's
 * memory at every start, since checkpoints do not hold it. A base model in a GGUF file stays as it
 * is, in its blocks of a few bits (QLoRA, Dettmers et al. 2023): forward and backward decode a piece
 * of a matrix at a time. With lora.base_dtype=nf4 so is a folder: its matrices are quantised at every start, to the same
 * bits, and lie in the plan's memory. */
#ifndef TRAIN_LORA_H
#define TRAIN_LORA_H

#include "io/gguf/gguf_model.h"
#include "io/hf/hf_model.h"
#include "io/hf/peft.h"
#include "plan/plan.h"
#include "run/config/config.h"

typedef struct lora {
    model_adapters adapters; /* rank 0: the whole model is trained, and nothing else is set */
    const char *base;        /* model.from as an absolute path, for adapter_config.json */
    peft_adapter from;       /* lora.from; a NULL: the adapters begin anew */
    hf_order order;          /* of the rows in adapter files: that of the base model's folder */
    hf_model folder;         /* the base model's files, once they are open; a NULL: they are not */
    gguf_model gguf;         /* a NULL: it is a folder */
    bool nf4;                /* matrices of its layers are quantised at the start */
} lora;

/* What the config asks for, and a base model in a GGUF file. ST_USAGE: it cannot be had. */
status lora_open(lora *l, arena *a, config *c, err *e) ATH_MUST_USE;
/* lora.train_embeddings=auto: embedding and head are trained if tokens were added. ST_USAGE: there are tokens for which the
 * base model has no rows, and the adapter would not have them either. */
status lora_learn_tokens(lora *l, const config *c, const model_config *m, int32_t added,
                         err *e) ATH_MUST_USE;
/* ST_USAGE: dropout of new adapters does not run with these axes. */
status lora_check_axes(const config *c, err *e) ATH_MUST_USE;
/* Opens the base model's files, and has the plan read there what it can: nothing on a device that
 * does not reach the host's memory, to which a folder's matrices are copied. ST_USAGE: a GGUF file
 * on such a device. */
status lora_plan(lora *l, const dev *d, const model_config *mc, plan_spec *specs, int n,
                 err *e) ATH_MUST_USE;
/* Reads into the masters what is in the base model's files and is not read there. */
status lora_load_base(const lora *l, const param_store *s, err *e) ATH_MUST_USE;
/* The first weights of a run: those of the base model, with new adapters or those of lora.from. */
status lora_make_weights(const lora *l, param_store *s, uint64_t seed, err *e) ATH_MUST_USE;
/* Reads the adapters of a checkpoint, and the base model. */
status lora_resume(const lora *l, arena *a, const param_store *s, const char *dir,
                   err *e) ATH_MUST_USE;
void lora_close(lora *l);

#endif
