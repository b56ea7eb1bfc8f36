/* The twin: a device like a GPU, made of the CPU, for tests.
 *
 * The host cannot reach its memory, and its stream runs late: work stays in a queue until somebody
 * waits for it. So if the host follows a pointer of the device, or a wait is missing, a test fails
 * every time, not once in a while. Results are the CPU's, bit by bit.
 *
 * - Memory is the host's, mapped as on the CPU, but protected. It is open while the stream runs and
 *   between dev_enter and dev_leave; `open` counts who is inside, and all reservations of a device
 *   are opened together. Other devices' are not: each rank that is a thread has its own. While
 *   comm's side thread is inside, a wrong pointer of the thread that trains goes unnoticed: a run
 *   of one rank finds them all.
 * - A read is put into the queue, too, and then waited for, so that it runs in order.
 * - Work runs on the thread that waits, one after the other. The lock is not held meanwhile:
 *   comm's side thread must be able to enter while a kernel waits for what that thread sends.
 * - A call that makes the queue longer than QUEUE_BYTES runs it at once.
 *
 * Unlike the step path elsewhere, it allocates. */
#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "dev/dev_int.h"

enum { QUEUE_BYTES = 16 << 20 };

typedef struct reservation {
    struct reservation *next;
    void *at;
    size_t bytes; /* of the mapping */
} reservation;

/* One kernel or move that was given, with its own copy of the arguments. */
typedef struct item {
    struct item *next;
    dev_kernel kernel;
    size_t bytes;
    alignas(max_align_t) char args[];
} item;

typedef struct twin {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ran;
    item *first, *last;
    size_t queued_bytes;
    dev_event given, done; /* numbers of the last item that was given, that has run */
    bool running;
    pthread_t runner; /* while running */
    reservation *reserved;
    int open;
} twin;

/* ---- memory; all with the lock held ---- */

static void protect(const reservation *r, int how) {
    CHECK(mprotect(r->at, r->bytes, how) == 0, "the twin's memory cannot be protected");
}

static void open_memory(twin *t) {
    if (t->open++ > 0) return;
    for (const reservation *r = t->reserved; r; r = r->next) protect(r, PROT_READ | PROT_WRITE);
}

static void close_memory(twin *t) {
    if (--t->open > 0) return;
    for (const reservation *r = t->reserved; r; r = r->next) protect(r, PROT_NONE);
}

/* ---- the stream ---- */

static twin *lock(dev *d) {
    twin *t = d->own;
    pthread_mutex_lock(&t->lock);
    return t;
}

static void unlock(twin *t) {
    pthread_mutex_unlock(&t->lock);
}

static item *take_first(twin *t) {
    item *i = t->first;
    t->first = i->next;
    if (!t->first) t->last = NULL;
    t->queued_bytes -= i->bytes;
    return i;
}

/* On this thread, with the lock held between items. */
static void run_stream(dev *d, twin *t, dev_event end) {
    t->running = true;
    t->runner = pthread_self();
    open_memory(t);
    while (t->done < end) {
        item *i = take_first(t);
        unlock(t);
        i->kernel(d, i->args);
        free(i);
        lock(d);
        t->done++;
        pthread_cond_broadcast(&t->ran);
    }
    close_memory(t);
    t->running = false;
    pthread_cond_broadcast(&t->ran);
}

static void run_until(dev *d, twin *t, dev_event end) {
    CHECK(end <= t->given, "nothing on the device has the number %llu", (unsigned long long)end);
    while (t->done < end) {
        CHECK(!t->running || !pthread_equal(t->runner, pthread_self()),
              "a kernel waits for its own device");
        if (t->running)
            pthread_cond_wait(&t->ran, &t->lock);
        else
            run_stream(d, t, end);
    }
}

/* Arguments are `head`, then `tail` behind it. */
static dev_event give(dev *d, dev_kernel kernel, const void *head, size_t head_bytes,
                      const void *tail, size_t tail_bytes) {
    item *i = xmalloc(sizeof *i + head_bytes + tail_bytes);
    *i = (item){.kernel = kernel, .bytes = head_bytes + tail_bytes};
    memcpy(i->args, head, head_bytes);
    if (tail_bytes) memcpy(i->args + head_bytes, tail, tail_bytes);
    twin *t = lock(d);
    if (t->last)
        t->last->next = i;
    else
        t->first = i;
    t->last = i;
    t->queued_bytes += i->bytes;
    dev_event ev = ++t->given;
    if (t->queued_bytes > QUEUE_BYTES) run_until(d, t, ev);
    unlock(t);
    return ev;
}

