/* Initial weights: published schemes, for every family (key init_scheme). */
#ifndef MODEL_INIT_H
#define MODEL_INIT_H

#include "model/layer.h"

/* What a matrix is, as far as its initial size goes. */
typedef enum init_role {
    INIT_ROLE_EMBED,
    INIT_ROLE_POSITIONS,
    INIT_ROLE_RELATIVE, /* biases by distance */
    INIT_ROLE_IN,       /* reads the residual stream: k, v, gate, up */
    INIT_ROLE_QUERY,    /* the same: q */
    INIT_ROLE_ATTN_OUT, /* writes it */
    INIT_ROLE_MLP_OUT,
    INIT_ROLE_HEAD,
} init_role;

/* How to draw a matrix of `in` columns in layer `l` (0 outside layers): kind, standard deviation,
 * and where it is cut off. Sources: init_scheme in keys.def, init.c. */
param_init init_of(const model_config *mc, init_role role, int l, int64_t in);

#endif
