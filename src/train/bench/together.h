/* What ranks of a machine do to each other, from steps of each alone and of all together: how much of the link's rate collectives
 * reach beside kernels, what they take from these (cluster.contention), and how long a rank waits for the others in each collective
 * among the ops (cluster.node.latency_s), which is more than a message takes, since ranks are never at the same place.
 *
 * Ranks that share the layers meet in ops: the time of these is compared. Where they share the batch, the same model is measured alone
 * and together one after the other, and only the ratio counts: what others do on the machine changes from minute to minute. */
#ifndef TRAIN_TOGETHER_H
#define TRAIN_TOGETHER_H

#include "plan/clock/cluster.h"
#include "plan/plan.h"

enum { TOGETHER_GUESSES = 8 * 19 };

/* Ranks share the batch, or the layers. */
typedef enum together_kind { TOGETHER_BATCH, TOGETHER_LAYERS, TOGETHER_KINDS } together_kind;

typedef struct together_pair {
    together_kind kind;
    double alone_s, together_s;                    /* measured; alone 1 where layers are shared */
    double said_alone_s, said_s[TOGETHER_GUESSES]; /* by the clock, together with each guess */
} together_pair;

/* Whether ranks meet in this op: it makes a collective. */
bool together_meets(const prog_op *op);
/* Fills in what the clock says of all ranks' plan: of the step, or of the ops of a micro-batch in which they meet. */
void together_say(together_pair *p, const plan *of_all, const cluster *c);
/* Sets what makes the clock say what was measured: the least sum of distances between logarithms of the ratios, which one
 * pair that others disturbed does not decide. What no pair tells stays. */
void together_fit(cluster *c, const together_pair *pairs, int n);

#endif
