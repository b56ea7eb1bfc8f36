/* What published laws say of the run of a config (plan/published/laws.h), and how often its sources are read. */
#ifndef APP_PLAN_LAWS_H
#define APP_PLAN_LAWS_H

#include "plan/plan.h"
#include "plan/published/laws.h"
#include "run/config/config.h"
#include "train/course/course.h"

/* Of the whole model and all stages of the course; tokens 0: how long it is is not known. False: the laws do not speak of it.
 * They are of models that begin with random weights and learn to write on, for a known length. */
bool plan_laws_run(const config *c, const plan *p, const course *k, laws_run *out);
/* `laws` and `epochs` of a run of which the laws speak: members of o, or text where o is NULL. */
void plan_laws_put(const config *c, const laws_run *r, json_t *o, strbuf *text);

#endif
