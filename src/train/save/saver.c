#include "train/save/saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

enum { NICE = 10 };

static void *run(void *arg) {
    saver *s = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* on Linux: of this thread alone */
    s->result = s->work(s->job, &s->why);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

void saver_start(saver *s, status (*work)(void *job, err *e), void *job) {
    s->work = work;
    s->job = job;
    s->why = (err){0};
    atomic_store(&s->done, false);
    s->running = thread_start(&s->thread, run, s);
    if (s->running) return;
    s->result = work(job, &s->why);
    atomic_store(&s->done, true);
}

bool saver_is_done(const saver *s) {
    return atomic_load_explicit(&s->done, memory_order_acquire);
}

void saver_take(saver *s, status *result, err *e) {
    if (s->running) pthread_join(s->thread, NULL);
    s->running = false;
    s->job = NULL;
    *result = s->result;
    if (e) *e = s->why;
}
