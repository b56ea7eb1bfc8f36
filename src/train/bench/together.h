/* What ranks of a machine do to each other, from steps of each alone and of all together: how much of the link's rate collectives
 * of a step reach (cluster.node.reached), what kernels beside them lose (cluster.contention), how much longer the slowest
 * rank takes (cluster.straggle), and how long a rank waits for the others in each collective among the ops (cluster.node.latency_s), which is more
 * than a message takes, since ranks are never at the same place.
 *
 * Ranks that share the layers meet in ops: the time of these is compared. Where they share the batch, the same model is measured alone
 * and together one after the other, and only what changes counts, since what others do on the machine changes from minute to minute.
 * Kernels and the rest of the step, which has the waits, are compared apart: a slow link and kernels that it disturbs are told from
 * each other. */
#ifndef TRAIN_TOGETHER_H
#define TRAIN_TOGETHER_H

#include "plan/clock/cluster.h"
#include "plan/plan.h"

enum { TOGETHER_GUESSES = 8 * 5 * 10 };

/* Ranks share the batch, or the layers. */
typedef enum together_kind { TOGETHER_BATCH, TOGETHER_LAYERS, TOGETHER_KINDS } together_kind;

/* Seconds of a step's kernels, and of all else. Where layers are shared: of the ops of a micro-batch in which ranks meet, and of its
 * others, about which nothing is said. */
typedef struct together_time {
    double kernels, rest;
} together_time;

typedef struct together_pair {
    together_kind kind;
    together_time alone, together; /* measured; alone where layers are shared: {1, others} */
    together_time said_alone, said[TOGETHER_GUESSES]; /* by the clock, together with each guess */
} together_pair;

/* What the clock says of the step of a rank. */
together_time together_step(const plan *p, const cluster *c);

/* Whether ranks meet in this op: it makes a collective. */
bool together_meets(const prog_op *op);
/* Fills in what the clock says of all ranks' plan: of the step, or of the ops of a micro-batch in which they meet. */
void together_say(together_pair *p, const plan *of_all, const cluster *c);
/* Sets what makes the clock say what was measured: the least sum of distances, each in parts of the time, which one
 * pair that others disturbed does not decide. What no pair tells stays. */
void together_fit(cluster *c, const together_pair *pairs, int n);

#endif
