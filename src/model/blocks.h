/* Parts that families share. Names of parameters are given by the family through a prefix and
 * suffixes. */
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "model/family.h"

/* Declares a matrix [out,in] and, if bias, its vector: PREFIX.weight, PREFIX.bias. */
void block_declare_linear(param_store *s, const char *prefix, int64_t out, int64_t in, bool bias,
                          double std, bool transposed);
/* A table of rows that are looked up: PREFIX.weight [rows,width]. */
void block_declare_table(param_store *s, const char *prefix, int64_t rows, int64_t width,
                         double std);
void block_declare_norm(param_store *s, const char *prefix, int64_t width, bool bias);

/* Several projections of one input that are multiplied as one: PREFIX.PART_proj.weight and, if
 * bias, .bias for each part, packed as PREFIX.PACK.weight and PREFIX.PACK.bias. */
typedef struct block_part {
    const char *name;
    int64_t width;
} block_part;
void block_declare_packed(param_store *s, const char *prefix, const char *pack,
                          const block_part *parts, int n, int64_t in, bool bias, double std);

/* x w^T + bias of PREFIX.weight and PREFIX.bias (if it exists). */
val block_linear(model_rec *r, const char *prefix, val x);

/* Attention over a packed qkv [B*T, (H+2K)*D] whose rotary part is done: splits, appends to the
 * cache if there is one, attends. layer selects the cache. Returns [B*T, H*D]. */
val block_attention(model_rec *r, int layer, val qkv, float dropout);

/* Table [rows, D] of cosines and sines for the model's rotary settings. */
val block_rope_table(model_rec *r, int64_t rows);
/* Inverse frequencies after scaling: out[rotary_dim/2]. Llama-3 scaling as in transformers (smooth
 * blend by wavelength). */
void block_rope_frequencies(const model_config *mc, int rotary_dim, double *out);

#endif
