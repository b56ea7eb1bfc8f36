/* The device that a config asks for, and the cluster. */
#ifndef RUN_CONFIG_DEVICE_H
#define RUN_CONFIG_DEVICE_H

#include "comm/comm.h"
#include "plan/clock/cluster.h"
#include "run/config/config.h"

/* With train.threads; of several GPUs the one for this rank of the world, which then uses it (comm_use_device). ST_USAGE where
 * there is no such device. Before dev_close comes comm_leave_device. */
status config_open_device(const config *c, comm_world *w, dev **out, err *e) ATH_MUST_USE;
/* A meta device of that kind, for plans. */
status config_open_meta(const config *c, dev **out, err *e) ATH_MUST_USE;
/* The cluster that the config names, if it has so many devices of that kind; else this machine, if it was
 * calibrated with so many ranks. False: neither. */
bool config_find_cluster(const config *c, int ranks, dev_kind kind, cluster *out);

#endif
