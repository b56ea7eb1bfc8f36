/* What a rank sends in an optimizer step, known before there are peers: by the entries of the step
 * table that move units of parameters, and by the collectives among the ops.
 *
 * The few numbers that ranks agree upon in a step (targets, losses, norms: below 1 KB) are left
 * out.
 */
#ifndef STEP_TRAFFIC_H
#define STEP_TRAFFIC_H

#include "step/step.h"

/* INT64_MAX bytes: so many or more. `parts`: what the table was built of. `ranks`: where this one is. narrow: gradients travel as
 * bf16 (parallel.reduce_dtype). */
comm_counts step_traffic(const step_table *t, const step_parts *parts, const mesh *ranks,
                         bool narrow);

#endif
