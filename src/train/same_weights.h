/* Whether the model of a run that starts from weights (`model.from`) has the weights that lie there: keys of the config beside
 * it may change what is computed with them (rope_theta), not their names and sizes. Rows for new tokens (vocabulary.h), a
 * head of labels, and modules that are left out are no difference. */
#ifndef TRAIN_SAME_WEIGHTS_H
#define TRAIN_SAME_WEIGHTS_H

#include "model/config.h"
#include "run/config/config.h"

/* Reads no weights, only the folder's config.json. ST_USAGE names the key with which the first difference comes. */
status same_weights_check(const config *c, const model_config *m, err *e) ATH_MUST_USE;

#endif
