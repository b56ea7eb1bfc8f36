/* Private to the module. */
#ifndef PLAN_PLAN_INT_H
#define PLAN_PLAN_INT_H

#include "plan/plan.h"

/* programs.c: records what the specs of all phases ask for. */
status plan_record_programs(plan *p, err *e) ATH_MUST_USE;

/* The program of the selected phase; NULL: it has none for that use. */
plan_program *plan_find(const plan *p, plan_use use, int number);

/* Whether the frame begins with the gradients. */
bool plan_grads_in_frame(const plan_spec *s);
int plan_tp(const plan_spec *s);

#endif
