/* Adapters: parameters that are trained beside frozen ones. */
#ifndef MODEL_ADAPTERS_H
#define MODEL_ADAPTERS_H

#include "model/family.h"

/* Declares all parameters of the model, frozen, and the adapters of its layers' matrices. One
 * tensor-parallel rank. */
void model_declare_adapted(const model_config *mc, const model_adapters *ad, param_store *s);
/* y = x W^T of the matrix NAME, with what its adapters add; y itself where it has none. */
val model_adapt(model_rec *r, const char *name, val x, val y);

#endif
