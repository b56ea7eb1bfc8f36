/* The short training run on which `verify resume` tries a config: the same model, data, optimizer
 * and precision, in few steps.
 *
 * A trial of N steps goes through everything the run would: where the run is longer, the steps at
 * which something happens (ends of stages, warm-up, decay, milestones, growth of the batch) are
 * scaled by N / length, so that every stage gets steps of its own. Each step has a digest, and
 * checkpoints come every few steps. What does not decide weights is left out or made rare: samples,
 * uploads, most validation, early stopping. A guard that would rewind only logs, since how far it
 * goes back depends on where checkpoints lie, and a stopped run has one more. */
#ifndef APP_RESUME_TRIAL_H
#define APP_RESUME_TRIAL_H

#include <jansson.h>

#include "train/course/course.h"

/* The course of the whole run; with train.epochs its length is about right for packings other than
 * concat. */
status resume_trial_course(course **out, const config *c, err *e) ATH_MUST_USE;
/* The fewest steps in which every stage has some. */
int64_t resume_trial_least_steps(const course *whole);
/* The config of the trial, for training in `run`; `steps` at most those of the run, saved every
 * `save_every`. The caller owns it. */
json_t *resume_trial_config(const config *c, const course *whole, const char *run, int64_t steps,
                            int64_t save_every);

#endif
