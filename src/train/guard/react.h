/* What is done about a spike: tell it with the documents that were in the step, and for `rewind`
 * bring the run back to its last checkpoint, from where it goes on without these samples. */
#ifndef TRAIN_REACT_H
#define TRAIN_REACT_H

#include "train/execute.h"

/* After a step whose verdict is not WATCH_FINE, before s->at moves past it. A rewind moves s->at
 * back. ST_NONFINITE when it has come to that too often. */
status react_to_spike(session *s, const step_result *r, err *e) ATH_MUST_USE;

#endif
