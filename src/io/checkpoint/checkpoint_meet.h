/* Files by which ranks that write a checkpoint tell each other what they have done (the list is in
 * checkpoint_team.h), and waiting for them. Private to the checkpoint files. */
#ifndef IO_CHECKPOINT_MEET_H
#define IO_CHECKPOINT_MEET_H

#include "base/clock.h"
#include "io/checkpoint/checkpoint_team.h"

#define MARK_BEGUN ".begun"

/* RUN/checkpoints/.tmp-step-N-ATTEMPT */
char *meet_folder(arena *a, const char *run_dir, int64_t step, uint64_t attempt);
/* "DIR/.done-R", "DIR/.failed-R", "DIR.failed". */
char *meet_done(arena *a, const char *dir, int rank);
char *meet_failed(arena *a, const char *dir, int rank);
char *meet_given_up(arena *a, const char *dir);

/* Makes an empty file. */
status meet_mark(const char *path, err *e) ATH_MUST_USE;
/* Makes a file that says why, or at least a file; on a full disk there may be none. */
bool meet_complain(const char *path, const char *why);
/* The text of such a file, in the arena. */
char *meet_complaint(arena *a, const char *path);

/* Waiting for one thing: meet_wait_for, then meet_pause until it is there. */
typedef struct meet_wait {
    const checkpoint_team *team;
    const char *what; /* "rank 2 to write its part of RUN/checkpoints/step-8" */
    clock_wait wait;
    int64_t pause_ns;
} meet_wait;
meet_wait meet_wait_for(const checkpoint_team *team, const char *what);
/* Sleeps a moment; ST_RANK when the limit is over or a rank is gone. */
status meet_pause(meet_wait *w, err *e) ATH_MUST_USE;

#endif
