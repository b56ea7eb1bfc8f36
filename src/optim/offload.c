/* Arrays, windows, slots, and the thread that reads and writes (see offload.h).
 *
 * Invariant: what is asked of the thread is done in the order in which it was asked. So a window is
 * in the file before it is read again, and a slot is written back before it is filled.
 *
 * Reading order: offload_update, offload_begin_piece, ask, work, move. */
#include "optim/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_fault.h"
#include "base/thread.h"

enum { SLOTS = 2, QUEUE = 16, BLOCK_BYTES = 1 << 20, ALIGN = 64, MOST_WINDOW = 1 << 20 };

typedef struct array {
    int elem_bytes; /* 0: it is not in the file */
    int64_t in_file, in_slot;
} array;

typedef struct window {
    int64_t at, n; /* in each array */
    bool away;     /* its masters are in the file */
    optim_part part;
    vec_spans spans;
} window;

/* A set of arrays: bit k is array k. */
typedef unsigned arrays;

typedef enum task_kind { TASK_READ, TASK_WRITE, TASK_PIECE } task_kind;

typedef struct task {
    task_kind kind;
    int number;  /* of the window; TASK_PIECE: of the unit */
    arrays them; /* not of TASK_PIECE */
} task;

/* A piece on its way to the slot of its unit. */
typedef struct piece {
    offload *o;
    int64_t task;
} piece;

struct offload {
    arena *a;
    const optim_class *class;
    const param_store *s;
    dev *dev;
    offload_content content;
    array array[OFFLOAD_ARRAYS];
    char *slots;
    int64_t slot_elems, slot_bytes;
    window *window;
    int n, cap;
    piece *piece;          /* [units] */
    int fetched;           /* windows below it have been asked for in this step */
    int64_t filled[SLOTS]; /* how many tasks are done when the slot has been read */
    char *path;            /* for errors */
    int to, from;
    char *block;           /* [BLOCK_BYTES] between file and device */
    offload_counts counts; /* the thread's, while tasks are under way */
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    task queue[QUEUE];
    int64_t asked, done; /* tasks so far; task number i is queue[i % QUEUE] */
    bool ends;
    err why; /* code ST_OK: no error yet */
};

/* ---- what is in the file ---- */

/* Small models have windows of a sixteenth, so that slots save memory there, too. */
static int64_t window_elems(int64_t elems) {
    int64_t n = (elems / 16 + ALIGN) / ALIGN * ALIGN;
    return n > MOST_WINDOW ? MOST_WINDOW : n;
}

offload_content offload_content_of(unsigned what, dtype compute, bool frozen, int64_t elems,
                                   int n_states, dtype state_dt) {
    bool narrow = compute != DT_F32, weights = what & OFFLOAD_WEIGHTS;
    return (offload_content){.elems = elems,
                             .n_states = what & OFFLOAD_OPTIMIZER ? n_states : 0,
                             .state_dt = state_dt,
                             .masters =
                                 weights || ((what & OFFLOAD_OPTIMIZER) && narrow && !frozen),
                             .copy_bytes = weights && narrow ? (int)dtype_bytes(compute) : 0};
}

/* Of one element: its states and its master, in the file. */
static int64_t fixed_bytes(const offload_content *c, bool master) {
    return c->n_states * (int64_t)dtype_bytes(c->state_dt) + (master ? (int64_t)sizeof(float) : 0);
}

/* Of one element, in all arrays. */
static int64_t each_bytes(const offload_content *c) {
    return fixed_bytes(c, c->masters) + c->copy_bytes;
}

int64_t offload_slot_bytes(const offload_content *c) {
    return SLOTS * window_elems(c->elems) * each_bytes(c);
}

int64_t offload_file_bytes(const offload_content *c) {
    return c->elems * each_bytes(c);
}

static void add_array(offload *o, int k, int elem_bytes, int64_t *before) {
    o->array[k] = (array){elem_bytes, *before * o->content.elems, *before * o->slot_elems};
    *before += elem_bytes;
}

static void place_arrays(offload *o) {
    int64_t before = 0; /* bytes of an element */
    int state_bytes = (int)dtype_bytes(o->content.state_dt);
    for (int k = 0; k < o->content.n_states; k++) add_array(o, k, state_bytes, &before);
    if (o->content.masters) add_array(o, OFFLOAD_MASTERS, sizeof(float), &before);
    if (o->content.copy_bytes) add_array(o, OFFLOAD_WORK, o->content.copy_bytes, &before);
    o->slot_bytes = before * o->slot_elems;
}

