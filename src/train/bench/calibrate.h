/* Measures what the planner's clock needs to know of this machine (plan/clock/cluster.h): the programs of some small models
 * run as in training, alone or on several ranks at a time, and every op is timed within its step. From the times come the
 * shares of the limit that each op reaches by size; from short steps the time outside of ops; from collectives between the
 * ranks their link; from the ops in which ranks meet, and from steps of each alone and of all together, what they do to each
 * other (together.h). */
#ifndef TRAIN_CALIBRATE_H
#define TRAIN_CALIBRATE_H

#include "plan/clock/cluster.h"

/* What was measured, as a cluster of one node with `ranks` devices that share this machine's cores and memory. seconds: after them
 * no model is begun, but for the smallest. on_case: before each model; may be NULL. ST_USAGE: more ranks than cores. */
status calibrate_machine(int ranks, double seconds, void (*on_case)(void *ctx, int i, int n),
                         void *ctx, cluster *out, err *e) ATH_MUST_USE;

#endif
