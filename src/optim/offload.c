/* Windows, slots, and the thread that reads and writes (see offload.h).
 *
 * Invariant: what is asked of the thread is done in the order in which it was asked. So a window is
 * in the file before it is read again, and a slot is written back before it is filled.
 *
 * Reading order: offload_update, ask, work, move. */
#include "optim/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_fault.h"
#include "base/thread.h"

enum { SLOTS = 2, QUEUE = 4 * SLOTS, BLOCK_ELEMS = 1 << 18, ALIGN = 64, MOST_WINDOW = 1 << 20 };

typedef struct window {
    int64_t at, n; /* in arrays of states */
    optim_part part;
    vec_spans spans;
} window;

typedef struct task {
    bool writes;
    int window;
} task;

struct offload {
    arena *a;
    const optim_class *class;
    const param_store *s;
    dev *dev;
    float *slots;
    int64_t slot_elems, elems; /* of one state in a slot; of a whole array of states */
    window *window;
    int n, cap;
    int fetched;           /* windows below it have been asked for in this step */
    int64_t filled[SLOTS]; /* how many tasks are done when the slot has been read */
    char *path;            /* for errors */
    int to, from;
    float *block; /* [BLOCK_ELEMS] between file and device */
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    task queue[QUEUE];
    int64_t asked, done; /* tasks so far; task number i is queue[i % QUEUE] */
    bool ends;
    err why; /* code ST_OK: no error yet */
};

/* Small models have windows of a sixteenth, so that slots save memory there, too. */
static int64_t window_elems(int64_t elems) {
    int64_t n = (elems / 16 + ALIGN) / ALIGN * ALIGN;
    return n > MOST_WINDOW ? MOST_WINDOW : n;
}

int64_t offload_slot_bytes(int64_t elems, int n_states) {
    return SLOTS * n_states * window_elems(elems) * (int64_t)sizeof(float);
}

static float *slot_at(const offload *o, int w, int state) {
    return o->slots + (w % SLOTS * o->class->n_states + state) * o->slot_elems;
}

/* ---- the file ---- */

static status name_failure(const offload *o, const char *verb, int error, err *e) {
    errno = error;
    err_errno(e, o->path, "cannot %s the optimizer state in %s", verb, o->path);
    return err_hint(e, "the run goes on from its last checkpoint: make room, or have "
                       "parallel.offload_to name another folder");
}

static status read_file(const offload *o, int state, int64_t at, float *to, int64_t n, err *e) {
    size_t bytes = sizeof *to * (size_t)n;
    ssize_t got = file_read_at(o->from, to, bytes, sizeof *to * (uint64_t)(state * o->elems + at));
    if (got == (ssize_t)bytes) return ST_OK;
    return name_failure(o, "read", got < 0 ? errno : EIO, e);
}

static status write_file(const offload *o, int state, int64_t at, const float *from, int64_t n,
                         err *e) {
    const char *p = (const char *)from;
    off_t to = (off_t)sizeof *from * (off_t)(state * o->elems + at);
    for (size_t left = sizeof *from * (size_t)n; left > 0;) {
        ssize_t k = file_sys_pwrite(o->to, p, left, to);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return name_failure(o, "write", k < 0 ? errno : ENOSPC, e);
        p += k, to += k, left -= (size_t)k;
    }
    return ST_OK;
}

/* Room for all of it, so that the disk is not full in the middle of a step. */
static status reserve(offload *o, err *e) {
    off_t bytes = (off_t)sizeof(float) * (off_t)(o->class->n_states * o->elems);
    if (file_sys_ftruncate(o->to, 0) != 0) return name_failure(o, "reserve", errno, e);
    int error = bytes > 0 ? posix_fallocate(o->to, 0, bytes) : 0;
    return error ? name_failure(o, "reserve", error, e) : ST_OK;
}

static status open_file(offload *o, err *e) {
    o->to = file_sys_create(o->path);
    if (o->to < 0) return name_failure(o, "reserve", errno, e);
    status st = file_open_part(o->path, &o->from, NULL, e);
    if (file_sys_unlinkat(AT_FDCWD, o->path, 0) != 0 && st == ST_OK)
        st = name_failure(o, "reserve", errno, e);
    return st == ST_OK ? reserve(o, e) : st;
}

/* ---- the thread ---- */

/* Between the slot and the file, by blocks. */
static status move(const offload *o, const task *t, err *e) {
    const window *w = &o->window[t->window];
    for (int k = 0; k < o->class->n_states; k++)
        for (int64_t at = 0, n; at < w->n; at += n) {
            n = w->n - at < BLOCK_ELEMS ? w->n - at : BLOCK_ELEMS;
            float *slot = slot_at(o, t->window, k) + at;
            if (t->writes) dev_read(o->dev, o->block, slot, sizeof *slot * (size_t)n);
            TRY(t->writes ? write_file(o, k, w->at + at, o->block, n, e)
                          : read_file(o, k, w->at + at, o->block, n, e));
            if (!t->writes) dev_write(o->dev, slot, o->block, sizeof *slot * (size_t)n);
        }
    return ST_OK;
}

static void *work(void *arg) {
    offload *o = arg;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->done == o->asked && !o->ends) pthread_cond_wait(&o->changed, &o->lock);
        if (o->done == o->asked) break;
        task t = o->queue[o->done % QUEUE];
        bool failed = o->why.code != ST_OK;
        pthread_mutex_unlock(&o->lock);
        err why = {0};
        if (!failed && move(o, &t, &why) == ST_OK) why.code = ST_OK;
        pthread_mutex_lock(&o->lock);
        if (!failed) o->why = why;
        o->done++;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Returns how many tasks are done when it is. */