static void *slot_at(const offload *o, int w, int k) {
    return o->slots + w % SLOTS * o->slot_bytes + o->array[k].in_slot;
}

static const arrays STATES = (1u << OPTIM_MAX_STATES) - 1, WEIGHTS = 3u << OFFLOAD_MASTERS;

/* What an update of the window changes in the file. */
static arrays changed_by_update(const window *w) {
    return STATES | (w->away ? WEIGHTS : 0);
}

/* Work copies follow from masters. */
static arrays read_by_update(const window *w) {
    return changed_by_update(w) & ~(1u << OFFLOAD_WORK);
}

/* ---- the file ---- */

static status name_failure(const offload *o, const char *verb, int k, int error, err *e) {
    errno = error;
    const char *what = k < OPTIM_MAX_STATES ? "the optimizer state" : "the weights";
    err_errno(e, o->path, "cannot %s %s in %s", verb, what, o->path);
    return err_hint(e, "the run goes on from its last checkpoint: make room, or have "
                       "parallel.offload_to name another folder");
}

static status read_file(const offload *o, int k, int64_t at, void *to, int64_t n, err *e) {
    const array *x = &o->array[k];
    size_t bytes = (size_t)(n * x->elem_bytes);
    ssize_t got = file_read_at(o->from, to, bytes, (uint64_t)(x->in_file + at * x->elem_bytes));
    if (got == (ssize_t)bytes) return ST_OK;
    return name_failure(o, "read", k, got < 0 ? errno : EIO, e);
}

static status write_file(const offload *o, int k, int64_t at, const void *from, int64_t n, err *e) {
    const array *x = &o->array[k];
    const char *p = from;
    off_t to = (off_t)(x->in_file + at * x->elem_bytes);
    for (size_t left = (size_t)(n * x->elem_bytes); left > 0;) {
        ssize_t m = file_sys_pwrite(o->to, p, left, to);
        if (m < 0 && errno == EINTR) continue;
        if (m <= 0) return name_failure(o, "write", k, m < 0 ? errno : ENOSPC, e);
        p += m, to += m, left -= (size_t)m;
    }
    return ST_OK;
}

static status cannot_reserve(const offload *o, int error, err *e) {
    return name_failure(o, "reserve", o->content.n_states ? 0 : OFFLOAD_MASTERS, error, e);
}

/* Room for all of it, so that the disk is not full in the middle of a step. */
static status reserve(const offload *o, err *e) {
    off_t bytes = (off_t)offload_file_bytes(&o->content);
    int error = bytes > 0 ? posix_fallocate(o->to, 0, bytes) : 0;
    return error ? cannot_reserve(o, error, e) : ST_OK;
}

static status open_file(offload *o, err *e) {
    o->to = file_sys_create(o->path);
    if (o->to < 0) return cannot_reserve(o, errno, e);
    status st = file_open_part(o->path, &o->from, NULL, e);
    if (file_sys_unlinkat(AT_FDCWD, o->path, 0) != 0 && st == ST_OK)
        st = cannot_reserve(o, errno, e);
    return st == ST_OK ? reserve(o, e) : st;
}

/* ---- the thread ---- */

/* Elements at .. at + n - 1 of an array between the file and the device, by blocks. */
static status move(offload *o, bool writes, int k, int64_t at, void *memory, int64_t n, err *e) {
    int64_t each = o->array[k].elem_bytes, most = BLOCK_BYTES / each;
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < most ? n - i : most;
        char *place = (char *)memory + i * each;
        size_t bytes = (size_t)(m * each);
        if (writes) dev_read(o->dev, o->block, place, bytes);
        TRY(writes ? write_file(o, k, at + i, o->block, m, e)
                   : read_file(o, k, at + i, o->block, m, e));
        if (!writes) dev_write(o->dev, place, o->block, bytes);
        *(writes ? &o->counts.written_bytes : &o->counts.read_bytes) += m * each;
    }
    return ST_OK;
}

