/* How checkpoints are written.
 *
 * A save_job is one checkpoint: all that is to be written, as it was when the save began, so that a
 * thread can write it while training goes on. At most one job is in the background. Its thread has
 * a lower priority than those that compute: if all cores are busy, a save slows several steps a
 * little instead of stopping one. state.c begins saves and reports their results. */
#ifndef TRAIN_SAVE_H
#define TRAIN_SAVE_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "io/checkpoint/checkpoint_team.h"
#include "io/checkpoint/checkpoint_upload.h"
#include "io/checkpoint/held.h"
#include "model/config.h"
#include "optim/optim.h"
#include "param/param.h"
#include "tok/tok.h"
#include "train/lora.h"

typedef struct save_job {
    arena *mem;
    const char *run;
    checkpoint_team team;
    bool writes; /* false: this rank's weights are replicas of what others write */
    const param_store *store;
    const tok *tok;
    const char *chat_template; /* teaching.h, as is what follows */
    int32_t stop;
    tok_ids end; /* its ids are in `mem` */
    const optim_class *optim;
    const param_store *laid_out; /* as each of its states is */
    model_config model;
    const lora
        *lora; /* of a run of adapters: what it saves is a folder of PEFT; NULL: no such run */
    dtype compute;
    held_array masters; /* the store's, or a copy of them in the host's memory */
    held_array states[OPTIM_MAX_STATES];
    int64_t step;
    double val_loss;
    uint64_t need_bytes;
    json_t *cursor, *guard, *ledger;
    checkpoint_keep keep;
    int64_t began_ns;
    checkpoint_writer *writer; /* of rank 0, from save_begin until it is committed or given up */
    status pruned;             /* of deleting older checkpoints; an error leaves the new one good */
    err why_not_pruned;
} save_job;

/* Makes the folder, on rank 0. Before any rank writes, all ranks must know whether this succeeded.
 * It fails on a full disk, for example; the ranks then need no file to learn that. */
status save_begin(save_job *j, err *e) ATH_MUST_USE;
/* Gives up what save_begin has begun and save_write has not ended. */
void save_abandon(save_job *j);
/* Writes this rank's part of the checkpoint; rank 0 also writes all that is no tensor, and then
 * deletes older checkpoints. Reads nothing of a session. */
status save_write(save_job *j, err *e) ATH_MUST_USE;

/* ---- in the background ---- */

typedef struct saving {
    int64_t saved_ns; /* when the last save was begun */
    int64_t saves;    /* begun */
    int failed_saves; /* since the last one that succeeded */
    int64_t saved;    /* the step that one is of; -1: of none since a state was loaded */
    upload *upload;   /* NULL: the config wants none, or this is not rank 0 */
    bool prunes;      /* uploads have ended: checkpoints that were kept until then may be deleted */

    save_job *job; /* in the background, until saving_take; NULL: none */
    pthread_t thread;
    bool running;
    atomic_bool done;
    status result;
    err why;
} saving;

/* Starts save_write in the background, where no other job is. If no thread can be made, it is done
 * at once. */
void saving_start(saving *v, save_job *job);
bool saving_is_done(const saving *v);
/* Waits for the end of the job, and returns it: the caller then owns it. */
save_job *saving_take(saving *v, status *result, err *e);

#endif
