/* What a fork may not change: it goes on with the weights and the optimizer's state of another run, so
 * all that decides which tensors these are stays. Looked at before anything is written. */
#ifndef TRAIN_FORK_H
#define TRAIN_FORK_H

#include "model/family.h"
#include "run/config/config.h"

/* The optimizer and the adapters. before: the config of the run. */
status fork_check_keys(const config *c, const config *before, err *e) ATH_MUST_USE;
/* The parameters of a model that is trained in full. dir: the checkpoint. */
status fork_check_model(const config *c, const model_config *mc, const char *dir,
                        err *e) ATH_MUST_USE;

#endif
