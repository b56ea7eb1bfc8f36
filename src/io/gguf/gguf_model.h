/* Models in GGUF files: opened for generation with the weights where they lie, turned into masters,
 * written from masters.
 *
 * A file is checked before anything is read from it: every tensor of the model must be there in its
 * shape and in a format that is computed with, and there may be no other.
 *
 * Reading order: gguf_config.h (what a file of an architecture says and holds), gguf_model_open,
 * gguf_model_locate; gguf_model_read, gguf_model_write. */
#ifndef IO_GGUF_MODEL_H
#define IO_GGUF_MODEL_H

#include "io/gguf/gguf.h"
#include "model/family.h"
#include "tok/tok.h"

typedef struct gguf_model {
    arena *a;
    gguf_reader *file;
    model_config config; /* with the names and the order of the file */
    int64_t modules;     /* that predict further tokens, which the file has and nothing reads */
    const void *base;    /* locations are counted from here */
} gguf_model;

/* ST_FORMAT names file and key or tensor; ST_USAGE: an architecture that is no family here. */
status gguf_model_open(gguf_model *m, const char *path, err *e) ATH_MUST_USE;
/* A file in memory; the bytes stay the caller's. */
status gguf_model_open_bytes(gguf_model *m, const void *bytes, size_t len, const char *label,
                             err *e) ATH_MUST_USE;
void gguf_model_close(gguf_model *m);

/* A param_locate_fn with a gguf_model as context: matrices stay in the file, but for those that it has as two; vectors do
 * not. */
bool gguf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes);
/* Fills the masters of what did not stay in the file, in a store that was declared from m->config.
 */
status gguf_model_load_rest(const gguf_model *m, const param_store *s, err *e) ATH_MUST_USE;
/* Ids that end a text or a turn (eos, eot, eom), in the file's order of importance. */
void gguf_model_end_ids(const gguf_model *m, tok_ids *out);

/* The config of the same model as Hugging Face folders have it. */
model_config gguf_model_hf_config(const gguf_model *m);
/* Fills all masters of a store that was declared from that config and bound without a device:
 * numbers of any format, in the order of Hugging Face files. */
status gguf_model_read(const gguf_model *m, const param_store *s, err *e) ATH_MUST_USE;

typedef struct gguf_model_source {
    const model_config *config; /* of Hugging Face order */
    const param_store *store;   /* bound, without a device */
    const tok *tok;             /* NULL: llama.cpp will take and give ids alone */
    const char *chat_template;  /* NULL: none but the tokenizer's own */
    const char *name;           /* general.name; NULL: none */
    tok_ids end;                /* ids that end a text; none: the tokenizer's. A file takes three */
} gguf_model_source;

/* Writes a file that llama.cpp loads, with matrices in `type` (F32, F16, BF16, Q8_0, Q4_0, Q4_1):
 * the embedding as Q8_0 where a block of 4 bits would serve as head, too, and F16 where rows are no
 * whole blocks. ST_USAGE: names the option of the model, or the part of the tokenizer, that
 * llama.cpp cannot express. */
status gguf_model_write(const char *path, const gguf_model_source *src, quant_type type,
                        err *e) ATH_MUST_USE;
/* The same question without writing: whether there can be such a file. The store need not be bound.
 */
status gguf_model_check(const gguf_model_source *src, err *e) ATH_MUST_USE;

#endif
