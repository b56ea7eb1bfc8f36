/* Which layouts are compared with one rank, and what must be equal.
 *
 * With data parallelism, ZeRO, accumulation, recompute and stages, everything must be equal, bit for bit,
 * since sums are of integers (op/fixed.h). With tensor and sequence parallelism, whose products are
 * summed in parts, and with ordinary sums, the initial weights must be equal bit for bit, losses
 * and gradient norms within a tolerance. */
#ifndef TRAIN_LAYOUT_MATRIX_H
#define TRAIN_LAYOUT_MATRIX_H

#include "base/rng.h"
#include "comm/mesh.h"
#include "train/layouts/layouts.h"

/* All layouts of exactly `ranks` ranks that the model divides over; to be freed. */
layout *layout_matrix_of(const layout_trial *t, int ranks, int *n);

/* One of them at random, of those of all sizes that go together. A seed gives the same layouts everywhere. */
typedef struct layout_dice {
    rng_key key;
    uint64_t n;
} layout_dice;
layout layout_draw(const layout_trial *t, layout_dice *d, int ranks);

typedef struct layout_verdict {
    bool ok, exact;                /* exact: it had to be equal in every bit */
    double loss_error, norm_error; /* largest relative difference of a loss; of a parameter's
                                      gradient norm in the first step */
    char why[512];                 /* the first difference, with the tensor if it is known */
} layout_verdict;

/* Compares r with `one`, the result of one rank: of the same steps, or of more, in the same
 * precision and with exact sums. */
layout_verdict layout_compare(const layout_trial *t, const layout *l, const layout_result *one,
                              const layout_result *r);

/* ---- preflight.c ---- */

/* Before a run on several ranks trains, its layout is checked: a few steps of the model's first
 * layers on random ids, on the ranks of the run, must give what one rank alone computes
 * (parallel.verify).
 *
 * Every rank calls it. ST_FAILED on rank 0: the layout computes something else; the error names the
 * tensor. The other ranks get ST_OK, so call peers_agree next. If one rank alone has not enough
 * memory, or its loss is NaN or Inf, nothing is compared, and a warning says so. */
status preflight_check(const config *c, const mesh *m, err *e) ATH_MUST_USE;

#endif
