/* Log lines go to standard error: "athanor: warning: ...". Standard output belongs to results. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

void log_info(const char *fmt, ...) ATH_PRINTF(1, 2);
void log_warn(const char *fmt, ...) ATH_PRINTF(1, 2);
/* Silences log_info (not warnings); for --json and --quiet. The one piece of process-wide state of
 * the log. */
void log_set_quiet(bool quiet);

#endif
