/* What STEP_GATHER and STEP_REDUCE mean as collective calls (comm/comm.h): which calls, over which
 * ranks, in which order. train/ranks/peers.c makes the calls; step_traffic counts what they and the
 * ops send, before any rank runs.
 *
 * The gradients of a unit are summed in up to three stages, in this order:
 *   1. one call for each param_partial: over the tensor-parallel ranks that each have a summand of
 *      it. This comes first, while all of them have these elements at the same place
 *   2. over the ranks that have a piece of the unit each: each then has the sum of its own piece
 *   3. once a step, over the ranks that hold the same piece (replicas). Their links are the
 *      slowest, so only a piece crosses them
 * For a unit that is not cut, one sum over all data-parallel ranks replaces 2 and 3.
 * Of experts that ranks share out, these are the ranks that hold the same ones. */
#ifndef STEP_TRAFFIC_H
#define STEP_TRAFFIC_H

#include "comm/mesh.h"
#include "step/step.h"

typedef struct step_call {
    mesh_axis axis; /* the ranks that take part: those along this axis */
    int copies;     /* above 0: only so many successive ranks along MESH_TP take part */
    bool pair;      /* only this rank and the one at its place in `stage` take part */
    int stage;
    bool side;      /* it runs on the side stream (comm_start) */
    comm_call call; /* without a name (`what`); in and out are NULL if the store has no arrays */
} step_call;

/* The call that gathers unit u's weights. False: there is no call, since nothing travels. */
bool step_gather_call(const param_store *s, int u, step_call *out);
/* Call number i (0, 1, ...) of a STEP_REDUCE. False: there are no more than i. narrow: gradients
 * travel as bf16 (parallel.reduce_dtype). */
bool step_reduce_call(const param_store *s, const step_entry *e, bool narrow, int i,
                      step_call *out);

/* The sum of the gradients of a unit that first and last stage of a pipeline have both: in a group of
 * these two. Once a step, when the others are done. */
comm_call step_tied_call(const param_store *s, int u, bool narrow);

/* Visits the calls that an entry makes, in order. Those of ops have no in and out. The few numbers that
 * ranks agree on in a step (targets, losses, norms: below 1 KB) are left out. */
typedef struct step_caller {
    const step_parts *parts; /* what the table was built of */
    const mesh *ranks;       /* where this rank is */
    bool narrow;
    void (*visit)(void *ctx, const step_call *k);
    void *ctx;
} step_caller;
void step_visit_calls(const step_caller *c, const step_entry *e);
/* The ranks that take part in a call, from *first on. */
mesh_line step_call_ranks(const step_call *k, const mesh *ranks, int *first);

/* What a rank sends in an optimizer step: by the entries of the step table that move units of
 * parameters, and by the collectives among the ops. INT64_MAX bytes: so many or more. */
comm_counts step_traffic(const step_table *t, const step_parts *parts, const mesh *ranks,
                         bool narrow);

/* Bytes of the pieces that a step gathers from a file (param_sharding.weights_away). */
int64_t step_file_bytes(const step_table *t, const param_store *s);

#endif
