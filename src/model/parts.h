/* Names of a model's tensors, and how the forward pass finds them; for declare.c, adapters.c and
 * the files of the forward pass (transformer.c). */
#ifndef MODEL_PARTS_H
#define MODEL_PARTS_H

#include "model/family.h"

enum { MODEL_NAME_BYTES = 256 };

/* Name of a part in stored layer l, without ".weight"; l is not used outside of the layers. Empty:
 * the family has no such tensor. */
void model_part_name(const model_config *mc, model_part part, int l, char out[MODEL_NAME_BYTES]);
/* The same of expert number `expert`. */
void model_expert_name(const model_config *mc, model_part part, int l, int expert,
                       char out[MODEL_NAME_BYTES]);
/* Name of the pack of all experts' matrices of a layer: "...experts.gate_up_proj". */
void model_experts_name(const model_config *mc, int l, const char *end, char out[MODEL_NAME_BYTES]);
/* Name of the pack that begins with the part `first`: that part's name, with `end` instead of its
 * last word. "...self_attn.q_proj" and "qkv_proj" give "...self_attn.qkv_proj". */
void model_pack_name(const model_config *mc, model_part first, int l, const char *end,
                     char out[MODEL_NAME_BYTES]);

/* Key/value heads of one of tp ranks. Where there are fewer heads than ranks, each rank has one,
 * which others have, too. */
static inline int64_t model_local_kv_heads(const attention_layer *a, int tp) {
    return a->K > tp ? a->K / tp : 1;
}

/* Recording: y is the product of x and the matrix of that part in stored layer l. Returns y plus
 * what the adapters of that matrix add; y itself where it has none. Called before tensor-parallel
 * ranks sum y. */
val model_adapt(model_rec *r, model_part part, int l, val x, val y);
/* The parameter or pack NAME + SUFFIX as a value of the recording; VAL_NONE: the model has none. */
val model_named(model_rec *r, const char *name, const char *suffix);
/* The weight of a part; VAL_NONE: the model has none. */
val model_weight(model_rec *r, model_part part, int l);
/* x W^T + b of the matrix or pack of that name; VAL_NONE when there is none. */
val model_named_product(model_rec *r, const char *name, val x);
/* The same of a part, with its adapters. */
val model_product(model_rec *r, model_part part, int l, val x);
/* The product whose outputs are summed over tensor-parallel ranks: its bias is added to the sum. */
val model_out_product(model_rec *r, model_part part, int l, val x);
/* Whether norms multiply by 1 + w. */
bool model_norm_offset(const model_config *mc);
/* The norm of a part. width: of one group, 0 for whole rows. */
val model_norm(model_rec *r, model_part part, int l, val x, int64_t width);
/* The branches of layer l, which is k with the heads and widths of this rank: what each adds to the residual stream, before norms after
 * it and scales. x: what model_record's block gives it, already handed to all tensor-parallel ranks. */
val model_attention(model_rec *r, int l, const layer_spec *k, val x);
/* Attention of a decoder's layer to what the encoder made. */
val model_cross_attention(model_rec *r, int l, const layer_spec *k, val x);
/* Puts the keys and values that this layer's attention to the encoder reads into its cache (TASK_ENCODE). */
void model_cache_source(model_rec *r, int l, const layer_spec *k);
/* Biases by distance that a stack's layers share (relative.c), one row for each distance, and the row of distance 0. */
val model_relative(model_rec *r, bool encoder);
int model_relative_zero(const model_config *mc, bool encoder);
val model_feed_forward(model_rec *r, int l, const layer_spec *k, val x);
/* Behind the last layer: the loss of what the routers of all layers did together, if there is one. */
void model_balance(model_rec *r);

#endif
