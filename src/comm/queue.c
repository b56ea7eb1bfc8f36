/* Call number t (from 1) is in slot t mod LENGTH from queue_add until it is done. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/world.h"

enum { LENGTH = 256 };
/* Between two looks at what the wire has under way. */
enum { NAP_LEAST_NS = 20000, NAP_MOST_NS = 1000000 };

typedef struct job {
    comm *c;
    comm_call call;
    dev_event after;
} job;

struct queue {
    pthread_t thread;
    wire *moving; /* it needs somebody who moves what was posted; NULL: it does not */
    int64_t nap_ns;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work, progress;
    bool stop;
    comm_ticket added, done;
    job jobs[LENGTH];
};

static void run_next(queue *q) {
    job j = q->jobs[(q->done + 1) % LENGTH];
    pthread_mutex_unlock(&q->lock);
    comm_run_on(j.c, &j.call, j.after, STREAM_SIDE);
    pthread_mutex_lock(&q->lock);
    q->done++;
    pthread_cond_broadcast(&q->progress);
    q->nap_ns = NAP_LEAST_NS;
}

static void nap(queue *q) {
    int64_t until = clock_now_ns() + q->nap_ns;
    const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(&q->work, &q->lock, &at);
    if (q->nap_ns < NAP_MOST_NS) q->nap_ns += q->nap_ns / 4;
}

/* A peer may still wait for the last pieces of a collective that has ended here. */
static void await_work(queue *q) {
    bool under_way = false;
    if (q->moving) {
        pthread_mutex_unlock(&q->lock);
        under_way = q->moving->class->progress(q->moving);
        pthread_mutex_lock(&q->lock);
        if (q->done < q->added || q->stop) return;
    }
    if (under_way)
        nap(q);
    else
        pthread_cond_wait(&q->work, &q->lock);
}

static void *run(void *arg) {
    queue *q = arg;
    pthread_mutex_lock(&q->lock);
    while (q->done < q->added || !q->stop) {
        if (q->done < q->added)
            run_next(q);
        else
            await_work(q);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* The thread works on its rank's share of the cores. The system would leave it where it was woken, beside the rank that woke it: two
 * ranks that wait for each other's pieces then share one core, and the other has nothing to do. */
static void bind_to_share(pthread_t thread, int rank, int ranks) {
    int share = comm_core_share(ranks), core = 0;
    cpu_set_t all, own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    int cores = CPU_COUNT(&all), first = rank * share % cores;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all)) continue;
        if (core >= first && core < first + share) CPU_SET(i, &own);
        core++;
    }
    /* Where it fails all is as right, and slower. */
    (void)!pthread_setaffinity_np(thread, sizeof own, &own);
}

/* Of the clock of clock_now_ns. */
static void init_timed(pthread_cond_t *c) {
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(c, &how);
    pthread_condattr_destroy(&how);
}

/* Signals are for the thread that trains. */
queue *queue_new(wire *over, int rank, int ranks) {
    queue *q = xcalloc(1, sizeof *q);
    if (over && over->class->progress) q->moving = over;
    pthread_mutex_init(&q->lock, NULL);
    init_timed(&q->work);
    pthread_cond_init(&q->progress, NULL);
    CHECK(thread_start(&q->thread, run, q), "no thread for the side stream: %s", strerror(errno));
    if (ranks > 1) bind_to_share(q->thread, rank, ranks);
    return q;
}

void queue_free(queue *q) {
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->progress);
    free(q);
}

comm_ticket queue_add(queue *q, comm *c, const comm_call *call, dev_event after) {
    pthread_mutex_lock(&q->lock);
    while (q->added - q->done == LENGTH) pthread_cond_wait(&q->progress, &q->lock);
    comm_ticket t = ++q->added;
    q->jobs[t % LENGTH] = (job){.c = c, .call = *call, .after = after};
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    return t;
}

void queue_wait(queue *q, comm_ticket t) {
    pthread_mutex_lock(&q->lock);
    CHECK(t <= q->added, "no call has the ticket %llu", (unsigned long long)t);
    while (q->done < t) pthread_cond_wait(&q->progress, &q->lock);
    pthread_mutex_unlock(&q->lock);
}