static status move_window(offload *o, const task *t, err *e) {
    const window *w = &o->window[t->number];
    for (int k = 0; k < OFFLOAD_ARRAYS; k++)
        if (o->array[k].elem_bytes && (t->them & 1u << k))
            TRY(move(o, t->kind == TASK_WRITE, k, w->at, slot_at(o, t->number, k), w->n, e));
    return ST_OK;
}

/* A collective on the host comes next, so the device must have it. */
static status move_piece(offload *o, int unit, err *e) {
    param_transfer x = param_weights_transfer(o->s, unit);
    int k = o->content.copy_bytes ? OFFLOAD_WORK : OFFLOAD_MASTERS;
    TRY(move(o, false, k, param_unit_at(o->s, unit)->state, (void *)(uintptr_t)x.in, x.n, e));
    dev_wait(o->dev, dev_record(o->dev));
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
        status st = failed                 ? ST_OK
                    : t.kind == TASK_PIECE ? move_piece(o, t.number, &why)
                                           : move_window(o, &t, &why);
        if (st == ST_OK) why.code = ST_OK;
        pthread_mutex_lock(&o->lock);
        if (!failed) o->why = why;
        o->done++;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Returns how many tasks are done when it is. */
static int64_t ask(offload *o, task t) {
    pthread_mutex_lock(&o->lock);
    while (o->asked - o->done == QUEUE) pthread_cond_wait(&o->changed, &o->lock);
    o->queue[o->asked++ % QUEUE] = t;
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

status offload_check(offload *o, err *e) {
    return o ? await(o, 0, e) : ST_OK;
}

/* ---- updates ---- */

static void fetch_to(offload *o, int end) {
    for (; o->fetched < end && o->fetched < o->n; o->fetched++) {
        const window *w = &o->window[o->fetched];
        o->filled[o->fetched % SLOTS] = ask(o, (task){TASK_READ, o->fetched, read_by_update(w)});
    }
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
        ask(o, (task){TASK_WRITE, w, changed_by_update(&o->window[w])});
        fetch_to(o, w + 1 + SLOTS);
        if (w == o->n - 1) o->fetched = 0;
    }
    if (digest) *digest = sum;
    return ST_OK;
}

/* ---- pieces ---- */

void *offload_begin_piece(offload *o, int unit) {
    o->piece[unit] = (piece){o, ask(o, (task){.kind = TASK_PIECE, .number = unit})};
    return &o->piece[unit];
}

void offload_await_piece(void *ctx) {
    const piece *p = ctx;
    if (await(p->o, p->task, NULL) != ST_OK) return; /* offload_check says so */
}

/* ---- weights as a whole ---- */

static status settle(offload *o, err *e) {
    o->fetched = 0;
    return await(o, o->asked, e);
}

static void visit(offload *o, int unit, bool writes, param_window_fn fn, void *ctx) {
    if (settle(o, NULL) != ST_OK) return; /* told by the next call */
    for (int i = 0; i < o->n; i++) {
        const window *w = &o->window[i];
        if (w->part.unit != unit) continue;
        if (await(o, ask(o, (task){TASK_READ, i, 1u << OFFLOAD_MASTERS}), NULL) != ST_OK) return;
        fn(ctx, &(param_window){&w->spans, w->part.master, w->part.work});
        if (writes) ask(o, (task){TASK_WRITE, i, WEIGHTS});
    }
}

/* ---- checkpoints ---- */

status offload_read(offload *o, int k, int64_t at, void *to, int64_t n, err *e) {
    TRY(settle(o, e));
    return read_file(o, k, at, to, n, e);
}

status offload_write(offload *o, int k, int64_t at, const void *from, int64_t n, err *e) {
    TRY(settle(o, e));
    return write_file(o, k, at, from, n, e);
}

status offload_clear(offload *o, err *e) {
    TRY(settle(o, e));
    memset(o->block, 0, BLOCK_BYTES);
    int64_t most = BLOCK_BYTES / (int64_t)dtype_bytes(o->content.state_dt);
    for (int k = 0; k < o->content.n_states; k++)
        for (int64_t at = 0, n; at < o->content.elems; at += n) {
            n = o->content.elems - at < most ? o->content.elems - at : most;
            TRY(write_file(o, k, at, o->block, n, e));
        }
    return ST_OK;
}

/* ---- counting ---- */

offload_counts offload_counted(offload *o) {
    if (settle(o, NULL) != ST_OK) return o->counts;
    return o->counts;
}

/* Whether elements first .. first + n - 1 of a piece are of parameters, and no gap. */
static bool is_gap(const vec_spans *s, int64_t first, int64_t n) {
    for (int i = 0; i < s->n; i++)
        if (param_cut_span(s->item[i], first, n).n > 0) return false;
    return true;
}

static void count_unit(const offload_content *c, const param_store *s, int u, offload_counts *to) {
    param_piece k = param_piece_of(s, u);
    const param_unit *unit = param_unit_at(s, u);
    int64_t most = window_elems(c->elems);
    int64_t each = fixed_bytes(c, k.away && c->masters);
    for (int64_t at = 0, n; !unit->frozen && at < unit->piece_n; at += n) {
        n = unit->piece_n - at < most ? unit->piece_n - at : most;
        if (is_gap(k.spans, at, n)) continue;
        to->read_bytes += n * each;
        to->written_bytes += n * (each + (k.away ? c->copy_bytes : 0));
    }
}

offload_counts offload_step_bytes(const offload_content *c, const param_store *s,
                                  int64_t pieces_bytes) {
    offload_counts sum = {.read_bytes = pieces_bytes};
    int64_t all = offload_file_bytes(c);
    for (int u = 0; u < param_units(s); u++) count_unit(c, s, u, &sum);
    return param_units(s) ? sum : (offload_counts){all, all}; /* nobody shares it: no gaps */
}

/* ---- opening ---- */

/* Where the optimizer finds its elements: in the slot, or in memory. */
static void find_part(const offload *o, const offload_memory *m, int number) {
    window *w = &o->window[number];
    param_piece k = param_piece_of(o->s, w->part.unit);
    int64_t first = w->part.first;
    bool copied = w->away && o->content.copy_bytes;
    w->part.spans = &w->spans;
    w->part.master = w->away ? slot_at(o, number, OFFLOAD_MASTERS) : k.master + first;
    w->part.work = copied ? slot_at(o, number, OFFLOAD_WORK) : k.work ? k.work + first : NULL;
    int64_t before = w->at * (int64_t)dtype_bytes(o->content.state_dt);
    for (int i = 0; i < o->class->n_states; i++)
        w->part.state[i] =
            o->content.n_states ? slot_at(o, number, i) : (char *)m->state[i] + before;
}

static void add_window(offload *o, int unit, int64_t first, int64_t n) {
    param_piece k = param_piece_of(o->s, unit);
    window w = {
        .at = k.state + first, .n = n, .away = k.away, .part = {.unit = unit, .first = first}};
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

static void make_windows(offload *o, const offload_memory *m) {
    for (int u = 0; u < param_units(o->s); u++) {
        const param_unit *unit = param_unit_at(o->s, u);
        for (int64_t at = 0, n; !unit->frozen && at < unit->piece_n; at += n) {
            n = unit->piece_n - at < o->slot_elems ? unit->piece_n - at : o->slot_elems;
            add_window(o, u, at, n);
        }
    }
    for (int w = 0; w < o->n; w++) find_part(o, m, w); /* they no longer move */
}

static status start(offload *o, err *e) {
    TRY(open_file(o, e));
    o->runs = thread_start(&o->thread, work, o);
    return o->runs ? ST_OK : err_errno(e, o->path, "cannot start a thread for parallel.offload");
}

status offload_open(offload **out, const optim_class *c, param_store *s,
                    const offload_content *content, const offload_memory *memory, const char *path,
                    err *e) {
    arena *a = arena_new("offload");
    offload *o = ARENA_NEW(a, offload);
    *o = (offload){.a = a,
                   .class = c,
                   .s = s,
                   .dev = param_device(s),
                   .content = *content,
                   .slots = memory->slots,
                   .slot_elems = window_elems(content->elems),
                   .piece = ARENA_ARRAY(a, piece, param_units(s)),
                   .path = arena_strdup(a, path),
                   .to = -1,
                   .from = -1,
                   .block = ARENA_ARRAY(a, char, BLOCK_BYTES)};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    place_arrays(o);
    make_windows(o, memory);
    status st = start(o, e);
    if (st != ST_OK) {
        offload_close(o);
        return st;
    }
    if (content->masters) param_store_put_away(s, &(param_away){o, visit});
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
