/* One job in the background: the writing of a checkpoint while training goes on.
 *
 * The thread has a lower priority than the ones that compute, so that on a machine whose cores are
 * all busy a save is spread over some steps instead of stopping one. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"

typedef struct saver {
    pthread_t thread;
    bool running;
    atomic_bool done;
    status (*work)(void *job, err *e);
    void *job; /* NULL: there is none to be taken */
    status result;
    err why;
} saver;

/* There may be no job. Where no thread can be made the work is done at once. */
void saver_start(saver *s, status (*work)(void *job, err *e), void *job);
bool saver_is_done(const saver *s);
/* Waits for the end of the job, which is the caller's then. */
void saver_take(saver *s, status *result, err *e);

#endif
