/* A walk over the ops of the training programs. It appends them to the table, and between them the
 * gathers and reductions of units that they need. Private to the module. */
#ifndef STEP_WALK_H
#define STEP_WALK_H

#include "step/step.h"

typedef struct walk walk;

/* `parts` is read until the walk ends. */
walk *walk_new(arena *a, const step_parts *parts, step_table *out);
/* Appends a micro-batch's pass through one chunk, forward or back, and what it passes on to or takes from
 * another chunk of this rank. last: this is the last micro-batch of the step to go back. */
void walk_forward(walk *w, int chunk, int micro_batch, int frame);
void walk_backward(walk *w, int chunk, int micro_batch, int frame, bool last);
/* The same of weight gradients that the program makes behind its backward (graph_options.split_backward). */
void walk_weights(walk *w, int chunk, int micro_batch, int frame, bool last);
/* Whether forward passes end with STEP_TALLY. */
void walk_take_tallies(walk *w, bool takes);
/* Appends a pass forward through one chunk that only counts: to the head, which would make gradients. */
void walk_count(walk *w, int chunk, int micro_batch);
/* Appends a forward pass of another model (step_parts.look) over the micro-batch. Nothing is
 * gathered: data-parallel ranks do not share the parameters of other models. */
void walk_look(walk *w, int look, int micro_batch);
/* Appends waits for all gathers and reductions that are under way. */
void walk_settle(walk *w);
void step_append(arena *a, step_table *t, step_entry e);

#endif
