/* RUN/metrics.jsonl: what happened in a run, one JSON object a line.
 *
 * The objects are those of `train --json`; each has `event`, and all but `start` and `end` have
 * `step`. The trainer opens the file (metrics_open), appends (metrics_write) and, before it goes on
 * from a checkpoint, removes what came after it (metrics_truncate_after): so the steps of `step`
 * events ascend through the file. All others read it with metrics_read.
 *
 * A line is written by one call without fsync. A crash can leave a part of the last line, never of an
 * earlier one, and every reader passes over such a part. */
#ifndef RUN_METRICS_H
#define RUN_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The writer. Opening makes the file when absent and cuts off a last line that is not whole. */
typedef struct metrics_log metrics_log;
status metrics_open(metrics_log **out, const char *run_dir, err *e) ATH_MUST_USE;
/* Appends one object. When the write fails (full disk) the file is left as it was before. */
status metrics_write(metrics_log *m, const json_t *event, err *e) ATH_MUST_USE;
void metrics_close(metrics_log *m); /* NULL is fine */

/* Resume at `step`: drops every object with a later `step`, an `end` with later `steps`, and a last
 * line that is not whole; all or nothing. Reads only the part of the file behind `step`. A run without the file
 * is fine. */
status metrics_truncate_after(const char *run_dir, int64_t step, err *e) ATH_MUST_USE;

typedef enum metrics_extent {
    METRICS_ALL,
    METRICS_LAST_STEP, /* of the `step` events only the last one */
} metrics_extent;
/* `event` is borrowed. Anything but ST_OK ends the reading and is returned. */
typedef status (*metrics_visitor)(void *user, const json_t *event, err *e);
/* Calls `visit` for each object in order. A run without the file has no objects. */
status metrics_read(const char *run_dir, metrics_extent extent, metrics_visitor visit, void *user,
                    err *e) ATH_MUST_USE;

/* Members as numbers; NaN or `fallback` where absent or null. */
double metrics_num(const json_t *event, const char *key);
int64_t metrics_int(const json_t *event, const char *key, int64_t fallback);
/* A member as text; "" where absent or no string. */
const char *metrics_text(const json_t *event, const char *key);
bool metrics_is(const json_t *event, const char *name);

#endif
