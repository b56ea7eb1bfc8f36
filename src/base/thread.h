/* Threads beside the one that was there first. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that takes no signals: these are for the first one, which knows what to do. False
 * with errno when the system has none to give. */
bool thread_start(pthread_t *t, void *(*run)(void *), void *arg);

#endif
