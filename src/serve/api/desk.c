#include "serve/api/desk.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/thread.h"

typedef struct task {
    desk_work work;
    void *ctx;
    const http_request *rq;
    http_reply *reply;
    struct task *next;
} task;

struct desk {
    pthread_t *thread;
    int n;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    task *first, **last; /* under the lock, as the next */
    bool closed;
};

/* NULL: the desk is closed and empty. */
static task *next_task(desk *d) {
    pthread_mutex_lock(&d->lock);
    while (!d->first && !d->closed) pthread_cond_wait(&d->wake, &d->lock);
    task *t = d->first;
    if (t) d->first = t->next;
    if (!d->first) d->last = &d->first;
    pthread_mutex_unlock(&d->lock);
    return t;
}

/* The processor belongs to the engines: a long text is encoded by this thread alone. */
static void *run(void *arg) {
    omp_set_num_threads(1);
    for (task *t; (t = next_task(arg));) {
        t->work(t->ctx, t->rq, t->reply);
        free(t);
    }
    return NULL;
}

status desk_open(desk **out, int threads, err *e) {
    desk *d = xcalloc(1, sizeof *d);
    d->thread = xcalloc((size_t)threads, sizeof *d->thread);
    d->last = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    *out = d;
    for (; d->n < threads; d->n++)
        if (!thread_start(&d->thread[d->n], run, d))
            return err_set(e, ST_FAILED, "the system has no thread for requests: %s",
                           strerror(errno));
    return ST_OK;
}

void desk_put(desk *d, desk_work work, void *ctx, const http_request *rq, http_reply *reply) {
    task *t = xmalloc(sizeof *t);
    *t = (task){work, ctx, rq, reply, NULL};
    pthread_mutex_lock(&d->lock);
    *d->last = t;
    d->last = &t->next;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

void desk_close(desk *d) {
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->n; i++) pthread_join(d->thread[i], NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->wake);
    free(d->thread);
    free(d);
}
