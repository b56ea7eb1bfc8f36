/* Before a run on several ranks trains, its layout is checked: a few steps of the model's first
 * layers on random ids, on the ranks of the run, must give what one rank alone computes
 * (parallel.verify). */
#ifndef TRAIN_PREFLIGHT_H
#define TRAIN_PREFLIGHT_H

#include "comm/mesh.h"
#include "run/config/config.h"

/* Every rank calls it. ST_FAILED on rank 0: the layout computes something else; the error names the
 * tensor. The other ranks get ST_OK, so call peers_agree next. If one rank alone has not enough
 * memory, or its loss is NaN or Inf, nothing is compared, and a warning says so. */
status preflight_check(const config *c, const mesh *m, err *e) ATH_MUST_USE;

#endif
