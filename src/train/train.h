/* The training run: from a config to a trained model in a run folder.
 *
 * Reading order: this file, session.h (also where events go) and the headers of its parts (setup.h:
 * what a run is made of; course/course.h: stages and steps as a table; stage.h: where the run is, and
 * the current stage; guard/watch.h: which steps are spikes; save/save.h and save/state.h: checkpoints
 * and resume). Then train.c (opening in order of cost), loop.c (steps and what happens between them),
 * execute.h (one step), events.h and alarms.c, ranks/peers.h (the other ranks), ranks/trace.h (a
 * step's timeline), validate.c, samples.c, gradients.c (--dump-grads). Not part of a run:
 * layouts/trial.h (steps without data), layouts/layouts.h and layouts/matrix.h (whether a layout of
 * ranks computes what one rank computes), bench/bench.h.
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
#include "train/course/course.h"

typedef struct train_options {
    const char *fork; /* continue in this new run folder, from the newest checkpoint; or NULL */
    bool fresh;       /* start again from step 0 in an existing run folder */
    /* Set by a signal handler: the run saves after the step it is in and returns ST_STOPPED. */
    const volatile sig_atomic_t *stop;
    /* All ranks of the run; NULL: this process alone. Rank 0 prints and writes for all. */
    comm_world *world;
    const char *trace;   /* file for a timeline of trace_steps steps; NULL: none */
    int64_t trace_steps; /* steps */
    const char *copy; /* a folder with a copy of the newest checkpoint, as a run has it; or NULL */
    const char
        *restart; /* JSON of the launcher: after which loss and how this start goes on; or NULL */
    void (*on_event)(void *ctx, const json_t *event); /* each event, on rank 0; may be NULL */
    void (*on_plan)(void *ctx, const char *table);    /* the memory table, once, before step 1 */
    /* How much of a task is done, while a checkpoint is evaluated; may be NULL. */
    void (*on_task)(void *ctx, const char *task, int64_t done, int64_t all);
    void *ctx; /* of these */
} train_options;

/* Trains to the end that the config sets, from the newest checkpoint in the run folder if there is
 * one. Every rank calls it. `c` gets its resolved values (precision, say). ST_STOPPED: after a
 * signal, with the state saved. ST_NONFINITE: a loss or gradient is NaN or Inf; the error names
 * step, op and tensor. */
status train_run(config *c, const train_options *opt, err *e) ATH_MUST_USE;

/* The plan of a config, made on the meta device without data: `athanor plan`. The caller frees the plan and
 * closes the device. */
status train_plan(config *c, dev *meta, plan **out, err *e) ATH_MUST_USE;
/* The same with the course that it is for, which the caller frees before the config; NULL: none was made. It knows the length of
 * train.epochs where tokenizer and data are there. */
status train_plan_course(config *c, dev *meta, plan **out, course **of, err *e) ATH_MUST_USE;
/* The same of steps without data (`bench train`): c is trimmed to what these use. */
status train_plan_trial(config *c, dev *meta, plan **out, err *e) ATH_MUST_USE;

/* The same of the run that such a start would begin or go on with: `train --dry-run`. What has to be kept of the run in
 * the folder is kept, keys that may not change are refused, and it is looked ahead (lint.h); nothing is written. With opt->fork c->run becomes the new
 * folder. */
status train_plan_start(config *c, const train_options *opt, dev *meta, plan **out,
                        err *e) ATH_MUST_USE;

/* Computes loss and gradients of one batch of ids [B,T+1] from an .npy file, and writes the
 * gradients under Hugging Face names; no update. */
status train_dump_gradients(config *c, const char *ids_file, const char *out_file, double *loss,
                            err *e) ATH_MUST_USE;

#endif
