/* The device that a config asks for. */
#ifndef RUN_CONFIG_DEVICE_H
#define RUN_CONFIG_DEVICE_H

#include "dev/dev.h"
#include "run/config/config.h"

/* With train.threads. ST_USAGE where there is no such device. */
status config_open_device(const config *c, dev **out, err *e) ATH_MUST_USE;
/* A meta device of that kind, for plans. */
status config_open_meta(const config *c, dev **out, err *e) ATH_MUST_USE;

#endif
