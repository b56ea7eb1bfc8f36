/* What STEP_GATHER and STEP_REDUCE mean as collective calls (comm/comm.h): which calls, over which
 * ranks, in which order. train/ranks/peers.c makes the calls; step_traffic counts
 * what they and the ops send, before there are peers.
 *
 * The gradients of a unit are summed in up to three calls:
 *   1. over tensor-parallel ranks, where each has computed a summand of the same gradient
 *      (param_partial): first, because these ranks still have it at the same place;
 *   2. over the ranks that share the unit out: each then has the sum of its own piece;
 *   3. once a step, over the ranks that hold the same piece (replicas). These links are the
 *      slowest, so only a piece crosses them. */
#ifndef STEP_TRAFFIC_H
#define STEP_TRAFFIC_H

#include "comm/mesh.h"
#include "step/step.h"

typedef struct step_call {
    mesh_axis axis; /* the ranks that take part: those along this axis */
    int copies;     /* above 0: only so many successive ranks of MESH_TP */
    comm_call call; /* the caller names it; data is NULL where the store has no arrays (a plan) */
} step_call;

/* The call that gathers unit u's weights. False: there is none, nothing travels. */
bool step_gather_call(const param_store *s, int u, step_call *out);
/* Call number i (0, 1, ...) of a STEP_REDUCE. False: there are no more than i. narrow: gradients
 * travel as bf16 (parallel.reduce_dtype). */
bool step_reduce_call(const param_store *s, const step_entry *e, bool narrow, int i,
                      step_call *out);

/* What a rank sends in an optimizer step: by the entries of the step table that move units of
 * parameters, and by the collectives among the ops. The few numbers that ranks agree upon in a step
 * (targets, losses, norms: below 1 KB) are left out. INT64_MAX bytes: so many or more. `parts`: what
 * the table was built of. `ranks`: where this one is. */
comm_counts step_traffic(const step_table *t, const step_parts *parts, const mesh *ranks,
                         bool narrow);

#endif
