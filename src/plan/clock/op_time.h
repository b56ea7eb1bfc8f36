/* What one op takes of a step: its kernel, and the collectives that it makes (op/collective.h).
 *
 * Most ops wait for their collective. Ring attention works on the keys at hand while the next ones travel (op/ref/ring.c), and experts
 * on some rows while others travel (op/ref/expert_ranks.c), so they wait for what lasts longer than that work only; beside a
 * pipeline they wait for all of it. */
#ifndef PLAN_OP_TIME_H
#define PLAN_OP_TIME_H

#include "comm/mesh.h"
#include "plan/clock/cluster.h"
#include "prog/prog.h"

typedef struct op_time {
    double kernels; /* what transfers beside them take from them included */
    double among;   /* collectives while nothing else runs */
    double beside;  /* transfers beside kernels, and of these what is waited for */
    double exposed;
} op_time;

/* shape: NULL where the rank is alone. update_bytes: what the update of a step moves, for each micro-batch. */
op_time op_time_of(const cluster *c, const mesh_shape *shape, const prog_op *op,
                   double update_bytes);

/* A kernel of d seconds while transfers last for `beside` seconds, which take a share of the device from it. */
double op_time_beside(double d, double beside, double contention);

#endif
