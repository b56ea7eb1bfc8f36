/* Checkpoints: RUN/checkpoints/step-N/ is a Hugging Face model folder with state/ beside the
 * weights, and state/manifest.json holds size and XXH3 of every file.
 *
 * A checkpoint is written into the hidden sibling .tmp-step-N-PID: every file is fsynced, the
 * manifest comes last, then the folder is fsynced, renamed to step-N, and the parent fsynced. So a
 * folder named step-N was complete when it got its name, and a crash, a full disk or kill -9 at any
 * moment leaves the earlier checkpoints as they were. What is deleted is renamed to .trash- first.
 * A step-N that is written anew waits as .old-step-N until the new one stands.
 *
 * One process at a time writes to a run; the caller sees to that (the run's lock).
 *
 * Reading order: checkpoint_writer_*, checkpoint_find_newest, checkpoint_verify, checkpoint_prune.
 */
#ifndef IO_CHECKPOINT_H
#define IO_CHECKPOINT_H

#include "base/arena.h"
#include "io/safetensors.h"

typedef struct checkpoint_writer checkpoint_writer;

/* Makes the temporary folder with state/ inside. need_bytes is the expected size (0: unknown); too
 * little free space is refused here, before anything is written. */
status checkpoint_writer_begin(checkpoint_writer **w, const char *run_dir, int64_t step,
                               uint64_t need_bytes, err *e) ATH_MUST_USE;
/* Adds one file; names are relative ("config.json", "state/cursor.json") and unique. After a
 * failure the only call left is checkpoint_writer_abort. */
status checkpoint_writer_add_blob(checkpoint_writer *w, const char *name, const void *data,
                                  size_t len, err *e) ATH_MUST_USE;
status checkpoint_writer_add_tensors(checkpoint_writer *w, const char *name,
                                     const st_tensor *tensors, int64_t n, err *e) ATH_MUST_USE;
/* For a file that the caller writes itself: its path in the temporary folder (valid until commit or
 * abort), and, once written, its entry in the manifest (the file is fsynced and hashed here). */
const char *checkpoint_writer_path(checkpoint_writer *w, const char *name);
status checkpoint_writer_add_file(checkpoint_writer *w, const char *name, err *e) ATH_MUST_USE;
/* Writes the manifest and gives the folder its name. Frees w in any case; on failure the temporary
 * folder is gone. */
status checkpoint_writer_commit(checkpoint_writer *w, err *e) ATH_MUST_USE;
void checkpoint_writer_abort(checkpoint_writer *w); /* removes the folder; NULL is fine */

/* RUN/checkpoints/step-N, in the arena. */
char *checkpoint_path(arena *a, const char *run_dir, int64_t step);

/* For the start of a run: removes what a crash left (.tmp-, .trash-), and brings back an .old-step
 * whose successor never got its name. No error when there is no checkpoints folder. */
status checkpoint_clean(const char *run_dir, err *e) ATH_MUST_USE;

/* The steps of the folders named step-N, ascending, good or not. */
status checkpoint_list(arena *a, const char *run_dir, int64_t **steps, int *n, err *e) ATH_MUST_USE;

/* Copies a good checkpoint (dir) into another run, under its step. */
status checkpoint_copy(const char *dir, const char *run_dir, err *e) ATH_MUST_USE;

typedef enum checkpoint_kind {
    CHECKPOINT_RESUMABLE, /* weights, state/ and manifest: every checksum holds */
    CHECKPOINT_MODEL,     /* a model folder without state/: usable, but not resumable */
} checkpoint_kind;

/* Reads every file. ST_FORMAT names the first bad file and what is wrong with it; the hint names
 * the newest good sibling. Files that the manifest does not list are ignored (a README, say). For a
 * model folder the weights' headers are checked: there are no checksums. */
status checkpoint_verify(const char *dir, checkpoint_kind *kind, err *e) ATH_MUST_USE;

/* Called with each bad checkpoint that was passed over; NULL logs a warning instead. */
typedef void (*checkpoint_skip_fn)(void *ctx, const char *dir, const err *why);

/* The newest checkpoint of a run that verifies. *dir is NULL and *step -1 when the run has none at
 * all; ST_FORMAT when it has some and none is good. */
status checkpoint_find_newest(arena *a, const char *run_dir, char **dir, int64_t *step,
                              checkpoint_skip_fn on_skip, void *ctx, err *e) ATH_MUST_USE;

/* Folder that holds the model meant by path: the newest good checkpoint of a run, else the folder
 * itself when it has a config.json. */
status checkpoint_resolve(arena *a, const char *path, char **dir, err *e) ATH_MUST_USE;

/* Deletes all but the newest `keep` checkpoints (0: keeps all) and those whose step is a multiple
 * of keep_every (0: none). good_step is one known to be good, as the one just committed; -1 has the
 * newest good one looked for. It and everything newer stay; nothing is deleted when none is good.
 */
status checkpoint_prune(const char *run_dir, int keep, int64_t keep_every, int64_t good_step,
                        err *e) ATH_MUST_USE;

#endif
