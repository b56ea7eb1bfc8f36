/* What one stage of a pipeline does in a step, in order: the passes of its schedule (schedule.h), and
 * between them what it sends to other stages and receives from them.
 *
 * All transfers of a rank go through one queue, in which the first one waits for the other rank. So
 * that no rank waits for ever, all ranks begin them in one common order: by the time at which what
 * is sent is ready in the schedule. A rank's own passes are in the order of that time, too, so
 * whatever the first transfer of all waits for has no other transfer before it.
 *
 * What comes lies in a box until the pass that needs it takes it: then it is copied to the inputs of
 * the pass, which earlier micro-batches may have used until then. A receive begins as soon as all
 * transfers before it have begun and a box is free.
 *
 * Interleaved stages work on micro-batches in groups of P, chunk after chunk. Of most chunks two groups are under way at a time,
 * so 2 P frames are theirs, which groups use in turn. Some time after the backward of a group its frame is used again, and of
 * certain two chunks, `mates`, each is idle exactly as long as the other is not: the frames of one hold an even group while
 * those of the other hold an odd one. So both may lie in the same 2 P places. */
#ifndef STEP_PIPELINE_H
#define STEP_PIPELINE_H

#include "base/arena.h"

typedef enum pipeline_action {
    PIPELINE_RECEIVE, /* begin to receive into a box what a pass of `chunk` needs */
    PIPELINE_TAKE,    /* wait for it, empty the box */
    PIPELINE_PASS,    /* the pass itself */
    PIPELINE_SEND     /* begin to send what the pass gave */
} pipeline_action;

typedef struct pipeline_event {
    pipeline_action action;
    bool back;    /* of the pass that gives and the pass that needs it */
    bool weights; /* PIPELINE_PASS: back, the part that makes weight gradients */
    int micro_batch;
    int chunk; /* of this stage: whose pass it is */
    int other; /* not of PIPELINE_PASS: the chunk of the other stage */
    int stage; /* that stage */
    int box;   /* RECEIVE, TAKE */
} pipeline_event;

typedef struct pipeline {
    pipeline_event *event;
    int n, stage, stages, chunks;
    bool splits; /* a pass back is two: of the chunk's input, and later of its weights */
    /* [chunks] Of this stage's chunks, else 0: most micro-batches between forward and the end of the
     * backward at a time; how many boxes for activations and for gradients */
    int *frames, *boxes[2];
    int *mate; /* [chunks] of this stage's chunks; -1: it has none */
    const bool *
        shares; /* [chunks] whether it lies in the places of its mate, which the plan decides; NULL: none does */
} pipeline;

/* kind: a schedule_kind. of_stage: chunks of a stage. ST_USAGE: as
 * schedule_build. */
status pipeline_build(arena *a, int kind, int stages, int micro_batches, int of_stage, int stage,
                      pipeline *out, err *e) ATH_MUST_USE;
/* Of a chunk of this stage: in which of its frames a micro-batch lies. */
int pipeline_frame(const pipeline *p, int chunk, int micro_batch);
/* How many sets of inputs and outputs a chunk has. They are its own where places are shared, since they are still being
 * sent when the place is free: frame f has set f % ports. */
int pipeline_ports(const pipeline *p, int chunk);
/* The stage that has a chunk. */
int pipeline_stage_of(int kind, int stages, int chunk);

#endif
