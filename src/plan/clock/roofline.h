/* How long an op takes: the roofline (Williams, Waterman, Patterson 2009) with measured shares of it.
 *
 *   ideal   = max(FLOPs / peak of the format, bytes / memory rate)
 *   seconds = max(ideal / share(ideal), least time of a call)
 *
 * A measured rate of a product may have terms (cluster.h): ideal is then their sum. Packing an operand, or the exponentials of
 * attention, take as long as the arithmetic where matrix units are fast, and do not grow with it.
 *
 * A call of experts is as many products as experts, each of which reaches what its own size does, and what is between and beside
 * them is read and written on its own, unless the rate is that of the op.
 *
 * FLOPs and bytes are those of the op's rule (op/rules), as everywhere; the share comes from the cluster's rates. Only
 * products, attention and the head use the peak of matrix units; what is left is bound by memory. */
#ifndef PLAN_ROOFLINE_H
#define PLAN_ROOFLINE_H

#include "plan/clock/cluster.h"
#include "prog/prog.h"

/* Products of single experts in a call; 0: it is not of experts. */
double roofline_products(const prog_op *o);
/* Of one call. Collectives among the ops (op/collective.h) take no time here: see network.h. */
double roofline_seconds(const cluster *c, const prog_op *o, double update_bytes);
/* Without shares; 0: the op computes nothing. */
double roofline_ideal(const cluster *c, const prog_op *o);
/* How many of each term the op has; false: its time has no terms. */
bool roofline_terms(const cluster *c, const prog_op *o, double update_bytes,
                    double count[CLUSTER_TERMS]);
/* The same of the update of a step, whose ops touch frame_bytes beside. */
void roofline_update_terms(const cluster *c, double bytes, double frame_bytes,
                           double count[CLUSTER_TERMS]);
double roofline_sum(const double term[CLUSTER_TERMS], const double count[CLUSTER_TERMS]);
/* The sum stands in place of the ideal time; without terms or counts it is 0, and the ideal counts. */
double roofline_limit(const double term[CLUSTER_TERMS], const double count[CLUSTER_TERMS],
                      double ideal);
/* Which rate counts for a call: its pass (cluster.h: 0 forward, 1 input, 2 weights) and format. */
int roofline_pass(const prog_op *o);
dtype roofline_format(const prog_op *o);
/* Of reading and writing so many bytes, as the optimizer does; in the update of a step whose ops touch frame_bytes beside. */
double roofline_stream(const cluster *c, double bytes);
double roofline_update(const cluster *c, double bytes, double frame_bytes);

#endif
