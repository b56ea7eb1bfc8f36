/* Checkpoints: RUN/checkpoints/step-N/ is a Hugging Face model folder with state/ beside the
 * weights, and state/manifest.json holds size and XXH3 of every file, and XXH3 of every tensor.
 *
 * A checkpoint is written into the hidden sibling .tmp-step-N-ATTEMPT: every file is fsynced, the
 * manifest comes last, then the folder is fsynced, renamed to step-N, and the parent fsynced. So a
 * folder named step-N was complete when it got its name, and a crash, a full disk or kill -9 at any
 * moment leaves the earlier checkpoints as they were. What is deleted is renamed to .trash- first.
 * A step-N that is written anew waits as .old-step-N until the new one stands.
 *
 * One process at a time writes to a run; the caller sees to that (the run's lock).
 *
 * Reading order: checkpoint_writer_* (files of tensors: checkpoint_team.h), checkpoint_find_newest,
 * checkpoint_verify and inspect, checkpoint_prune. Uploads are in checkpoint_upload.h.
 */
#ifndef IO_CHECKPOINT_H
#define IO_CHECKPOINT_H

#include "base/arena.h"
#include "io/safetensors/safetensors.h"

typedef struct checkpoint_writer checkpoint_writer;

/* Makes the temporary folder with state/ inside. need_bytes is the expected size (0: unknown); too
 * little free space is refused here, before anything is written. */
status checkpoint_writer_begin(checkpoint_writer **w, const char *run_dir, int64_t step,
                               uint64_t need_bytes, err *e) ATH_MUST_USE;
/* Adds one file; names are relative ("config.json", "state/cursor.json") and unique. After a
 * failure the only call left is checkpoint_writer_abort. */
status checkpoint_writer_add_blob(checkpoint_writer *w, const char *name, const void *data,
                                  size_t len, err *e) ATH_MUST_USE;
/* For a file that the caller writes itself: its path in the temporary folder (valid until commit or
 * abort), and, once written, its entry in the manifest (the file is fsynced and hashed here). */
const char *checkpoint_writer_path(checkpoint_writer *w, const char *name);
status checkpoint_writer_add_file(checkpoint_writer *w, const char *name, err *e) ATH_MUST_USE;
/* The validation loss of this step, lower being better, by which checkpoint_prune keeps the best;
 * NaN: none, as is the case without this call. */
void checkpoint_writer_set_score(checkpoint_writer *w, double val_loss);
/* Writes the manifest and gives the folder its name. Frees w in any case; on failure the temporary
 * folder is gone. */
status checkpoint_writer_commit(checkpoint_writer *w, err *e) ATH_MUST_USE;
void checkpoint_writer_abort(checkpoint_writer *w); /* removes the folder; NULL is fine */

/* RUN/checkpoints/step-N, in the arena. */
char *checkpoint_path(arena *a, const char *run_dir, int64_t step);

/* For the start of a run: removes what a crash left (.tmp-, .trash-), and brings back an .old-step
 * whose successor never got its name. No error when there is no checkpoints folder. */
status checkpoint_clean(const char *run_dir, err *e) ATH_MUST_USE;
/* Removes all checkpoints of a run, the oldest first, and their folder unless something else lies in
 * it. Cut short it leaves those that are good. */
status checkpoint_remove_all(const char *run_dir, err *e) ATH_MUST_USE;

/* The steps of the folders named step-N, ascending, good or not. */
status checkpoint_list(arena *a, const char *run_dir, int64_t **steps, int *n, err *e) ATH_MUST_USE;

/* What checkpoint_clean would look at: sorted names in RUN/checkpoints, in the arena. */
status checkpoint_list_leftovers(arena *a, const char *run_dir, char ***names, int *n,
                                 err *e) ATH_MUST_USE;

/* Copies a good checkpoint (dir) into another run, under its step. */
status checkpoint_copy(const char *dir, const char *run_dir, err *e) ATH_MUST_USE;

typedef enum checkpoint_kind {
    CHECKPOINT_RESUMABLE, /* weights, state/ and manifest: every checksum holds */
    CHECKPOINT_MODEL,     /* a model folder without state/: usable, but not resumable */
} checkpoint_kind;

/* Reads every file. ST_FORMAT names the first bad file, what is wrong with it, and which of its
 * tensors are damaged; the hint names the newest good sibling. Files that the manifest does not
 * list are ignored (a README, say). For a model folder the weights' headers are checked: there are
 * no checksums. */
status checkpoint_verify(const char *dir, checkpoint_kind *kind, err *e) ATH_MUST_USE;

/* One file of a checkpoint that is not what was written. */
typedef struct checkpoint_fault {
    const char *file;     /* its name in the checkpoint; "." is the folder itself */
    const char *what;     /* "checksum differs (file damaged)" */
    const char **tensors; /* those whose bytes differ, where the file still says what they are */
    int64_t n_tensors;
} checkpoint_fault;

typedef struct checkpoint_report {
    checkpoint_kind kind;
    int64_t step;   /* -1: not known (a model folder, a damaged manifest) */
    uint64_t bytes; /* of the files that the manifest lists */
    double score;   /* NaN: none */
    bool uploaded;
    checkpoint_fault *faults;
    int n_faults, cap_faults;
} checkpoint_report;

/* As checkpoint_verify, but goes on to the last file; all strings lie in the arena. */
void checkpoint_inspect(arena *a, const char *dir, checkpoint_report *r);
/* "model.safetensors: checksum differs (file damaged); damaged: a, b and 3 more tensors" */
char *checkpoint_fault_text(arena *a, const checkpoint_fault *f, int64_t most_tensors);

/* Called with each bad checkpoint that was passed over; NULL logs a warning instead. */
typedef void (*checkpoint_skip_fn)(void *ctx, const char *dir, const err *why);

/* The newest checkpoint of a run that verifies. *dir is NULL and *step -1 when the run has none at
 * all; ST_FORMAT when it has some and none is good. */
status checkpoint_find_newest(arena *a, const char *run_dir, char **dir, int64_t *step,
                              checkpoint_skip_fn on_skip, void *ctx, err *e) ATH_MUST_USE;

/* Folder that holds the model meant by path: the newest good checkpoint of a run, else the folder
 * itself when it has a config.json. */
status checkpoint_resolve(arena *a, const char *path, char **dir, err *e) ATH_MUST_USE;

/* Which checkpoints are kept: the newest `newest` (0: all), those whose step is a multiple of
 * `every` (0: none), and the `best` with the lowest scores (of equals the newer). */
typedef struct checkpoint_keep {
    int newest;
    int64_t every;
    int best;
    bool only_uploaded; /* what has no upload mark stays, too */
} checkpoint_keep;

/* Deletes the others, oldest first. good_step is one known to be good, as the one just committed;
 * -1 has the newest good one looked for. It and everything newer stay; nothing is deleted when none
 * is good. One that lacks a file, or has one of another size than was written, uses up no place. */
status checkpoint_prune(const char *run_dir, const checkpoint_keep *k, int64_t good_step,
                        err *e) ATH_MUST_USE;

#endif
