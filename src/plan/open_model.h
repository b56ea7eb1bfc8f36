/* A model opened for inference: config, tokenizer, weights in memory, programs bound. */
#ifndef PLAN_OPEN_MODEL_H
#define PLAN_OPEN_MODEL_H

#include "infer/generate.h"
#include "infer/settings.h"
#include "io/gguf/gguf_model.h"
#include "io/hf/hf_model.h"
#include "plan/plan.h"

/* In what generation keeps keys and values. CACHE_AUTO: as f16 where the model's matrices are
 * blocks of 8 bits or fewer (base/quant.h), whose own rounding is a hundred times that of f16, and
 * else as f32, so that generation from numbers that were not quantised equals one forward pass. At
 * long contexts a token reads more of the cache than of the weights, and f16 is half of it. */
typedef enum cache_format { CACHE_AUTO, CACHE_F32, CACHE_F16 } cache_format;

typedef struct open_model {
    arena *a;
    dev *dev;
    char *dir;        /* the Hugging Face folder; NULL: a GGUF file */
    hf_model *folder; /* NULL: a GGUF file */
    gguf_model *gguf; /* NULL: a folder */
    model_config config;
    tok *tok;           /* NULL: there is none */
    tok_ids end;        /* ids that end a text, as a GGUF file has them */
    cache_format cache; /* CACHE_AUTO until it is set, before loading */
    plan *plan;
    generator_pass whole; /* whose logits are all wanted; found when they first are */
    dev_room logits;      /* of a whole sequence, where the host cannot reach the plan's memory */
} open_model;

/* Reads config and tokenizer of a MODEL argument: a Hugging Face folder, a run folder (its newest
 * good checkpoint), or a GGUF file. Matrices stay in the files, in their formats, where these are
 * computed with. threads 0: all cores. */
status open_model_read(open_model *m, const char *path, int threads, err *e) ATH_MUST_USE;
/* By name: auto, f32, f16; NULL: auto. ST_USAGE: another one. */
status open_model_set_cache(open_model *m, const char *name, err *e) ATH_MUST_USE;
bool open_model_is_gguf(const char *path); /* by its first bytes, or else its name */
/* Loads what does not stay there (computing in fp32) with room for sequences of cache_tok tokens
 * and, if logits_T > 0, for the logits of a whole sequence of that length. */
status open_model_load(open_model *m, int cache_tok, int logits_T, err *e) ATH_MUST_USE;
/* What open_model_load plans. */
plan_spec open_model_spec(const open_model *m, int cache_tok, int logits_T);
/* What the model's files say about generation, with every id that ends a text: those of the files
 * and the tokenizer's. To be freed with generation_settings_free. */
status open_model_settings(const open_model *m, generation_settings *s, err *e) ATH_MUST_USE;
/* To be freed with generator_free. */
generator open_model_generator(const open_model *m);
/* The same over the programs of a plan that has a sampler; `t` may be NULL. */
generator plan_generator(const plan *p, const tok *t);
/* Logits [n,V] of ids[0..n), n = logits_T, by one forward pass; they stay until the next one. */
const float *open_model_logits(open_model *m, const int32_t *ids, int n);
void open_model_close(open_model *m);

#endif
