/* What readers and writers of GGUF model files share (gguf_model.h): architectures, metadata as a
 * model_config and back, rows of weights.
 *
 * What is read is what llama.cpp computes for the file: keys that it does not look at for an
 * architecture are not looked at here. */
#ifndef IO_GGUF_CONFIG_H
#define IO_GGUF_CONFIG_H

#include "io/gguf/gguf_model.h"

/* ---- what llama.cpp knows of the architectures that are families here (gguf_arch.c) ----
 *
 * What it calls their tensors, how it turns positions, which tensors a file may or must have. Facts
 * of its model loader and of its converter; whoever adds an architecture adds one row. */

/* Whether a file of the architecture has something. */
typedef enum gguf_need { GGUF_NEVER, GGUF_MAY, GGUF_MUST } gguf_need;

typedef enum gguf_experts {
    GGUF_EXPERTS_MAY = 1,              /* there are some, in every layer, or none at all */
    GGUF_EXPERTS_OWN_WIDTH = 2,        /* their width is expert_feed_forward_length */
    GGUF_EXPERTS_NOT_RENORMALISED = 4, /* the weights of a token's experts do not sum to 1 */
    GGUF_EXPERTS_DEEPSEEK = 8,         /* as DeepSeek-V2 and V3 have them (gguf_deepseek.c) */
    /* no words of experts: keys and values are made of latents (gguf_latents.c); an encoder and a decoder (gguf_encoder.c) */
    GGUF_LATENTS = 16,
    GGUF_ENCODER = 32,
    GGUF_LINEAR =
        64, /* linear layers between those of attention, experts as Qwen's (gguf_linear.c) */
} gguf_experts;

typedef struct gguf_arch {
    const char *name;
    bool pairs;            /* rotary pairs are neighbours: the converter permutes rows of q and k */
    bool fused;            /* q, k and v are one tensor in files that are written */
    bool has_rope_factors; /* rope_freqs, rope_factors_long and _short are read */
    bool layer_norm;       /* the key of epsilon is layer_norm_epsilon */
    int window_every;      /* without a pattern: all but every n-th layer have the window; 0: no
                              layer has one, whatever the file says */
    int ffn_parts;         /* feed_forward_length is this many times F */
    gguf_need head;        /* output.weight; absent: the embedding */
    gguf_need qkv_bias, out_bias, mlp_bias, head_bias, norm_bias;
    unsigned experts; /* gguf_experts, added with |; 0: it has none */
} gguf_arch;

const gguf_arch *gguf_arch_find(const char *name); /* NULL: none that is a family here */
const gguf_arch *gguf_arch_at(int i);              /* NULL past the end */
/* The family that files of the architecture, with experts or without, are read as; NULL: none. */
const model_family *gguf_arch_family(const gguf_arch *arch, bool experts);

/* Sets the names of tensors by part, without ".weight"; fused: with one tensor for q, k and v. */
void gguf_name_parts(const gguf_arch *arch, bool fused, model_config *mc);

/* ---- metadata ---- */

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
/* Modules behind the layers of such a file, which are left out. */
status gguf_config_modules(const gguf_facts *f, int64_t *n, err *e) ATH_MUST_USE;
/* Rotary scaling: sets "rope_parameters" of a config object where the file has one
 * (gguf_rope.c). */
status gguf_rope_read(const gguf_facts *f, const gguf_arch *arch, json_t *o, err *e) ATH_MUST_USE;
/* Optional numbers under the architecture's name; absent ones leave *x. */
status gguf_arch_int(const gguf_facts *f, const gguf_arch *arch, const char *key, int64_t *x,
                     err *e) ATH_MUST_USE;
status gguf_arch_float(const gguf_facts *f, const gguf_arch *arch, const char *key, double *x,
                       err *e) ATH_MUST_USE;

/* ---- latent attention (gguf_latents.c) ---- */

