/* In which ways ranks can share a run: the tokens of its sequences, its experts, its layers. */
#ifndef APP_CONTEXTS_H
#define APP_CONTEXTS_H

#include "model/config.h"
#include "run/config/config.h"

/* A bit in *out for each context_kind. cp, context: what is asked for; 0 and -1: nothing is. ST_USAGE: that cannot be. */
status contexts_find(config *c, const model_config *mc, int cp, int context, unsigned *out,
                     err *e) ATH_MUST_USE;
/* Whether ranks can share out its experts, and whether it runs in stages. ep, zero, pp: what is asked for; 0, -1 and 0: nothing is.
 * c, of a run whose layout is still open, gets that ep and zero. ST_USAGE: what is asked for cannot be. */
status experts_find(config *c, const model_config *mc, int ep, int zero, bool *out,
                    err *e) ATH_MUST_USE;
status stages_find(const config *c, const model_config *mc, int pp, bool *out, err *e) ATH_MUST_USE;

#endif
