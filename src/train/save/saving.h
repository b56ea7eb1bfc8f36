/* The saves of a run: the one that is under way, what became of the last ones, the uploads.
 *
 * One save at a time is written in the background. Its thread has a lower priority than the ones
 * that compute, so that on a machine whose cores are all busy a save is spread over some steps
 * instead of stopping one. state.c begins saves and tells what became of them. */
#ifndef TRAIN_SAVING_H
#define TRAIN_SAVING_H

#include <pthread.h>
#include <stdatomic.h>

#include "io/checkpoint/checkpoint_upload.h"
#include "train/save/save.h"

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

/* Writes the job in the background, where no other is. Where no thread can be made it is written at
 * once. */
void saving_start(saving *v, save_job *job);
bool saving_is_done(const saving *v);
/* Waits for the end of the job, which is the caller's then. */
save_job *saving_take(saving *v, status *result, err *e);

#endif
