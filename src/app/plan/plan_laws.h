/* What published laws say of the run of a config (plan/published/laws.h), and how often its sources are read. */
#ifndef APP_PLAN_LAWS_H
#define APP_PLAN_LAWS_H

#include "plan/plan.h"
#include "plan/published/laws.h"
#include "run/config/config.h"

/* False: the laws do not speak of it. They are of models that begin with random weights and learn to write on, for a known length. */
bool plan_laws_run(const config *c, const plan *p, laws_run *out);
/* One for each set of shards of data.train that is there: [{path, tokens, epochs, worth}]; none of a run with stages. */
json_t *plan_epochs_json(const config *c, double tokens);
void plan_epochs_describe(const json_t *epochs, strbuf *out);

#endif
