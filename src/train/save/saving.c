#include "train/save/saving.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

enum { NICE = 10 };

static void *run(void *arg) {
    saving *v = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* on Linux: of this thread alone */
    v->result = save_write(v->job, &v->why);
    atomic_store_explicit(&v->done, true, memory_order_release);
    return NULL;
}

void saving_start(saving *v, save_job *job) {
    v->job = job;
    v->why = (err){0};
    atomic_store(&v->done, false);
    v->running = thread_start(&v->thread, run, v);
    if (v->running) return;
    v->result = save_write(job, &v->why);
    atomic_store(&v->done, true);
}

bool saving_is_done(const saving *v) {
    return atomic_load_explicit(&v->done, memory_order_acquire);
}

save_job *saving_take(saving *v, status *result, err *e) {
    save_job *job = v->job;
    if (v->running) pthread_join(v->thread, NULL);
    v->running = false;
    v->job = NULL;
    *result = v->result;
    if (e) *e = v->why;
    return job;
}
