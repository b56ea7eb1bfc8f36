/* Adapters: small matrices that are trained while the model's own weights are frozen (adapters.c
 * has the mathematics). */
#ifndef MODEL_ADAPTERS_H
#define MODEL_ADAPTERS_H

#include "model/family.h"

/* Instead of model_declare: adds all parameters of the model, frozen, then two matrices for each
 * matrix of its layers. Not with tensor-parallel ranks. */
void model_declare_adapted(const model_config *mc, const model_adapters *ad, param_store *s);
/* Recording: y is the product of x and the matrix NAME. Returns y plus what the adapters of that
 * matrix add; y itself where it has none. */
val model_adapt(model_rec *r, const char *name, val x, val y);

#endif
