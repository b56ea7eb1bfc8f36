/* What a training step reads: `data show --run RUN --step N`. */
#ifndef APP_DATA_SHOW_STEP_H
#define APP_DATA_SHOW_STEP_H

#include "app/frame/cli.h"

/* Documents of each sequence of the step, at most `limit` of them; with `render` their text, where
 * what is not learned stands out. */
status data_show_step(const char *run, int64_t step, int64_t limit, bool render, bool json,
                      err *e) ATH_MUST_USE;

#endif
