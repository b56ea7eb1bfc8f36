/* Saves and loads the state of a run. All ranks call these together, and all learn the result of a
 * save at the same step. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "train/session.h"

/* Bytes of a checkpoint, about. */
uint64_t state_expected_bytes(const plan *p, const optim_class *optim);
/* Begins to save the current state. Without checkpoint.async, or with `wait`, the save is complete
 * when it returns. */
status state_save(session *s, bool wait, err *e) ATH_MUST_USE;
/* Reports a save in the background if it has ended; with `wait`, waits for its end first. */
status state_poll(session *s, bool wait, err *e) ATH_MUST_USE;
/* Waits for a save in the background and reports it. must: if it has failed, that is the error of
 * the run. */
status state_settle(session *s, bool must, err *e) ATH_MUST_USE;
/* Waits for it at the end of a session, and reports nothing. */
void state_abandon(saving *v);

/* Loads the newest good checkpoint of the run, or makes the initial weights. */
status state_load_newest(session *s, err *e) ATH_MUST_USE;
/* Where a fork begins: read from the cursor of a checkpoint. */
status state_read_origin(const char *dir, course_origin *out, err *e) ATH_MUST_USE;

#endif
