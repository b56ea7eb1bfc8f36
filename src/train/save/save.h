/* The saves of a run.
 *
 * A save_job is one checkpoint to be written: everything that it takes, fixed when saving begins, so
 * that a thread can write while training goes on. One job at a time is written in the background,
 * by a thread of lower priority than the ones that compute: on a machine whose cores are all busy a
 * save is spread over some steps instead of stopping one. state.c begins saves and tells what became
 * of them. */
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

typedef struct save_job {
    arena *mem;
    const char *run;
    checkpoint_team team;
    bool writes; /* false: this rank's weights are replicas of what others write */
    const param_store *store;
    const tok *tok;
    const optim_class *optim;
    model_config model;
    dtype compute;
    held_array masters; /* the store's, or a copy of them in the host's memory */
    held_array states[OPTIM_MAX_STATES];
    int64_t step;
    double val_loss;
    uint64_t need_bytes;
    json_t *cursor, *guard;
    checkpoint_keep keep;
    int64_t began_ns;
    checkpoint_writer *writer; /* of rank 0, from save_begin until it is committed or given up */
    status pruned;             /* of the older ones; the new one stands all the same */
    err why_not_pruned;
} save_job;

/* Makes the folder, on rank 0. The ranks agree on what comes of it before any writes: what fails
 * here, on a full disk for one, need not be told through that disk. */
status save_begin(save_job *j, err *e) ATH_MUST_USE;
/* Gives up what save_begin has begun and save_write has not ended. */
void save_abandon(save_job *j);
/* Writes this rank's part of the checkpoint, as rank 0 also what is not tensors, and then deletes
 * older ones. Nothing of a session is read. */
status save_write(save_job *j, err *e) ATH_MUST_USE;

/* ---- in the background ---- */

typedef struct saving {
    int64_t saved_ns; /* when the last save was begun */
    int64_t saves;    /* begun */
    int failed_saves; /* in a row */
    upload *upload;   /* NULL: nobody wants it, or this is not rank 0 */

    save_job *job; /* in the background; NULL: there is none to be taken */
    pthread_t thread;
    bool running;
    atomic_bool done;
    status result;
    err why;
} saving;

/* save_write in the background, where no other is. Where no thread can be made it is done at once. */
void saving_start(saving *v, save_job *job);
bool saving_is_done(const saving *v);
/* Waits for the end of the job, which is the caller's then. */
save_job *saving_take(saving *v, status *result, err *e);

#endif
