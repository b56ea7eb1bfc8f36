/* What the axes of a parallel layout ask of a config and of the model that it trains. Whether numbers divide says shares.h. */
#ifndef TRAIN_AXES_H
#define TRAIN_AXES_H

#include "model/config.h"
#include "run/config/config.h"

/* ST_USAGE: the axes of the config do not go together, or not with optimizer and adapters; other checks ask the model. */
status axes_check(const config *c, err *e) ATH_MUST_USE;
/* ST_USAGE: what the config trains, a model mc, does not run in stages of a pipeline. */
status axes_check_stages(const config *c, const model_config *mc, err *e) ATH_MUST_USE;
/* ST_USAGE: context-parallel ranks cannot share the tokens of what the config trains. */
status axes_check_context(const config *c, const model_config *mc, err *e) ATH_MUST_USE;
/* The same for ranks that share out experts (parallel.ep). */
status axes_check_experts(const config *c, const model_config *mc, err *e) ATH_MUST_USE;
/* Those of the axes that the config has. */
status axes_check_model(const config *c, const model_config *mc, err *e) ATH_MUST_USE;

#endif
