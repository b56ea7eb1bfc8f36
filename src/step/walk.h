/* A walk over the ops of the training programs that says where their parameters move; private to
 * the module. */
#ifndef STEP_WALK_H
#define STEP_WALK_H

#include "step/step.h"

typedef struct walk walk;

/* `parts` is read until the walk ends. */
walk *walk_new(arena *a, const step_parts *parts, step_table *out);
/* Appends a micro-batch's pass through one chunk, forward or back. last: no other comes back after
 * it in this step. */
void walk_forward(walk *w, int chunk, int micro_batch, int frame);
void walk_backward(walk *w, int chunk, int micro_batch, int frame, bool last);
/* Another model looks at it. Its parameters are all there, whatever the store shares. */
void walk_look(walk *w, int look, int micro_batch);
/* Waits for all that is under way. */
void walk_settle(walk *w);
void step_append(arena *a, step_table *t, step_entry e);

#endif
