#include "serve/api/worker.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/thread.h"

struct worker {
    const served_list *models;
    metrics *metrics;
    int most;
    pthread_t thread;
    answer *live; /* the thread's own */
    /* under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    answer *come, **last; /* in order of arrival */
    int n_places;         /* of all answers that are not freed */
    size_t grammars;      /* bytes of theirs */
    bool stop;
};

int worker_share(int most) {
    return most < 4 ? 1 : most / 4;
}

/* That it has: one that is taken because it is alone leaves the others to those who come. */
static int places(const worker *w, const answer *a) {
    int share = worker_share(w->most);
    return a->n_texts < share ? a->n_texts : share;
}

static size_t bytes_of_grammar(const answer *a) {
    return a->grammar ? grammar_bytes(a->grammar) : 0;
}

/* What has come; waits for it if there is nothing else to do. *stop: it is time to end. */
static answer *take_all(worker *w, bool wait, bool *stop) {
    pthread_mutex_lock(&w->lock);
    while (wait && !w->come && !w->stop) pthread_cond_wait(&w->wake, &w->lock);
    answer *come = w->come;
    w->come = NULL;
    w->last = &w->come;
    *stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return come;
}

static void start_all(worker *w, answer *come) {
    while (come) {
        answer *a = come;
        come = a->next;
        a->next = w->live;
        w->live = a;
        answer_start(a);
    }
}

/* Cancels those whose clients have gone, and frees those that are over. */
static void sweep(worker *w) {
    int freed = 0;
    size_t grammars = 0;
    for (answer **at = &w->live; *at;) {
        answer *a = *at;
        if (!answer_is_over(a) && answer_client_gone(a)) answer_cancel(a);
        if (!answer_is_over(a)) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        freed += places(w, a);
        grammars += bytes_of_grammar(a);
        answer_free(a);
    }
    if (!freed) return;
    pthread_mutex_lock(&w->lock);
    w->n_places -= freed;
    w->grammars -= grammars;
    pthread_mutex_unlock(&w->lock);
}

static bool step_all(worker *w) {
    bool any = false;
    for (int i = 0; i < w->models->n; i++) any |= engine_step(w->models->item[i].engine);
    return any;
}

static void tell_loads(worker *w) {
    for (int i = 0; i < w->models->n; i++) {
        engine_load load = engine_get_load(w->models->item[i].engine);
        metrics_set_load(w->metrics, i, &load);
    }
}

static void *run(void *arg) {
    worker *w = arg;
    bool stop = false, busy = false;
    while (!stop) {
        start_all(w, take_all(w, !busy && !w->live, &stop));
        sweep(w);
        busy = step_all(w);
        sweep(w);
        tell_loads(w);
    }
    for (answer *a = w->live; a; a = a->next)
        if (!answer_is_over(a)) answer_cancel(a);
    sweep(w);
    return NULL;
}

status worker_start(worker **out, const served_list *models, metrics *m, int most, err *e) {
    worker *w = xcalloc(1, sizeof *w);
    *w = (worker){.models = models, .metrics = m, .most = most};
    w->last = &w->come;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    *out = w;
    /* This thread's helpers have opened the models. While there are more such threads than processors, those that wait
     * go to sleep at once (libgomp), and waking them takes longer than most ops. */
    omp_pause_resource_all(omp_pause_soft);
    if (thread_start(&w->thread, run, w)) return ST_OK;
    *out = NULL;
    free(w);
    return err_set(e, ST_FAILED, "the system has no thread for the engines: %s", strerror(errno));
}

bool worker_put(worker *w, answer *a) {
    size_t more = bytes_of_grammar(a);
    pthread_mutex_lock(&w->lock);
    bool fits = w->n_places == 0 ||
                (a->n_texts <= worker_share(w->most) && w->n_places + a->n_texts <= w->most &&
                 (more == 0 || w->grammars + more <= WORKER_GRAMMAR_BYTES));
    if (fits) {
        w->n_places += places(w, a);
        w->grammars += more;
        a->next = NULL;
        *w->last = a;
        w->last = &a->next;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    return fits;
}

void worker_stop(worker *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    free(w);
}
