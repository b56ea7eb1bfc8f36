/* Numbers of the environment: one reader for all, so that each is checked in the same way.
 *
 * A variable that is not set leaves *value as it is, which is its default. One that is set to
 * anything but a number of the range (an empty text, "nan", "1e300") is ST_USAGE, with the variable
 * as where. Suffixes are those of base/text.h. */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include "base/status.h"

status env_int(const char *name, int64_t least, int64_t most, int64_t *value, err *e) ATH_MUST_USE;
status env_num(const char *name, double least, double most, double *value, err *e) ATH_MUST_USE;

#endif
