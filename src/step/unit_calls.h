/* The collectives that bring a unit of parameters to where a step needs it: which calls, over which
 * ranks, in which order. train/ranks/peers.c makes them, traffic.c counts what they send.
 *
 * Gradients go over the tensor-parallel ranks that have summands of the same (param_partial), while
 * the ranks still have them at the same places; then over the ranks that share the unit's pieces,
 * and once a step over the replicas of these: what crosses the slower links is a piece. */
#ifndef STEP_UNIT_CALLS_H
#define STEP_UNIT_CALLS_H

#include "comm/mesh.h"
#include "step/step.h"

typedef struct step_call {
    mesh_axis axis; /* over which; with copies > 0: over so many successive ranks of MESH_TP */
    int copies;
    comm_call call; /* without a name; data is NULL where the store has no arrays */
} step_call;

/* Of unit u's weights. False: nothing travels. */
bool step_gather_call(const param_store *s, int u, step_call *out);
/* Call number i of the gradients of a STEP_REDUCE; narrow: parallel.reduce_dtype is bf16. False:
 * there are i of them. */
bool step_reduce_call(const param_store *s, const step_entry *e, bool narrow, int i,
                      step_call *out);

#endif