/* Widths of latents and of heads. */
void gguf_latents_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p);
status gguf_latents_read(const gguf_facts *f, const gguf_arch *arch, json_t *o,
                         err *e) ATH_MUST_USE;

/* ---- a matrix that a file has as two tensors (gguf_halves.c) ---- */

typedef struct gguf_halves {
    char name[2][64];
    int rank;           /* of both */
    int64_t dims[2][3]; /* fastest first */
    int64_t cols;       /* of the matrix */
    int64_t rows[2];    /* the matrix has so many of the one, so many of the other, and so on */
    bool turned;        /* rows of the first are columns of its tensor */
} gguf_halves;
/* Whether files that are written have this parameter as two. */
bool gguf_halves_written(const gguf_arch *arch, const param *p);
gguf_halves gguf_halves_of(const model_config *mc, const param *p);
/* Number j of row i of one of them (which: 0 or 1) is element [*row, *col] of the matrix. */
void gguf_halves_place(const gguf_halves *s, int which, int64_t i, int64_t j, int64_t *row,
                       int64_t *col);

/* ---- linear layers (gguf_linear.c) ---- */

/* The option that such a file cannot express; NULL: none. */
const char *gguf_linear_lacks(const model_config *mc);
/* Widths of linear layers, which layers are, and the part beside experts. */
void gguf_linear_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p);
status gguf_linear_read(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                        err *e) ATH_MUST_USE;
/* Modules that predict further tokens, which a file counts among its layers. */
status gguf_linear_modules(const gguf_facts *f, const gguf_arch *arch, int64_t *n,
                           err *e) ATH_MUST_USE;
/* A number of PART_LINEAR_A_LOG as a file has it, below 0, and back. */
float gguf_linear_decay(float a_log);
float gguf_linear_a_log(float decay);

/* ---- an encoder and a decoder (gguf_encoder.c) ---- */

/* The option that such a file cannot express; NULL: none. */
const char *gguf_encoder_lacks(const model_config *mc);
void gguf_encoder_name_parts(model_config *mc);
void gguf_encoder_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p);
/* layers: those of the encoder. */
status gguf_encoder_read(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                         err *e) ATH_MUST_USE;

/* ---- deepseek2 (gguf_deepseek.c) ---- */

/* The option that such a file cannot express; NULL: none. */
const char *gguf_deepseek_lacks(const model_config *mc);
/* Its own keys; the options that they say; which of the two families a file is; yarn scaling. */
void gguf_deepseek_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p);
status gguf_deepseek_read(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                          err *e) ATH_MUST_USE;
status gguf_deepseek_family(const gguf_facts *f, const gguf_arch *arch, const model_family **out,
                            err *e) ATH_MUST_USE;
status gguf_deepseek_yarn(const gguf_facts *f, const gguf_arch *arch, json_t *rope,
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

/* ---- rows (gguf_rows.c) ----
 *
 * From rows of a file's tensors to rows of a store in the order of Hugging Face, for reading and
 * for writing. Four things differ:
 *   - which of q, k, v, and of gate, up, are one tensor
 *   - the order of rows that are rotated: pairs as neighbours, or in halves
 *   - rows that a file has by heads (ROWS_BY_HEAD): a store has all of one kind, then all of the next
 *   - norms of the kind (1 + w): the file holds 1 + w, the store w */

typedef struct gguf_rows {
    const model_config *file, *hf;
    const param_store *store;      /* in the host's memory; declared from hf */
    struct gguf_rows_layer *layer; /* outside, then each */
} gguf_rows;

gguf_rows gguf_rows_new(arena *a, const model_config *file, const model_config *hf,
                        const param_store *store);
/* p: a tensor of the file, as declared from r->file. Where the store has its row i (element i of a
 * vector), in the masters. NULL: the store has no such parameter. */
float *gguf_rows_at(const gguf_rows *r, const param *p, int64_t i);
/* What the file adds to each number of this vector: 1 or 0. */
float gguf_rows_offset(const gguf_rows *r, const param *p);

#endif