static void twin_launch(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    give(d, kernel, args, bytes, NULL, 0);
}

static dev_event twin_record(dev *d) {
    twin *t = lock(d);
    dev_event ev = t->given;
    unlock(t);
    return ev;
}

static void twin_wait(dev *d, dev_event ev) {
    twin *t = lock(d);
    run_until(d, t, ev);
    unlock(t);
}

/* ---- moves ---- */

typedef struct move {
    void *to;
    const void *from; /* NULL: what lies behind this */
    size_t bytes;
} move;

static void run_move(dev *d, const void *args) {
    (void)d;
    const move *m = args;
    memmove(m->to, m->from ? m->from : m + 1, m->bytes);
}

static dev_event give_move(dev *d, void *to, const void *from, size_t bytes) {
    return give(d, run_move, &(move){to, from, bytes}, sizeof(move), NULL, 0);
}

static void twin_write(dev *d, void *to, const void *host, size_t bytes) {
    give(d, run_move, &(move){to, NULL, bytes}, sizeof(move), host, bytes);
}

/* Also the way back of what was borrowed: the host's bytes may go when the call returns. */
static void move_now(dev *d, void *to, const void *from, size_t bytes) {
    twin_wait(d, give_move(d, to, from, bytes));
}

static void twin_copy(dev *d, void *to, const void *from, size_t bytes) {
    give_move(d, to, from, bytes);
}

typedef struct filling {
    void *at;
    int byte;
    size_t bytes;
} filling;

static void run_fill(dev *d, const void *args) {
    (void)d;
    const filling *f = args;
    memset(f->at, f->byte, f->bytes);
}

static void twin_fill(dev *d, void *at, int byte, size_t bytes) {
    twin_launch(d, run_fill, &(filling){at, byte, bytes}, sizeof(filling));
}

/* ---- the host ---- */

static void *twin_borrow(dev *d, void *at, size_t bytes, bool contents, dev_room *room) {
    void *host = dev_room_of(room, bytes);
    if (contents)
        move_now(d, host, at, bytes);
    else
        dev_sync(d);
    return host;
}

static void twin_enter(dev *d, dev_event ev) {
    twin *t = lock(d);
    run_until(d, t, ev);
    open_memory(t);
    unlock(t);
}

static void twin_leave(dev *d) {
    twin *t = lock(d);
    CHECK(t->open > 0, "the device's memory was left, but never entered");
    close_memory(t);
    unlock(t);
}

/* ---- opening and reserving ---- */

static status twin_open(dev *d, err *e) {
    (void)e;
    twin *t = d->own = xcalloc(1, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->ran, NULL);
    return ST_OK;
}

static void twin_close(dev *d) {
    twin *t = d->own;
    twin_wait(d, t->given);
    CHECK(!t->reserved, "a device is closed before its memory is released");
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->ran);
    free(t);
}

static status twin_reserve(dev *d, void **ptr, size_t bytes, const char *what, err *e) {
    TRY(dev_reserve_host(ptr, bytes, what, e));
    reservation *r = xmalloc(sizeof *r);
    twin *t = lock(d);
    *r = (reservation){t->reserved, *ptr, dev_mapping_bytes(bytes)};
    t->reserved = r;
    if (t->open == 0) protect(r, PROT_NONE);
    unlock(t);
    return ST_OK;
}

/* What was given may still want it. */
static void twin_release(dev *d, void *ptr, size_t bytes) {
    twin *t = lock(d);
    run_until(d, t, t->given);
    reservation **at = &t->reserved;
    while (*at && (*at)->at != ptr) at = &(*at)->next;
    reservation *r = *at;
    CHECK(r, "memory is released that the device does not have");
    *at = r->next;
    unlock(t);
    free(r);
    dev_release_host(ptr, bytes);
}

const dev_class dev_class_twin = {
    .name = "twin",
    .open = twin_open,
    .close = twin_close,
    .reserve = twin_reserve,
    .release = twin_release,
    .write = twin_write,
    .read = move_now,
    .read_later = twin_copy,
    .copy = twin_copy,
    .fill = twin_fill,
    .borrow = twin_borrow,
    .put_back = move_now,
    .launch = twin_launch,
    .record = twin_record,
    .wait = twin_wait,
    .enter = twin_enter,
    .leave = twin_leave,
};
