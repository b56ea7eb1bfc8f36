/* The step table: what happens in one optimizer step, in order. One builder per schedule makes it;
 * the trainer executes it, the planner simulates it. Entries that later schedules add (send, recv,
 * gather, reduce) join the enum. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "base/arena.h"

typedef enum step_action { STEP_FORWARD, STEP_BACKWARD, STEP_OPTIMIZER } step_action;

typedef struct step_entry {
    step_action action;
    int chunk; /* run of layers; 0 without pipeline */
    int micro_batch;
} step_entry;

typedef struct step_table {
    step_entry *entry;
    int n, micro_batches;
    int frames_in_flight; /* forward passes whose backward has not run, at most */
} step_table;

/* Gradient accumulation on one rank: F0 B0 F1 B1 ... optimizer. One frame is in flight. */
step_table step_build_accumulation(arena *a, int micro_batches);

#endif
