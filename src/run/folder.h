/* The folder of a run: its lock, its resolved config, and whether a start begins or resumes it.
 *
 *     RUN/.lock           held while a process trains here; its process id stands in it
 *     RUN/config.json     the resolved config with which the run began
 *     RUN/plan.json       what `athanor plan` said of it
 *     RUN/data.json       what the data of each stage were when it began (train/course/stage_data.h)
 *     RUN/reference/      what the reference says of the data (train/reference.h)
 *     RUN/machine.json    what was chosen for it on its first machine (train/choice.h)
 *     RUN/metrics.jsonl   what happened (metrics.h)
 *     RUN/report.html     the same for people (report/report.h)
 *     RUN/eval/           results of tasks at each checkpoint, one file a step (train/evaluate.c)
 *     RUN/upload.log      what the commands of checkpoint.upload said (io/checkpoint)
 *     RUN/checkpoints/    folders step-N (io/checkpoint)
 *
 * All else in the folder, and in checkpoints/, is the user's and never touched.
 *
 * A start calls run_open, run_prepare and run_write_config in this order, on the first rank alone;
 * who only looks at runs needs no lock and calls run_is_run and run_read_config. */
#ifndef RUN_FOLDER_H
#define RUN_FOLDER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "run/config/config.h"

typedef struct run_folder run_folder;

/* Makes the folder when absent and takes its lock, which ends with the process at the latest. Fails
 * when another process holds it, naming that one. A folder whose config.json belongs to something
 * else is refused before anything is written there. */
status run_open(run_folder **out, const char *path, err *e) ATH_MUST_USE;
void run_close(run_folder *r); /* NULL is fine */
/* Whether a process trains in the folder right now. */
bool run_is_locked(const char *path);

/* Whether the folder holds a run: a config.json with `model` and `train`. A Hugging Face folder,
 * which has a config.json too, is none. */
bool run_is_run(const char *path);

/* RUN/config.json, written in one step. */
status run_write_config(const run_folder *r, const config *c, err *e) ATH_MUST_USE;
status run_read_config(json_t **out, const char *path, err *e) ATH_MUST_USE;
/* The same as a config, to be freed. */
status run_load_config(config **out, const char *path, err *e) ATH_MUST_USE;
/* The config with which a start would be compared, to be freed; NULL: there is no run. Where config.json
 * is gone, it is what the newest checkpoint says: all but `parallel`. */
status run_load_begun(config **out, const char *path, err *e) ATH_MUST_USE;
/* RUN/NAME with one JSON value, or NULL when there is no such file. */
status run_read_json(json_t **out, const char *path, const char *name, err *e) ATH_MUST_USE;
status run_write_json(const run_folder *r, const char *name, const json_t *value,
                      err *e) ATH_MUST_USE;

typedef enum run_start { RUN_START_NEW, RUN_START_RESUME } run_start;
/* Whether such a start would go on with the run that is there: as run_prepare says it, but nothing is
 * changed. ST_OK where there is no run. */
status run_check(const char *path, const config *c, int stage, err *e) ATH_MUST_USE;
/* What a start with this config does. An absent run is new; with `fresh` an existing one is
 * cleared and new; otherwise it is resumed if only keys differ that are free for a run that stands
 * in stage number `stage`: the error lists all others with both values. A key that is now `auto`
 * accepts whatever it was resolved to when the run began. The new config is not written yet. */
status run_prepare(run_folder *r, const config *c, int stage, bool fresh, run_start *out,
                   err *e) ATH_MUST_USE;

#endif
