/* The state of a run, to checkpoints and back. All ranks call these together, and learn at the same
 * step what has become of a save. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "train/session.h"

/* Begins to save the state that the run is in; without checkpoint.async, or with `wait`, it has
 * been saved when it returns. */
status state_save(session *s, bool wait, err *e) ATH_MUST_USE;
/* Tells what has become of a save in the background; with `wait` there is none afterwards. */
status state_poll(session *s, bool wait, err *e) ATH_MUST_USE;
/* Waits for a save in the background and tells what has become of it; `must`: its failure is the
 * run's. */
status state_settle(session *s, bool must, err *e) ATH_MUST_USE;
/* The same at the end of a session, told to nobody. */
void state_abandon(saving *v);

/* Loads the newest good checkpoint of the run, or makes the initial weights. */
status state_load_newest(session *s, err *e) ATH_MUST_USE;
/* What a fork goes on from: the cursor of a checkpoint. */
status state_read_origin(const char *dir, course_origin *out, err *e) ATH_MUST_USE;

#endif
