#include "base/thread.h"

#include <errno.h>
#include <signal.h>

bool thread_start(pthread_t *t, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(t, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return !failed;
}
