/* Where the weights of a checkpoint come from, for its ledger and its card (interchange/ledger.h): the run's
 * config, the stages so far with the sources of each, the models that it began with. */
#ifndef TRAIN_ORIGINS_H
#define TRAIN_ORIGINS_H

#include "train/session.h"

/* Once per start of a run, on rank 0, when the state is loaded: the models that the run began with, as the
 * checkpoint that it goes on from names them; for a new run their files are read. */
status origins_open(session *s, err *e) ATH_MUST_USE;
/* The ledger of the state after step at.step. The caller owns it. */
json_t *origins_ledger(const session *s);
/* Writes README.md into a folder that becomes a checkpoint. */
status origins_write_card(const save_job *j, const char *dir, err *e) ATH_MUST_USE;

#endif
