/* The metadata of a GGUF model file as a model_config, and back. What is read is what llama.cpp
 * computes for the file: keys that it does not look at for an architecture are not looked at here.
 */
#ifndef IO_GGUF_CONFIG_H
#define IO_GGUF_CONFIG_H

#include "io/gguf/gguf_arch.h"
#include "io/gguf/gguf_model.h"

/* A key that files written here have where the activation is not the family's usual one: llama.cpp
 * has one GELU, the one with tanh. */
#define GGUF_KEY_ACT "athanor.hidden_act"

/* A file as far as its config goes: some options follow from which tensors there are. */
typedef struct gguf_facts {
    const gguf_meta *meta;
    const gguf_view *(*find)(const void *ctx, const char *name); /* NULL: absent */
    const void *ctx;
} gguf_facts;

/* The config, with the names and the order of the file's tensors. Lists go to the arena. ST_FORMAT
 * names file and key; ST_USAGE: the architecture is no family here. */
status gguf_config_read(arena *a, const gguf_facts *f, model_config *out, err *e) ATH_MUST_USE;
/* Rotary scaling: sets "rope_parameters" of a config object where the file has one
 * (gguf_rope.c). */
status gguf_rope_read(const gguf_facts *f, const gguf_arch *arch, json_t *o, err *e) ATH_MUST_USE;
/* Optional numbers under the architecture's name; absent ones leave *x. */
status gguf_arch_int(const gguf_facts *f, const gguf_arch *arch, const char *key, int64_t *x,
                     err *e) ATH_MUST_USE;
status gguf_arch_float(const gguf_facts *f, const gguf_arch *arch, const char *key, double *x,
                       err *e) ATH_MUST_USE;

/* `mc` as a file of its architecture holds it: names, order, and the tensors that such a file must
 * have (biases of zero, a head of its own). ST_USAGE: llama.cpp does not have the family. */
status gguf_config_for(const model_config *mc, model_config *out, err *e) ATH_MUST_USE;
/* The keys under the architecture's name. */
void gguf_config_write(const model_config *mc, gguf_pairs *p);
/* Numbers by which each rotary frequency is divided, as a tensor of the file has them; NULL: there
 * is no such tensor. */
typedef struct gguf_factors {
    const char *name;
    float *factor;
    int n;
} gguf_factors;
int gguf_rope_factors(arena *a, const model_config *mc, gguf_factors out[2]);
/* The keys of the tokenizer (gguf_tok_write.c). One token for each row of the embedding: rows
 * beyond the tokenizer's get unused ones. ST_USAGE: what llama.cpp cannot express, or a tokenizer
 * with more tokens than rows. */
status gguf_tok_write(arena *a, const gguf_model_source *src, gguf_pairs *p, err *e) ATH_MUST_USE;
/* ST_USAGE: names the first option in which what a reader makes of the file differs from mc. */
status gguf_config_compare(const model_config *mc, const model_config *read, err *e) ATH_MUST_USE;

#endif
