/* The step table: what happens in one optimizer step, in order. One builder per schedule makes it;
 * the trainer executes it, the planner simulates it. Entries that later schedules add (send, recv)
 * join the enum.
 *
 * Reading order: this file, step.c (accumulation: micro-batches one after the other), walk.c (where
 * units of parameters are gathered and reduced within a program), unit_calls.h (by which
 * collectives), names.c. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "base/arena.h"
#include "param/units.h"
#include "prog/prog.h"

typedef enum step_action {
    STEP_FILL,     /* the inputs of a micro-batch */
    STEP_FORWARD,  /* ops first .. end - 1 of its program */
    STEP_LOSS,     /* its outputs have been computed */
    STEP_BACKWARD, /* ops first .. end - 1 */
    STEP_GATHER,   /* begins to bring a unit's weights to its slot */
    STEP_GATHERED, /* waits for that */
    STEP_REDUCE,   /* begins to sum a unit's gradients over the ranks */
    STEP_REDUCED,  /* waits for that */
    STEP_OPTIMIZER
} step_action;

typedef struct step_entry {
    step_action action;
    int chunk; /* run of layers; 0 without pipeline */
    int micro_batch;
    int first, end; /* ops */
    int unit;
    bool add;         /* reduce: to the sums of earlier micro-batches */
    bool last;        /* reduce: these are the step's gradients */
    const char *name; /* step_name_entries; NULL: none */
} step_entry;

typedef struct step_table {
    step_entry *entry;
    int n, cap, micro_batches;
    int frames_in_flight; /* forward passes whose backward has not run, at most */
} step_table;

/* Gradient accumulation: micro-batches one after the other through the training program p, then the
 * optimizer. `reduces`: several ranks have gradients. Where they are whole on every rank (zero 0,
 * 1), a unit's are summed when the last micro-batch has completed them, while the backward goes on;
 * where they are in slots (zero 2, 3), after every micro-batch, since the next units need the
 * slots. Weights in slots (zero 3) are gathered one unit ahead of their use, in forward, backward
 * and recompute; what a slot still holds is not gathered again. */
step_table step_build_accumulation(arena *a, const param_store *s, const prog *p, int micro_batches,
                                   bool reduces);
/* One pass of a program without backward: validation, sampling. */
step_table step_build_pass(arena *a, const param_store *s, const prog *p);

/* Names what ranks compute, for reports of those that hang. */
void step_name_entries(arena *a, step_table *t, const prog *p);

#endif
