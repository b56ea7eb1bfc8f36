/* The two runs of `verify resume`, by child processes: DIR/a undisturbed, DIR/b interrupted in
 * turns by SIGKILL in place of a random file operation of a save, SIGKILL at a random moment, and
 * SIGTERM, and started again until it ends.
 *
 * A life is one process that trains b, from its start to its end. What must hold:
 *
 *   - every step that any life of b reports has a's digest, loss, norm and learning rate, also a
 *     step that is done twice;
 *   - a life begins at the newest checkpoint that b announced, or a later one; after SIGTERM at the
 *     step that b had reached;
 *   - b ends with no error that a does not have;
 *   - b's metrics.jsonl has each step once;
 *   - the files of weights and optimizer of the last checkpoint are the same.
 */
#ifndef APP_RESUME_RUNS_H
#define APP_RESUME_RUNS_H

#include <jansson.h>

#include "base/arena.h"
#include "base/rng.h"

typedef struct resume_runs {
    arena *a;
    const char *dir; /* RUN-verify */
    const char *run_a, *run_b;
    const char *config; /* of both: DIR/trial.json; b only has another run */
    int64_t steps, save_every;
    int kills; /* wanted */
    rng_key key;
    uint64_t drawn;
    bool keep;              /* the folder stays */
    bool live;              /* progress is one line that is written over */
    json_t **step, **valid; /* of a, by step - 1 */
    double step_s;          /* of a, mean */
    int save_ops;           /* file operations of a save, about */
    /* b */
    int struck, in_saves, stops, rounds;
    int64_t last_step;  /* that the present or last life reported */
    int64_t saved_step; /* newest checkpoint that was announced */
    char story[160];    /* the last interruption, for people */
    const char *broken; /* the promise that does not hold; NULL while all do */
} resume_runs;

/* Trains a, then b until it was interrupted `kills` times (again from the beginning where its steps
 * are over before). ST_OK with r->broken set or not; else what stopped a. */
status resume_runs_do(resume_runs *r, err *e) ATH_MUST_USE;
void resume_runs_free(resume_runs *r); /* the events; not the arena */

#endif
