/* Steps without data and without a run folder: the plan, step table and programs of `train` on
 * random ids, alone or as one of several ranks. Used by `bench train`, by `verify layouts` and by
 * the check before a run on several ranks (layouts/preflight.c). Sample i depends on i and the seed
 * alone, so every layout computes the same samples. */
#ifndef TRAIN_TRIAL_H
#define TRAIN_TRIAL_H

#include "train/execute.h"

/* Removes from a config what a trial does not use: validation, samples, and the tokenizer unless
 * the model takes its vocabulary from it. */
void trial_trim_config(config *c);
/* Opens a session whose weights are initialised from the seed and whose learning rate stays
 * optim.lr. `c` is trimmed, and must outlive the session. world NULL: one rank. Takes `a`. Call
 * trial_close even when this fails. measures: this machine may be measured, as `train` does. */
status trial_open(session *s, arena *a, config *c, comm_world *world, bool measures,
                  err *e) ATH_MUST_USE;
/* Closes a trial that has ended with that status. To close waits for the other ranks, which may wait for this one:
 * so the world learns before why a rank has failed, unless all find the same (ST_NONFINITE). */
void trial_close(session *s, comm_world *world, status st, const err *why);
/* One optimizer step. ST_NONFINITE: loss or norm is NaN or Inf, and there was no update. times may
 * be NULL; `reduced` is called as in step_source (execute.h), NULL: not. */
status trial_step(session *s, step_times *times, void (*reduced)(session *s, void *ctx), void *ctx,
                  step_result *r, err *e) ATH_MUST_USE;

#endif
