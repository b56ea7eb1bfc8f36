/* Checkpoints: RUN/checkpoints/step-N/ is a Hugging Face model folder with state/ beside the
 * weights. state/manifest.json holds size and XXH3 of every file, and XXH3 of every tensor.
 *
 *     RUN/checkpoints/step-N                 complete
 *                     .tmp-step-N-ATTEMPT    being written
 *                     .old-step-N            the earlier step-N, while a new one replaces it
 *                     .trash-...             being deleted
 *
 * A checkpoint is written under its .tmp- name: every file is fsynced, the manifest is written last,
 * the folder is fsynced, renamed to step-N, and the parent fsynced. RUN and the folder that RUN lies
 * in are fsynced before. So a folder named step-N was complete when it got its name, and a crash of
 * the machine, a full disk or kill -9 at any moment leaves the earlier checkpoints as they were.
 *
 * One process at a time may write to a run; callers hold the run's lock (run/folder.h).
 *
 * Reading order: checkpoint_writer_* (files of tensors: checkpoint_team.h), checkpoint_find_newest,
 * checkpoint_verify and inspect, checkpoint_prune. Uploads are in checkpoint_upload.h.
 */
#ifndef IO_CHECKPOINT_H
#define IO_CHECKPOINT_H

#include "base/arena.h"
#include "io/safetensors/safetensors.h"

typedef struct checkpoint_writer checkpoint_writer;

/* Makes the temporary folder with state/ inside. need_bytes: the expected size of all files (0:
 * unknown); when the disk has less free space this fails, before anything is written. */
status checkpoint_writer_begin(checkpoint_writer **w, const char *run_dir, int64_t step,
                               uint64_t need_bytes, err *e) ATH_MUST_USE;
/* Adds one file. Names are relative ("config.json", "state/cursor.json") and must differ. After a
 * failure the only call allowed is checkpoint_writer_abort. */
status checkpoint_writer_add_blob(checkpoint_writer *w, const char *name, const void *data,
                                  size_t len, err *e) ATH_MUST_USE;
/* For a file that the caller writes itself. checkpoint_writer_path gives its path in the temporary
 * folder (valid until commit or abort); checkpoint_writer_add_file, called when it is written, syncs
 * and hashes it and enters it in the manifest. */
const char *checkpoint_writer_path(checkpoint_writer *w, const char *name);
status checkpoint_writer_add_file(checkpoint_writer *w, const char *name, err *e) ATH_MUST_USE;
/* The validation loss of this step, by which checkpoint_prune keeps the best (lower is better). NaN,
 * or no call: it has none. */
void checkpoint_writer_set_score(checkpoint_writer *w, double val_loss);
/* Writes the manifest and renames the folder to step-N. Frees w in any case; on failure the temporary
 * folder is removed. */
status checkpoint_writer_commit(checkpoint_writer *w, err *e) ATH_MUST_USE;
void checkpoint_writer_abort(checkpoint_writer *w); /* removes the folder; NULL is fine */

/* RUN/checkpoints/step-N, in the arena. */
char *checkpoint_path(arena *a, const char *run_dir, int64_t step);

/* Called when a run starts: removes what a crash left (.tmp-, .trash-), and renames an .old-step-N
 * back whose successor was never completed. No error when there is no checkpoints folder. */
status checkpoint_clean(const char *run_dir, err *e) ATH_MUST_USE;
/* Removes all checkpoints of a run, the oldest first, and their folder unless something else lies in
 * it. Cut short it leaves those that are good. */
status checkpoint_remove_all(const char *run_dir, err *e) ATH_MUST_USE;

/* The N of all folders named step-N, ascending, whether they verify or not. */
status checkpoint_list(arena *a, const char *run_dir, int64_t **steps, int *n, err *e) ATH_MUST_USE;

/* What checkpoint_clean would remove or rename: sorted names in RUN/checkpoints, in the arena. */
status checkpoint_list_leftovers(arena *a, const char *run_dir, char ***names, int *n,
                                 err *e) ATH_MUST_USE;

/* Copies the checkpoint `dir` into another run, under its own step; bytes that its manifest does not
 * expect are refused. */
status checkpoint_copy(const char *dir, const char *run_dir, err *e) ATH_MUST_USE;

typedef enum checkpoint_kind {
    CHECKPOINT_RESUMABLE, /* weights, state/ and manifest */
    CHECKPOINT_MODEL,     /* a model folder without state/: it can be used, but not resumed */
} checkpoint_kind;

/* Reads every file and compares it with the manifest. ST_FORMAT names the first bad file, what is
 * wrong with it, and which of its tensors are damaged; the hint names the newest good checkpoint of
 * the same run. Files that the manifest does not list are ignored (a README, say). A model folder
 * has no checksums: only the headers of its weights are checked. */
status checkpoint_verify(const char *dir, checkpoint_kind *kind, err *e) ATH_MUST_USE;

/* One file of a checkpoint that differs from what was written. */
typedef struct checkpoint_fault {
    const char *file;     /* its name in the checkpoint; ".": the folder itself */
    const char *what;     /* "checksum differs (file damaged)" */
    const char **tensors; /* those whose bytes differ, if the file's header can still be read */
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

/* As checkpoint_verify, but reads on after a bad file. All strings lie in the arena. */
void checkpoint_inspect(arena *a, const char *dir, checkpoint_report *r);
/* "model.safetensors: checksum differs (file damaged); damaged: a, b and 3 more tensors" */
char *checkpoint_fault_text(arena *a, const checkpoint_fault *f, int64_t most_tensors);

/* Called with each bad checkpoint that is passed over; without it a warning is logged. */
typedef void (*checkpoint_skip_fn)(void *ctx, const char *dir, const err *why);

/* The newest checkpoint of a run that verifies and can be resumed. When the run has no checkpoint at
 * all, *dir is NULL and *step -1. ST_FORMAT: it has some, and none is good. */
status checkpoint_find_newest(arena *a, const char *run_dir, char **dir, int64_t *step,
                              checkpoint_skip_fn on_skip, void *ctx, err *e) ATH_MUST_USE;

/* The model folder that `path` stands for: the newest good checkpoint of a run, else the folder itself
 * when it has a config.json. */
status checkpoint_resolve(arena *a, const char *path, char **dir, err *e) ATH_MUST_USE;

/* Which checkpoints are kept: the newest `newest` (0: all), those whose step is a multiple of
 * `every` (0: none), and the `best` with the lowest scores (of equals the newer). */
typedef struct checkpoint_keep {
    int newest;
    int64_t every;
    int best;
    bool only_uploaded; /* checkpoints without an upload mark are kept, too */
} checkpoint_keep;

/* Deletes the others, oldest first. good_step: a checkpoint known to be good (the one just
 * committed); -1: the newest good one is searched. It and everything newer stay; when none is good
 * nothing is deleted. A checkpoint with a missing file, or one of a wrong size, does not count as one
 * of the `newest` or `best`. */
status checkpoint_prune(const char *run_dir, const checkpoint_keep *k, int64_t good_step,
                        err *e) ATH_MUST_USE;

#endif
