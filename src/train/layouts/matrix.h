/* Which layouts are compared with one rank, and what must be equal.
 *
 * With data parallelism, ZeRO, accumulation and recompute, everything must be equal, bit for bit,
 * since sums are of integers (op/fixed.h). With tensor and sequence parallelism, whose products are
 * summed in parts, and with ordinary sums, the initial weights must be equal bit for bit, losses
 * and gradient norms within a tolerance. */
#ifndef TRAIN_LAYOUT_MATRIX_H
#define TRAIN_LAYOUT_MATRIX_H

#include "train/layouts/layouts.h"

/* All layouts of exactly `ranks` ranks that the model divides over; to be freed. */
layout *layout_matrix_of(const layout_trial *t, int ranks, int *n);

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

#endif
