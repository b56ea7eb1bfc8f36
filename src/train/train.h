/* The training run: from a config to a trained model in a run folder.
 *
 * Reading order: this file, session.h (everything a run holds), course/course.h (the run as
 * arithmetic), session.c (opening it), loop.c (steps and events), enter.c (from stage to stage),
 * execute.c (one step), peers.h (the other ranks), trace.h (a step's timeline), state.c, save.c and
 * saver.c (checkpoints and resume), validate.c, samples.c, guard/watch.h (which steps are spikes),
 * gradients.c (--dump-grads). Beside them: trial.h (steps without data), layouts.h and preflight.h
 * (whether a layout computes what one rank does).
 *
 * Events are JSON objects with `event` = start, stage, step, valid, sample, checkpoint, alarm, end.
 * Each is appended to RUN/metrics.jsonl and given to the caller. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include <jansson.h>
#include <signal.h>

#include "comm/comm.h"
#include "plan/plan.h"
#include "run/config/config.h"

typedef struct train_options {
    const char *fork; /* go on in this new run folder, from the newest checkpoint */
    bool fresh;       /* start anew in an existing run folder */
    const volatile sig_atomic_t *stop; /* set by a signal handler: save and return ST_STOPPED */
    comm_world
        *world; /* the ranks of the run; NULL: this process alone. Rank 0 speaks and writes. */
    const char *trace; /* file for a timeline of trace_steps steps; NULL: none */
    int64_t trace_steps;
    void (*on_event)(void *ctx, const json_t *event); /* may be NULL */
    void (*on_plan)(void *ctx,
                    const char *table); /* the memory table, before step 1; may be NULL */
    void *ctx;
} train_options;

/* Trains until config says, resuming what the run folder holds. `c` gets its resolved values
 * (precision). ST_STOPPED after a signal, ST_NONFINITE naming step, op and tensor. */
status train_run(config *c, const train_options *opt, err *e) ATH_MUST_USE;

/* The plan of a config, made on the meta device without data: `athanor plan`, `train --dry-run`.
 * The caller frees the plan and closes the device. */
status train_plan(config *c, dev *meta, plan **out, err *e) ATH_MUST_USE;

/* Loss and gradients of one batch of ids [B,T+1] from an .npy file, written by Hugging Face names;
 * no update. */
status train_dump_gradients(config *c, const char *ids_file, const char *out_file, double *loss,
                            err *e) ATH_MUST_USE;

#endif
