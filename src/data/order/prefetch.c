/* See prefetch.h. The buffer is a ring of slots, one for each micro-batch of a step. Micro-batches
 * have one count through all steps; number i lies in slot i % slots from when it is made until the
 * owner has taken it and releases it: released <= made <= released + slots.
 *
 * If the owner asks for a step that was not expected, the numbers stand for other samples from then
 * on. A new generation begins, and what the thread is filling for the old one is thrown away. */
#include "data/order/prefetch.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/thread.h"
#include "data/order/loader_impl.h"

typedef struct step_range {
    uint64_t first; /* sample */
    int64_t n;      /* samples; 0: no step */
    uint64_t base;  /* number of its first micro-batch */
} step_range;

struct prefetch {
    loader *l;
    int B, T, slots;
    bool start;      /* starts are kept */
    int S;           /* tokens of sources; 0: there are none */
    int32_t *rows;   /* [slots] of what slot_at says */
    int64_t *live;   /* [slots] targets that count */
    bool has_thread; /* without one, steps are made when they begin */
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows, and the slots [released, made) */
    pthread_cond_t work;  /* the thread may have something to do */
    pthread_cond_t done;  /* made has grown */
    bool stop;
    step_range now, coming;
    uint64_t made, released, generation;
};

static int64_t micro_batches(const prefetch *p, int64_t n) {
    return (n + p->B - 1) / p->B;
}

enum { INFO_INTS = sizeof(loader_row) / sizeof(int32_t) };

static size_t slot_ints(int B, int T, int S, bool start) {
    size_t of_row =
        INFO_INTS + (size_t)T * (start ? 3 : 2) + (S ? 4 * (size_t)S + 2 * (size_t)T : 0);
    return (size_t)B * of_row;
}

static int32_t *next_array(int32_t **at, int64_t n) {
    int32_t *array = *at;
    *at += n;
    return array;
}

/* The arrays of a slot. */
static loader_rows slot_at(const prefetch *p, uint64_t number) {
    int64_t of_T = (int64_t)p->B * p->T, of_S = (int64_t)p->B * p->S;
    int32_t *at = p->rows + number % (uint64_t)p->slots * slot_ints(p->B, p->T, p->S, p->start);
    loader_rows r = {.info = (loader_row *)(void *)next_array(&at, (int64_t)INFO_INTS * p->B)};
    r.ids = next_array(&at, of_T);
    r.targets = next_array(&at, of_T);
    if (p->start) r.start = next_array(&at, of_T);
    if (!p->S) return r;
    r.source = next_array(&at, of_S);
    r.source_pos = next_array(&at, of_S);
    r.source_start = next_array(&at, of_S);
    r.source_end = next_array(&at, of_S);
    r.seen_start = next_array(&at, of_T);
    r.seen_end = next_array(&at, of_T);
    return r;
}

/* ---- making ---- */

/* A micro-batch to make. */
typedef struct job {
    uint64_t number, generation;
    uint64_t first;
    int rows;
} job;

static bool job_in(const prefetch *p, const step_range *s, job *j) {
    int64_t at = (int64_t)(p->made - s->base) * p->B;
    if (s->n == 0 || at >= s->n) return false;
    int64_t left = s->n - at;
    *j = (job){.number = p->made,
               .generation = p->generation,
               .first = s->first + (uint64_t)at,
               .rows = left < p->B ? (int)left : p->B};
    return true;
}

static bool next_job(const prefetch *p, job *j) {
    if (p->made - p->released == (uint64_t)p->slots) return false;
    return job_in(p, &p->now, j) || job_in(p, &p->coming, j);
}

static int64_t fill(const prefetch *p, const job *j) {
    loader_rows rows = slot_at(p, j->number);
    return loader_fill_rows(p->l, j->first, j->rows, &rows);
}

/* Called with the lock held, which is given up while reading. */
static void make(prefetch *p, const job *j) {
    pthread_mutex_unlock(&p->lock);
    int64_t live = fill(p, j);
    pthread_mutex_lock(&p->lock);
    if (j->generation != p->generation) return;
    p->live[j->number % (uint64_t)p->slots] = live;
    p->made++;
    pthread_cond_signal(&p->done);
}