static int64_t ask(offload *o, bool writes, int w) {
    pthread_mutex_lock(&o->lock);
    CHECK(o->asked - o->done < QUEUE, "%d tasks wait for the file of the optimizer", QUEUE);
    o->queue[o->asked++ % QUEUE] = (task){writes, w};
    int64_t number = o->asked;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return number;
}

/* Until so many tasks are done. */
static status await(offload *o, int64_t tasks, err *e) {
    pthread_mutex_lock(&o->lock);
    while (o->done < tasks) pthread_cond_wait(&o->changed, &o->lock);
    status st = o->why.code;
    if (st != ST_OK && e) *e = o->why;
    pthread_mutex_unlock(&o->lock);
    return st;
}

/* ---- updates ---- */

static void fetch_to(offload *o, int end) {
    for (; o->fetched < end && o->fetched < o->n; o->fetched++)
        o->filled[o->fetched % SLOTS] = ask(o, false, o->fetched);
}

void offload_fetch(offload *o) {
    fetch_to(o, SLOTS);
}

status offload_update(offload *o, int unit, const bool *decay, const optim_hyper *h,
                      uint64_t *digest, err *e) {
    uint64_t sum = 0;
    for (int w = 0; w < o->n; w++) {
        if (o->window[w].part.unit != unit) continue;
        uint64_t some = 0;
        fetch_to(o, w + SLOTS);
        TRY(await(o, o->filled[w % SLOTS], e));
        o->class->update(o->dev, o->s, &o->window[w].part, decay, h, digest ? &some : NULL);
        sum += some;
        ask(o, true, w);
        fetch_to(o, w + 1 + SLOTS);
        if (w == o->n - 1) o->fetched = 0;
    }
    if (digest) *digest = sum;
    return ST_OK;
}

/* ---- checkpoints ---- */

static status settle(offload *o, err *e) {
    o->fetched = 0;
    return await(o, o->asked, e);
}

status offload_read(offload *o, int state, int64_t at, float *to, int64_t n, err *e) {
    TRY(settle(o, e));
    return read_file(o, state, at, to, n, e);
}

status offload_write(offload *o, int state, int64_t at, const float *from, int64_t n, err *e) {
    TRY(settle(o, e));
    return write_file(o, state, at, from, n, e);
}

status offload_clear(offload *o, err *e) {
    TRY(settle(o, e));
    return reserve(o, e);
}

/* ---- opening ---- */

static void add_window(offload *o, int unit, int64_t first, int64_t n) {
    param_piece k = param_piece_of(o->s, unit);
    window w = {.at = k.state + first, .n = n, .part = {.unit = unit, .first = first}};
    w.spans.item = ARENA_ARRAY(o->a, vec_span, k.spans->n);
    for (int i = 0; i < k.spans->n; i++) {
        vec_span own = param_cut_span(k.spans->item[i], first, n);
        if (own.n > 0) w.spans.item[w.spans.n++] = own;
    }
    if (w.spans.n == 0) return; /* a gap */
    vec_spans_index(&w.spans);
    o->window = arena_grow(o->a, o->window, o->n, &o->cap, sizeof *o->window);
    o->window[o->n++] = w;
}

static void make_windows(offload *o) {
    for (int u = 0; u < param_units(o->s); u++) {
        const param_unit *unit = param_unit_at(o->s, u);
        for (int64_t at = 0, n; !unit->frozen && at < unit->piece_n; at += n) {
            n = unit->piece_n - at < o->slot_elems ? unit->piece_n - at : o->slot_elems;
            add_window(o, u, at, n);
        }
    }
    for (int w = 0; w < o->n; w++) { /* they no longer move */
        o->window[w].part.spans = &o->window[w].spans;
        for (int k = 0; k < o->class->n_states; k++) o->window[w].part.state[k] = slot_at(o, w, k);
    }
}

status offload_open(offload **out, const optim_class *c, const param_store *s, dev *d, float *slots,
                    const char *path, err *e) {
    arena *a = arena_new("offload");
    offload *o = ARENA_NEW(a, offload);
    int64_t elems = param_store_sizes(s).state_bytes / (int64_t)sizeof(float);
    *o = (offload){.a = a,
                   .class = c,
                   .s = s,
                   .dev = d,
                   .slots = slots,
                   .slot_elems = window_elems(elems),
                   .elems = elems,
                   .path = arena_strdup(a, path),
                   .to = -1,
                   .from = -1,
                   .block = ARENA_ARRAY(a, float, BLOCK_ELEMS)};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    make_windows(o);
    status st = open_file(o, e);
    if (st == ST_OK && !(o->runs = thread_start(&o->thread, work, o)))
        st = err_errno(e, o->path, "cannot start a thread for the optimizer state");
    if (st != ST_OK) {
        offload_close(o);
        return st;
    }
    *out = o;
    return ST_OK;
}

void offload_close(offload *o) {
    if (!o) return;
    pthread_mutex_lock(&o->lock);
    o->ends = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    if (o->runs) pthread_join(o->thread, NULL);
    if (o->to >= 0) close(o->to);
    if (o->from >= 0) close(o->from);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    arena_free(o->a);
}
