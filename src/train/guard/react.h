/* What follows when a step is not as it should be: a spike, or a number that is not finite. */
#ifndef TRAIN_REACT_H
#define TRAIN_REACT_H

#include "train/execute.h"

/* Writes the alarm of a spike, with the step's documents, the most suspicious first. If the verdict
 * is WATCH_REWIND, goes back to the last checkpoint and leaves the step's samples out from then on.
 * ST_NONFINITE: the run has gone back too often. */
status react_to_spike(session *s, const step_result *r, err *e) ATH_MUST_USE;

/* nonfinite.c: runs the micro-batches of the coming step again, op by op, and fills e with the
 * first tensor that is not finite (ST_NONFINITE). first_sample: this rank's first one in the
 * step. */
status react_to_nonfinite(session *s, uint64_t first_sample, float grad_scale, err *e) ATH_MUST_USE;
/* The same for one pass of a program whose inputs are still in place. ST_OK: everything is
 * finite. */
status react_explain_pass(const param_store *ps, const prog *p, const op_run *run,
                          err *e) ATH_MUST_USE;

#endif
