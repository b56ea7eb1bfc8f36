/* Steps without data or a run folder: the plan, step table and programs of `train` on random ids,
 * alone or as one of several ranks. Sample i is a function of i and the seed, so every layout
 * computes on the same samples. */
#ifndef TRAIN_TRIAL_H
#define TRAIN_TRIAL_H

#include "train/execute.h"

/* Drops what a trial has no use for: validation, samples, a tokenizer that is not needed. */
void trial_trim_config(config *c);
/* Plans, reserves memory and initialises weights from the seed. The learning rate stays at
 * optim.lr. `c` is trimmed and must outlive the session; world NULL: alone. s is to be closed in
 * any case. */
status trial_open(session *s, arena *a, config *c, comm_world *world, err *e) ATH_MUST_USE;
/* One optimizer step; ST_NONFINITE when there was no update. */
status trial_step(session *s, step_times *times, step_result *r, err *e) ATH_MUST_USE;
/* The same; `reduced` is told as step_source says. */
status trial_step_watched(session *s, void (*reduced)(session *s, void *ctx), void *ctx,
                          step_result *r, err *e) ATH_MUST_USE;

#endif
