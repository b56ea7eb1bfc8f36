/* What STEP_GATHER and STEP_REDUCE mean as collective calls (comm/comm.h): which calls, over which
 * ranks, in which order. train/ranks/peers.c makes the calls, traffic.c counts what they send.
 *
 * The gradients of a unit are summed in up to three calls:
 *   1. over tensor-parallel ranks, where each has computed a summand of the same gradient
 *      (param_partial): first, because these ranks still have it at the same place;
 *   2. over the ranks that share the unit out: each then has the sum of its own piece;
 *   3. once a step, over the ranks that hold the same piece (replicas). These links are the
 *      slowest, so only a piece crosses them. */
#ifndef STEP_UNIT_CALLS_H
#define STEP_UNIT_CALLS_H

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

#endif
