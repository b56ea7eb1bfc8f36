/* Ranks as copies of this program on one machine: started, heard, signalled, ended together.
 *
 * Rank 0 has the launcher's standard output and error. Of the others only standard error is passed
 * on, line by line with "[rank 2] " before it. They are in the launcher's process group, and a rank
 * whose launcher is gone gets SIGTERM.
 *
 * When a rank ends badly the others learn of it from the segment and have GRACE_S seconds to end by
 * themselves; then comes SIGTERM, and SIGKILL. */
#ifndef APP_LAUNCH_RANKS_H
#define APP_LAUNCH_RANKS_H

#include "base/status.h"

typedef struct launch_plan {
    int ranks;
    double timeout_s;        /* of a rank that waits for another; below 0: the default */
    const char *const *args; /* what follows the program's name, n_args of them */
    int n_args;
} launch_plan;

/* Runs them to their end. The status that all ranks ended with; ST_RANK with a sentence in *e when
 * one was killed, or they differ; *e stays empty when the ranks have said it themselves. */
status launch_ranks(const launch_plan *plan, err *e) ATH_MUST_USE;

#endif
