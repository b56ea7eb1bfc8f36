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

/* Recording: y is the product of x and the matrix of that part in stored layer l. Returns y plus
 * what the adapters of that matrix add; y itself where it has none. Called before tensor-parallel
 * ranks sum y. */
val model_adapt(model_rec *r, model_part part, int l, val x, val y);
/* The two matrices of those adapters; false: there are none. */
bool model_adapters_of(model_rec *r, model_part part, int l, val *a, val *b);
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
/* Embeddings of ids [B*T,1] on all ranks, with learned positions where the model has some; pos
 * VAL_NONE: without. */
val model_embed(model_rec *r, val ids, val pos);
/* A block of the residual stream. */
val model_record_block(model_rec *r, int l, val x);

/* ---- modules of multi-token prediction (ahead.c); l is that of a module's block ---- */

/* This program belongs to a run that trains the modules, and it is the one that has them. */
bool model_trains_modules(const model_rec *r);
bool model_trains_ahead(const model_rec *r);
/* The norm before the head behind block l: the final norm, or a module's. */
val model_head_norm(model_rec *r, int l, val x);
/* What goes into a module's block: h is the norm's output before it, ids are the tokens to embed. */
val model_join(model_rec *r, int l, val h, val ids);
/* All modules behind h; out[D] gets the outputs of their norms. */
void model_record_ahead(model_rec *r, val h, val *out);

/* The branches of layer l, which is k with the heads and widths of this rank: what each adds to the residual stream, before norms after
 * it and scales. x: what model_record's block gives it, already handed to all tensor-parallel ranks. */
val model_linear_attention(model_rec *r, int l, const layer_spec *k, val x);
val model_attention(model_rec *r, int l, const layer_spec *k, val x);
/* Latent attention, before its output product. */
val model_latent_attention(model_rec *r, int l, const layer_spec *k, val x);
/* Appends fresh rows [B*T, K*D] to the layer's cache of keys or values, a head after the other; the
 * same of a cache of pages. which: 'k' or 'v'. */
val model_cached(model_rec *r, int l, char which, int64_t K, int64_t D, val fresh);
val model_page_cached(model_rec *r, int l, char which, int64_t K, int64_t D, val fresh);
/* Attention of a layer to keys and values of the same tokens or, with a cache, of that (context.c). */
val model_attend(model_rec *r, const layer_spec *k, val q, val key, val value);
/* The inputs of attention where context-parallel ranks share tokens. */
void model_context_inputs(model_rec *r);
/* The layer's sinks; VAL_NONE: it has none. */
val model_sinks(model_rec *r, const layer_spec *k);
/* What the attention ops are told of this recording, and of a layer with the heads and widths of this
 * rank. */
op_attention model_attention_spec(const model_rec *r, const attention_layer *a);
op_paged model_paged_spec(const model_rec *r, const attention_layer *a);
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
