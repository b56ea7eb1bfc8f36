/* What a rank sends in an optimizer step, known before any rank runs. It is counted from the
 * entries of the step table that move units of parameters, and from the ops that are collectives.
 *
 * The few numbers on which ranks agree in a step (targets, losses, norms: below 1 KB) are left out.
 */
#ifndef STEP_TRAFFIC_H
#define STEP_TRAFFIC_H

#include "step/step.h"

/* parts: what the table was built of. ranks: where this rank is. narrow: gradients travel as bf16
 * (parallel.reduce_dtype). A result of INT64_MAX bytes means: so many or more. */
comm_counts step_traffic(const step_table *t, const step_parts *parts, const mesh *ranks,
                         bool narrow);

#endif
