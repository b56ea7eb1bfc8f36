/* The layout that is about to train, against one rank: a few steps of the model's first layers on
 * random ids, on the very ranks of the run. */
#ifndef TRAIN_PREFLIGHT_H
#define TRAIN_PREFLIGHT_H

#include "comm/mesh.h"
#include "run/config/config.h"

/* ST_FAILED on rank 0, naming the tensor, when the layout computes something else. Every rank calls
 * it; what it returns differs by rank (peers_agree). Nothing is checked where one rank alone has
 * not the memory, or comes to a loss that is not finite: that is told. */
status preflight_check(const config *c, const mesh *m, err *e) ATH_MUST_USE;

#endif
