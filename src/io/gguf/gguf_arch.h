/* What llama.cpp knows of the architectures that are families here: what it calls their tensors,
 * how it turns positions, which tensors a file may or must have. Facts of its model loader and of
 * its converter; whoever adds an architecture adds one row.
 *
 * Reading order: this table, gguf_config.h (metadata), gguf_rows.h (rows of weights), gguf_model.h
 * (files). */
#ifndef IO_GGUF_ARCH_H
#define IO_GGUF_ARCH_H

#include "model/family.h"

/* Whether a file of the architecture has something. */
typedef enum gguf_need { GGUF_NEVER, GGUF_MAY, GGUF_MUST } gguf_need;

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
} gguf_arch;

const gguf_arch *gguf_arch_find(const char *name); /* NULL: none that is a family here */
const gguf_arch *gguf_arch_at(int i);              /* NULL past the end */
/* The family that files of the architecture are read as; NULL: none. */
const model_family *gguf_arch_family(const gguf_arch *arch);

/* Names of tensors by part, without ".weight"; fused: with one tensor for q, k and v. */
const char *const *gguf_part_names(bool fused);

#endif
