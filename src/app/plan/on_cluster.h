/* A config on the cluster that it names. */
#ifndef APP_ON_CLUSTER_H
#define APP_ON_CLUSTER_H

#include "plan/clock/clock.h"
#include "run/config/config.h"

/* Finds c->cluster. A device that was not named is of its kind. */
status on_cluster_find(config *c, cluster *out, err *e) ATH_MUST_USE;
/* The data-parallel ranks that a config leaves to itself become those of all devices. ST_USAGE: as below. */
status on_cluster_ranks(config *c, const cluster *on, err *e) ATH_MUST_USE;
/* Bytes that a run may take of each device: of its memory, or the less that train.memory_limit allows. ST_USAGE: that is more. */
status on_cluster_limit(const config *c, const cluster *on, double *usable_bytes,
                        err *e) ATH_MUST_USE;
/* The first, and gives the config what follows from it where nothing was said: the data-parallel ranks of all its
 * devices, their kind, and the memory of one. ST_USAGE: the layout has not as many ranks as the cluster devices. */
status on_cluster_take(config *c, cluster *out, err *e) ATH_MUST_USE;

#endif
