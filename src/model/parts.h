/* Names of a model's tensors, and how the forward pass finds them; for declare.c, transformer.c and
 * adapters.c. */
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

#endif
