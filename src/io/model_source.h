/* A model in any form that is read: its config, its tokenizer, and its weights by the names of
 * Hugging Face, read piece by piece from the mapped file.
 *
 *   folder      Hugging Face: config.json and safetensors; or a run (its newest good checkpoint)
 *   adapter     a folder of PEFT, or a run that trained one: merged into its base model, which is
 *               in any other of these forms
 *   *.gguf      llama.cpp
 *   *.bin       llama2.c (tokenizer.bin beside it), llm.c; recognised by content
 *
 * Reading order: model_source_open, model_source_write_tensors; model_folder.h writes folders. */
#ifndef IO_MODEL_SOURCE_H
#define IO_MODEL_SOURCE_H

#include "base/strbuf.h"
#include "io/checkpoint/held.h"
#include "io/gguf/gguf_model.h"
#include "model/family.h"
#include "tok/tok.h"

typedef enum model_source_kind {
    MODEL_SOURCE_HF,
    MODEL_SOURCE_GGUF,
    MODEL_SOURCE_LLAMA2C,
    MODEL_SOURCE_LLMC,
    MODEL_SOURCE_ADAPTER
} model_source_kind;

typedef struct model_source {
    arena *a;
    model_source_kind kind;
    const char *path; /* the file, or the folder itself where a run was named */
    const char *base; /* of an adapter: its base model */
    model_config config;
    json_t *keys;        /* its config.json, or what the header says in these words */
    json_t *generation;  /* the generation_config.json that is written; NULL: the one beside it */
    param_store *params; /* of the config; no memory behind it */
    st_tensor *tensors;  /* [param_count(params)] as they lie there */
    hf_order order;      /* how they lie */
    tok *tok;            /* NULL: none */
    strbuf notes;        /* what was found on the way, a line each */
    /* what is open */
    st_reader *folder;
    file_map file;
    gguf_model gguf;
    float *masters; /* GGUF, adapters: all weights */
    dtype matrices; /* GGUF: what they were stored in */
    dtype *formats; /* adapters: what each tensor of the base model is stored in */
} model_source;

/* ignore[n_ignore]: keys of config.json that are allowed although nobody here knows them. ST_USAGE,
 * ST_FORMAT: unknown keys, tensors that are missing, of another shape or unknown. A head that is
 * stored and differs from the embedding is a head of its own, whatever the config says. */
/* base: the base model of an adapter; NULL: what the adapter says. */
/* The error of a path at which nothing is; takes: the hint, what may be given. A preset's name is told to be one. */
status model_source_missing(const char *path, const char *takes, err *e) ATH_MUST_USE;
status model_source_open_on(model_source *s, const char *path, const char *base,
                            const char *const *ignore, int n_ignore, err *e) ATH_MUST_USE;
status model_source_open(model_source *s, const char *path, const char *const *ignore, int n_ignore,
                         err *e) ATH_MUST_USE;
void model_source_close(model_source *s); /* also after a failure, and of {0} */
/* "a Hugging Face folder", ... */
const char *model_source_kind_name(model_source_kind k);

/* The config of a folder that Hugging Face reads. */
model_config model_source_folder_config(const model_source *s);
/* The weights as such a folder holds them, in the arena: the bytes that are stored where nothing
 * has to change. dt DT_COUNT: in the formats in which they are stored. A number that the format
 * cannot hold is ST_NONFINITE when it is written. */
st_tensor *model_source_folder_tensors(const model_source *s, arena *a, dtype dt);
/* Fills the masters of a store declared from s->config, as the source has them. */
status model_source_load(const model_source *s, const param_store *store, err *e) ATH_MUST_USE;
/* Fills the masters of a store declared from model_source_folder_config. */
status model_source_load_folder(const model_source *s, const param_store *store,
                                err *e) ATH_MUST_USE;

#endif
