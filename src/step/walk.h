/* A walk over the ops of a program that says where its parameters move; private to the module. */
#ifndef STEP_WALK_H
#define STEP_WALK_H

#include "step/step.h"

typedef struct walk walk;

walk *walk_new(arena *a, const param_store *s, const prog *p, step_table *out);
/* Appends one pass over the program. reduces: gradients are summed over ranks; last: afterwards the
 * step's gradients are complete. */
void walk_pass(walk *w, int micro_batch, bool reduces, bool last);
/* Waits for all that is under way. */
void walk_settle(walk *w);
void step_append(arena *a, step_table *t, step_entry e);

#endif
