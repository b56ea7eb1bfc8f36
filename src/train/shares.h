/* Whether ranks can share sequences and batches evenly, and the nearest numbers that they can. */
#ifndef TRAIN_SHARES_H
#define TRAIN_SHARES_H

#include "run/config/config.h"

/* ST_USAGE: context- and sequence-parallel ranks cannot share B sequences of T tokens evenly. */
status shares_check_sequences(const config *c, int64_t B, int64_t T, err *e) ATH_MUST_USE;
/* ST_USAGE: dp ranks cannot share a batch evenly in micro-batches of B, nor stages with several chunks in groups of these. */
status shares_check_batch(const config *c, int64_t batch, int64_t dp, int64_t B,
                          err *e) ATH_MUST_USE;

#endif