static void *run(void *arg) {
    prefetch *p = arg;
    job j;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (next_job(p, &j))
            make(p, &j);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- opening ---- */

static int slots_of(int B, int64_t batch) {
    return (int)((batch + B - 1) / B);
}

prefetch *prefetch_new(loader *l, int B, int64_t batch, bool start) {
    CHECK(B > 0 && batch > 0, "B %d, batch %lld", B, (long long)batch);
    prefetch *p = xcalloc(1, sizeof *p);
    p->l = l;
    p->B = B;
    p->T = loader_seq_len(l);
    p->S = loader_source_len(l);
    p->slots = slots_of(B, batch);
    p->start = start;
    p->rows = xcalloc((size_t)p->slots * slot_ints(B, p->T, p->S, start), sizeof *p->rows);
    p->live = xcalloc((size_t)p->slots, sizeof *p->live);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    p->has_thread = thread_start(&p->thread, run, p);
    return p;
}

void prefetch_free(prefetch *p) {
    if (!p) return;
    if (p->has_thread) {
        pthread_mutex_lock(&p->lock);
        p->stop = true;
        pthread_cond_signal(&p->work);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    free(p->rows);
    free(p->live);
    free(p);
}

size_t prefetch_bytes(int B, int T, int S, int64_t batch, bool start) {
    size_t slots = (size_t)slots_of(B, batch);
    return sizeof(prefetch) +
           slots * (sizeof(int64_t) + slot_ints(B, T, S, start) * sizeof(int32_t));
}

/* ---- steps ---- */

static bool same_step(const step_range *s, uint64_t first, int64_t n) {
    return s->n == n && s->first == first;
}

/* Forgets everything that was made or planned. */
static void restart(prefetch *p, uint64_t first, int64_t n) {
    p->generation++;
    p->made = p->released = 0;
    p->now = (step_range){.first = first, .n = n};
}

void prefetch_expect(prefetch *p, uint64_t first, int64_t n) {
    CHECK(n > 0 && micro_batches(p, n) <= p->slots, "a step of %lld samples", (long long)n);
    pthread_mutex_lock(&p->lock);
    uint64_t base = p->now.base + (uint64_t)micro_batches(p, p->now.n);
    /* What was read ahead of another step, or is being read, is in the way. */
    if (!same_step(&p->coming, first, n) && p->made >= base) {
        p->generation++;
        p->made = base;
    }
    p->coming = (step_range){.first = first, .n = n, .base = base};
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_step(prefetch *p) {
    uint64_t end = p->now.base + (uint64_t)micro_batches(p, p->now.n);
    job j;
    while (p->made < end) {
        if (p->has_thread)
            pthread_cond_wait(&p->done, &p->lock);
        else if (next_job(p, &j))
            make(p, &j);
    }
}

int64_t prefetch_begin(prefetch *p, uint64_t first, int64_t n) {
    CHECK(n > 0 && micro_batches(p, n) <= p->slots, "a step of %lld samples", (long long)n);
    pthread_mutex_lock(&p->lock);
    if (same_step(&p->coming, first, n))
        p->now = p->coming;
    else
        restart(p, first, n);
    p->released = p->now.base;
    p->coming.n = 0;
    pthread_cond_signal(&p->work);
    wait_for_step(p);
    int64_t live = 0;
    for (int64_t m = 0; m < micro_batches(p, n); m++)
        live += p->live[(p->now.base + (uint64_t)m) % (uint64_t)p->slots];
    pthread_mutex_unlock(&p->lock);
    return live;
}

/* ---- taking ---- */

static void copy(int32_t *to, const int32_t *from, int64_t n) {
    if (to && from) memcpy(to, from, (size_t)n * sizeof *to);
}

static void copy_slot(const prefetch *p, uint64_t number, int64_t rows, const loader_rows *to) {
    const loader_rows from = slot_at(p, number);
    int64_t of_T = rows * p->T, of_S = rows * p->S;
    copy(to->ids, from.ids, of_T);
    copy(to->targets, from.targets, of_T);
    copy(to->start, from.start, of_T);
    if (to->info) memcpy(to->info, from.info, (size_t)rows * sizeof *to->info);
    if (to->pos) rows_fill_positions(to->pos, to->start, rows, p->T);
    if (!p->S) return;
    copy(to->source, from.source, of_S);
    copy(to->source_pos, from.source_pos, of_S);
    copy(to->source_start, from.source_start, of_S);
    copy(to->source_end, from.source_end, of_S);
    copy(to->seen_start, from.seen_start, of_T);
    copy(to->seen_end, from.seen_end, of_T);
}

static void release(prefetch *p, uint64_t up_to) {
    pthread_mutex_lock(&p->lock);
    p->released = up_to;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

/* `now` and `released` are changed by the owner alone, who is here: reading them needs no lock, and
 * the step's slots were all made when it began. */
void prefetch_take(prefetch *p, int m, const loader_rows *to) {
    int64_t left = p->now.n - (int64_t)m * p->B;
    CHECK(m >= 0 && left > 0 && (!to->start || p->start), "micro-batch %d", m);
    int64_t rows = left < p->B ? left : p->B;
    uint64_t number = p->now.base + (uint64_t)m;
    CHECK(number >= p->released, "micro-batch %d was taken before", m);
    copy_slot(p, number, rows, to);
    release(p, number + 1);
}
