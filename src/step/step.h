/* The step table: what happens in one optimizer step, in order. One builder per schedule makes it;
 * the trainer executes it, the planner simulates it. Entries that later schedules add (send, recv)
 * join the enum.
 *
 * A chunk is a run of layers, a program of its own. A micro-batch goes forward through all chunks
 * and back. A frame is memory for the activations of one micro-batch in one chunk, from its forward
 * to its backward: with k frames, k micro-batches are under way at a time.
 *
 * Reading order: this file, step.c (the order of micro-batches and chunks), walk.c (where units of
 * parameters are gathered and reduced within the programs), unit_calls.h (by which collectives),
 * names.c. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "base/arena.h"
#include "param/units.h"
#include "prog/prog.h"

typedef enum step_action {
    STEP_FILL,      /* the inputs of a program for a micro-batch */
    STEP_FORWARD,   /* ops first .. end - 1 of the program */
    STEP_PASS_ON,   /* what chunk `chunk` made is what the next chunk takes */
    STEP_LOSS,      /* the micro-batch has been through all chunks */
    STEP_PASS_BACK, /* the gradient of that, from the next chunk to chunk `chunk` */
    STEP_BACKWARD,  /* ops first .. end - 1 */
    STEP_GATHER,    /* begins to bring a unit's weights to its slot */
    STEP_GATHERED,  /* waits for that */
    STEP_REDUCE,    /* begins to sum a unit's gradients over the ranks */
    STEP_REDUCED,   /* waits for that */
    STEP_OPTIMIZER
} step_action;

typedef struct step_entry {
    step_action action;
    int model; /* 0: the one that is trained; others are only looked at, forward */
    int chunk; /* of it */
    int frame; /* where the micro-batch's activations lie */
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

/* What a step is made of. */
typedef struct step_parts {
    const param_store *store; /* of the model that is trained */
    const prog *const *chunk; /* [chunks] its training programs, the first layers first */
    int chunks;
    /* [looks] Of the other models, which see every micro-batch before it is trained on: forward. */
    const prog *const *look;
    int looks;
    int micro_batches;
    int frames;   /* micro-batches under way at a time, at most */
    bool reduces; /* several ranks have gradients */
} step_parts;

/* Micro-batches in groups of as many as there are frames: all of a group forward, then all back, in
 * the same order; then the optimizer. With one frame this is plain gradient accumulation, with as
 * many as micro-batches "all forward, all backward" (AFAB; Huang et al. 2019).
 *
 * Where gradients are whole on every rank (zero 0, 1), a unit's are summed when the last
 * micro-batch has completed them, while the backward goes on; where they are in slots (zero 2, 3),
 * after every micro-batch, since the next units need the slots: there is one frame then. Weights in
 * slots (zero 3) are gathered one unit ahead of their use, in forward, backward and recompute; what
 * a slot still holds is not gathered again. */
step_table step_build(arena *a, const step_parts *parts);
/* The program of an entry. */
const prog *step_prog_of(const step_parts *parts, const step_entry *e);
/* One pass of a program without backward: validation, sampling. */
step_table step_build_pass(arena *a, const param_store *s, const prog *p);

/* Names what ranks compute, for reports of those that hang. */
void step_name_entries(arena *a, step_table *t, const step_parts *parts);

#endif
