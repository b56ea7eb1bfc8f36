/* What the tensors of a model are called, for its parameters (declare.c) and its forward pass
 * (transformer.c). */
#ifndef MODEL_PARTS_H
#define MODEL_PARTS_H

#include "model/family.h"

enum { MODEL_NAME_BYTES = 256 };

/* Name of a part in layer l, without ".weight"; empty when there is no such tensor. */
void model_part_name(const model_config *mc, model_part part, int l, char out[MODEL_NAME_BYTES]);
/* Name under which parts of one input are multiplied as one: the first one's with another end. */
void model_pack_name(const model_config *mc, model_part first, int l, const char *end,
                     char out[MODEL_NAME_BYTES]);

/* Key heads of one of tp ranks: where there are fewer than ranks, each has one that others have
 * too. */
static inline int64_t model_local_kv_heads(const attention_layer *a, int tp) {
    return a->K > tp ? a->K / tp : 1;
}

/* A parameter or pack by name, in a recording; VAL_NONE when the model does not have it. */
val model_named(model_rec *r, const char *name, const char *suffix);

#endif
