/* In which ways ranks can share the tokens of a run's sequences. */
#ifndef APP_CONTEXTS_H
#define APP_CONTEXTS_H

#include "model/config.h"
#include "run/config/config.h"

/* A bit in *out for each context_kind. cp, context: what is asked for; 0 and -1: nothing is. ST_USAGE: that cannot be. */
status contexts_find(config *c, const model_config *mc, int cp, int context, unsigned *out,
                     err *e) ATH_MUST_USE;

#endif
