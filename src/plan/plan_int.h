/* What the files of the module share; private to it. */
#ifndef PLAN_PLAN_INT_H
#define PLAN_PLAN_INT_H

#include "plan/plan.h"

/* programs.c: records what the specs of all phases ask for. */
status plan_record_programs(plan *p, err *e) ATH_MUST_USE;

/* The program of the selected phase; NULL: it has none for that use. */
plan_program *plan_find(const plan *p, plan_use use, int number);

/* Whether training frames begin with the gradients: a step is one micro-batch of one chunk, and its
 * gradients are flat fp32 (units.h). */
bool plan_grads_in_frame(const plan_spec *s);
/* The cache, after plan_commit. */
void *plan_cache(const plan *p);
int plan_tp(const plan_spec *s); /* how many tensor-parallel ranks */

#endif
