/* Runs a user's shell command for each checkpoint, in the background: copying it elsewhere, say.
 *
 * The command gets ATHANOR_CHECKPOINT (absolute path), ATHANOR_RUN (absolute path) and ATHANOR_STEP
 * in its environment; its output goes to RUN/upload.log. One runs at a time, oldest step first.
 * When it ends with status 0, RUN/checkpoints/step-N/state/uploaded is written (checkpoint_keep can
 * wait for it before deleting). One that failed is tried again after the next upload_add. The
 * command may be started twice for one checkpoint (after a crash), so it should not mind that.
 *
 * The command is in a process group of its own: a Ctrl-C that stops the run does not stop it. These
 * functions are for one thread.
 *
 * Reading order: upload_new, upload_add, upload_poll. */
#ifndef IO_CHECKPOINT_UPLOAD_H
#define IO_CHECKPOINT_UPLOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct upload upload;

/* The end of one command. */
typedef struct upload_event {
    int64_t step;
    bool ok;
    int exit_status; /* 128 + signal when it was killed; -1 when it did not get that far */
    err why;         /* when not ok; the hint names the log */
} upload_event;

/* Checkpoints of the run that have no mark yet (after a crash, say) are queued at once. */
upload *upload_new(const char *run_dir, const char *command);
/* For a checkpoint that was just committed; also one that replaces another of the same step. */
void upload_add(upload *u, int64_t step);
/* Starts what waits and looks whether a command has ended; never blocks. True: *event tells which;
 * ask again, there may be more. */
bool upload_poll(upload *u, upload_event *event);
/* The same, but waits for the end of a command; false when none is left to wait for. *stop (may be
 * NULL), once not 0, ends the waiting. */
bool upload_wait(upload *u, upload_event *event, const volatile sig_atomic_t *stop);
/* At the end of a run: ST_FAILED when a checkpoint was not uploaded because its command failed. */
status upload_result(const upload *u, err *e) ATH_MUST_USE;
/* A command that still runs is left alone; its checkpoint gets no mark. NULL is fine. */
void upload_free(upload *u);

#endif
