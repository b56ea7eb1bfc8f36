/* The driver's functions for the emulated device: memory, streams, events.
 *
 * Work runs when somebody waits for it, on the thread that waits. Streams run in any order that
 * events allow: which stream goes on is drawn, so a missing event shows. Copies are late, and those to the
 * device want pinned memory: when a driver has taken bytes of other memory it leaves open.
 *
 * The host cannot reach the device's memory: it is protected, except while work runs and between
 * emu_open and emu_close. Every context is a device of its own. */
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/rng.h"
#include "gpu/driver.h"
#include "gpu/emulated/device.h"

typedef struct item {
    struct item *next;
    emu_work work;
    void (*run)(cu_context c, const void *args);
    /* A wait: it is done when `after` has done so much. */
    cu_stream after;
    uint64_t after_number;
    bool (*poll)(const void *args); /* it can be done when this says so; NULL: at once */
    size_t bytes;                   /* of args */
    alignas(max_align_t) char args[];
} item;

/* A function of the host, whose arguments follow. */
typedef struct host_call {
    alignas(max_align_t) void (*fn)(const void *args);
    uint8_t *out;
} host_call;

typedef struct item_list {
    item *first, *last;
} item_list;

struct cu_stream_handle {
    cu_context context;
    cu_stream next;
    item_list work;
    item_list *captured; /* where items go instead, during a capture */
    uint64_t given, done;
    int slot;        /* in clocks */
    emu_clock clock; /* of its last item */
};

struct cu_event_handle {
    cu_context context;
    /* Guarded by the context's lock. */
    cu_stream stream; /* NULL: never recorded */
    uint64_t number, clock_us;
    emu_clock clock;
};

struct cu_graph_handle {
    item_list work;
};

struct cu_graph_exec_handle {
    item_list work;
};

typedef struct reservation {
    struct reservation *next;
    char *at; /* behind a fence of one page, and before one */
    size_t bytes;
} reservation;

/* What ATHANOR_CUDA_FAULT=WORD:GPU plants, for tests: work takes 20 % longer, at once or after it was timed for
 * the first time; one bit of filled memory, or of a library's result, is wrong; no memory is available; the GPU is lost
 * in the midst of a run, after so many calls of libraries. */
typedef enum fault {
    FAULT_NONE,
    FAULT_SLOW,
    FAULT_SLOWS,
    FAULT_FLIP,
    FAULT_WRONG,
    FAULT_FULL,
    FAULT_LOST
} fault;
enum { WORK_US = 1000, FLIPS_IN = 0xaa, WRONG_AT = 4, LOST_AT = 200 };

struct cu_context_handle {
    emu_device *device;
    pthread_mutex_t lock; /* guards what follows */
    cu_stream streams;
    cu_stream destroyed; /* events and waits may still ask how far they have come */
    reservation *reserved, *pinned;
    int open;
    uint64_t random;
    fault fault;
    bool flipped, was_timed;
    int calls;         /* that have run */
    uint64_t clock_us; /* of all work so far, if ATHANOR_CUDA_FAULT is set */
    emu_clock host;    /* what the host has waited for */
    bool slot_taken[EMU_MOST_STREAMS], several; /* several: more than one stream was given work */
    cu_stream first_used;
    cu_stream in_scope; /* scopes of other streams come later */
};

static _Thread_local cu_context current;
/* The stream whose work this thread captures, and whether it has called what a capture forbids. */
static _Thread_local cu_stream capturing;
static _Thread_local bool capture_is_broken;

static bool forbidden_now(void) {
    if (capturing) capture_is_broken = true;
    return capturing != NULL;
}

enum { FENCE = 4096 };

/* ---- memory; with the lock held ---- */

static size_t mapped_bytes(size_t bytes) {
    return (bytes + FENCE - 1) / FENCE * FENCE;
}

static void protect_all(cu_context c, int how) {
    for (const reservation *r = c->reserved; r; r = r->next)
        CHECK(mprotect(r->at, mapped_bytes(r->bytes), how) == 0,
              "the emulated device's memory cannot be protected");
}

static void open_memory(cu_context c) {
    if (c->open++ == 0) protect_all(c, PROT_READ | PROT_WRITE);
}

static void close_memory(cu_context c) {
    CHECK(c->open > 0, "the device's memory was left, but never entered");
    if (--c->open == 0) protect_all(c, PROT_NONE);
}

static cu_result emu_mem_alloc(cu_ptr *p, size_t bytes) {
    cu_context c = current;
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    char *at =
        mmap(NULL, mapped_bytes(bytes) + 2 * FENCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return CU_OUT_OF_MEMORY;
    (void)madvise(at, mapped_bytes(bytes) + 2 * FENCE, MADV_NOHUGEPAGE);
    reservation *r = xmalloc(sizeof *r);
    pthread_mutex_lock(&c->lock);
    *r = (reservation){c->reserved, at + FENCE, bytes};
    c->reserved = r;
    if (c->open) mprotect(r->at, mapped_bytes(bytes), PROT_READ | PROT_WRITE);
    emu_memory_add(c->device, r->at, bytes);
    pthread_mutex_unlock(&c->lock);
    *p = (cu_ptr)(uintptr_t)r->at;
    return 0;
}

static void run_all(cu_context c);

/* What was given may still want it. */
static cu_result emu_mem_free(cu_ptr p) {
    cu_context c = current;
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    pthread_mutex_lock(&c->lock);
    run_all(c);
    reservation **at = &c->reserved;
    while (*at && (cu_ptr)(uintptr_t)(*at)->at != p) at = &(*at)->next;
    reservation *r = *at;
    CHECK(r, "memory is released that the device does not have");
    *at = r->next;
    emu_memory_remove(c->device, r->at);
    munmap(r->at - FENCE, mapped_bytes(r->bytes) + 2 * FENCE);
    pthread_mutex_unlock(&c->lock);
    free(r);
    return 0;
}

/* The host's memory, which kernels reach, too. */
static cu_result emu_mem_host_alloc(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    reservation *r = xmalloc(sizeof *r);
    *p = xmalloc(bytes);
    pthread_mutex_lock(&current->lock);
    *r = (reservation){current->pinned, *p, bytes};
    current->pinned = r;
    emu_memory_add(current->device, *p, bytes);
    pthread_mutex_unlock(&current->lock);
    return 0;
}

static cu_result emu_mem_host_free(void *p) {
    cu_context c = current;
    pthread_mutex_lock(&c->lock);
    run_all(c);
    reservation **at = &c->pinned;
    while (*at && (*at)->at != p) at = &(*at)->next;
    reservation *r = *at;
    CHECK(r, "pinned memory is released that the device does not have");
    *at = r->next;
    emu_memory_remove(c->device, p);
    pthread_mutex_unlock(&c->lock);
    free(r);
    free(p);
    return 0;
}

/* ---- streams; with the lock held ---- */

static void run_scope(cu_context c, const void *args);

static bool is_ready(const struct cu_stream_handle *s) {
    const item *i = s->work.first;
    if (!i || (i->after && i->after->done < i->after_number)) return false;
    if (i->run == run_scope && s->context->in_scope && s->context->in_scope != s) return false;
    if (!i->poll) return true;
    s->context->device->now = s->context->several ? &i->work : NULL;
    bool ready = i->poll(i->args + sizeof(host_call));
    s->context->device->now = NULL;
    return ready;
}

/* Whether some stream waits for another rank. */
static bool is_polled(cu_context c) {
    const struct cu_stream_handle *s = c->streams;
    while (s && !(s->work.first && s->work.first->poll)) s = s->next;
    return s != NULL;
}

static cu_stream draw_ready(cu_context c) {
    uint64_t n = 0;
    cu_stream drawn = NULL;
    for (cu_stream s = c->streams; s; s = s->next) {
        if (!is_ready(s)) continue;
        c->random = mix64(c->random + 0x9e3779b97f4a7c15u);
        if (c->random % ++n == 0) drawn = s;
    }
    return drawn;
}

static void run_first(cu_stream s) {
    item *i = s->work.first;
    s->work.first = i->next;
    if (!s->work.first) s->work.last = NULL;
    s->context->device->now = s->context->several ? &i->work : NULL;
    if (i->run) i->run(s->context, i->args);
    s->context->device->now = NULL;
    s->done++;
    free(i);
}

/* False: other ranks must come first. */
static bool run_what_is_ready(cu_stream target, uint64_t number) {
    cu_context c = target->context;
    cu_stream s = NULL;
    if (target->done >= number) return true;
    open_memory(c);
    while (target->done < number && (s = draw_ready(c))) run_first(s);
    CHECK(s || is_polled(c), "streams wait for each other");
    close_memory(c);
    return target->done >= number;
}

/* The lock is not held while other ranks are waited for. */
static void run_until(cu_stream target, uint64_t number) {
    const struct timespec nap = {.tv_nsec = 50000};
    while (!run_what_is_ready(target, number)) {
        pthread_mutex_unlock(&target->context->lock);
        nanosleep(&nap, NULL);
        pthread_mutex_lock(&target->context->lock);
    }
}

static void run_all(cu_context c) {
    for (cu_stream s = c->streams; s; s = s->next) {
        run_until(s, s->given);
        emu_clock_join(&c->host, &s->clock);
    }
}

static item *new_item(void (*run)(cu_context, const void *), const void *head, size_t head_bytes,
                      const void *tail, size_t tail_bytes) {
    item *i = xmalloc(sizeof *i + head_bytes + tail_bytes);
    *i = (item){.run = run, .bytes = head_bytes + tail_bytes};
    if (head_bytes) memcpy(i->args, head, head_bytes);
    if (tail_bytes) memcpy(i->args + head_bytes, tail, tail_bytes);
    return i;
}

static void append(item_list *l, item *i) {
    if (l->last)
        l->last->next = i;
    else
        l->first = i;
    l->last = i;
}

static void append_to(cu_stream s, item *i) {
    cu_context c = s->context;
    if (current != c)
        emu_keep_fault(c->device,
                       "work is given by a thread that has not made the GPU's context its own");
    append(s->captured ? s->captured : &s->work, i);
    if (s->captured) return;
    s->given++;
    if (!c->first_used) c->first_used = s;
    c->several |= c->first_used != s;
    emu_clock_join(&s->clock, &c->host);
    s->clock.seen[s->slot]++;
    i->work = (emu_work){s->slot, s->clock};
}

/* ---- streams and events, as they are called ---- */

static void give(cu_stream s, item *i) {
    pthread_mutex_lock(&s->context->lock);
    append_to(s, i);
    pthread_mutex_unlock(&s->context->lock);
}

static cu_result result_of(cu_context c) {
    return emu_fault(c->device) ? CU_LAUNCH_FAILED : 0;
}

static cu_result emu_stream_create(cu_stream *out, unsigned flags) {
    (void)flags;
    cu_stream s = *out = xcalloc(1, sizeof *s);
    s->context = current;
    pthread_mutex_lock(&current->lock);
    while (s->slot < EMU_MOST_STREAMS && current->slot_taken[s->slot]) s->slot++;
    CHECK(s->slot < EMU_MOST_STREAMS, "the emulated device has no more than %d streams",
          EMU_MOST_STREAMS);
    current->slot_taken[s->slot] = true;
    s->clock = current->host;
    s->next = current->streams;
    current->streams = s;
    pthread_mutex_unlock(&current->lock);
    return 0;
}

static cu_result emu_stream_sync(cu_stream s) {
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    pthread_mutex_lock(&s->context->lock);
    run_until(s, s->given);
    emu_clock_join(&s->context->host, &s->clock);
    pthread_mutex_unlock(&s->context->lock);
    return result_of(s->context);
}

static cu_result emu_stream_destroy(cu_stream s) {
    emu_stream_sync(s);
    cu_context c = s->context;
    pthread_mutex_lock(&c->lock);
    cu_stream *at = &c->streams;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->next = c->destroyed;
    c->destroyed = s;
    c->slot_taken[s->slot] = false;
    if (c->first_used == s) c->several = true;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

static cu_result emu_event_create(cu_event *e, unsigned flags) {
    (void)flags;
    *e = xcalloc(1, sizeof **e);
    (*e)->context = current;
    return 0;
}

static cu_result emu_event_destroy(cu_event e) {
    free(e);
    return 0;
}

static cu_result emu_event_record(cu_event e, cu_stream s) {
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    item *i = new_item(NULL, NULL, 0, NULL, 0);
    pthread_mutex_lock(&e->context->lock);
    append_to(s, i);
    e->stream = s, e->number = s->given, e->clock_us = e->context->clock_us;
    e->clock = s->clock;
    pthread_mutex_unlock(&e->context->lock);
    return 0;
}

static cu_result emu_event_sync(cu_event e) {
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    pthread_mutex_lock(&e->context->lock);
    if (e->stream) run_until(e->stream, e->number);
    emu_clock_join(&e->context->host, &e->clock);
    pthread_mutex_unlock(&e->context->lock);
    return result_of(e->context);
}

/* Runs what can run, as a real device does in the meantime. */
static cu_result emu_event_query(cu_event e) {
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    pthread_mutex_lock(&e->context->lock);
    bool there = !e->stream || run_what_is_ready(e->stream, e->number);
    if (there) emu_clock_join(&e->context->host, &e->clock);
    pthread_mutex_unlock(&e->context->lock);
    return there ? result_of(e->context) : CU_NOT_READY;
}

/* The emulated device has no time of its own, but for a fault. */
static cu_result emu_event_elapsed(float *ms, cu_event from, cu_event to) {
    to->context->was_timed = true;
    *ms = getenv("ATHANOR_CUDA_FAULT") ? (float)(to->clock_us - from->clock_us) * 1e-3f : 0;
    return 0;
}

static void pass_time(cu_context c) {
    bool slow = c->fault == FAULT_SLOW || (c->fault == FAULT_SLOWS && c->was_timed);
    c->clock_us += slow ? WORK_US * 6 / 5 : WORK_US;
}

static cu_result emu_stream_wait(cu_stream s, cu_event e, unsigned flags) {
    (void)flags;
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    item *i = new_item(NULL, NULL, 0, NULL, 0);
    pthread_mutex_lock(&e->context->lock);
    i->after = e->stream;
    i->after_number = e->number;
    append_to(s, i);
    emu_clock_join(&s->clock, &e->clock);
    pthread_mutex_unlock(&e->context->lock);
    return 0;
}

/* ---- graphs: lists of items, which are copied into the stream at each launch ---- */

static void free_items(item_list *l) {
    for (item *i = l->first, *next; i; i = next) {
        next = i->next;
        free(i);
    }
    *l = (item_list){NULL, NULL};
}

static cu_result emu_capture_begin(cu_stream s, int mode) {
    (void)mode;
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    pthread_mutex_lock(&s->context->lock);
    s->captured = xcalloc(1, sizeof *s->captured);
    pthread_mutex_unlock(&s->context->lock);
    capturing = s, capture_is_broken = false;
    return 0;
}

static cu_result emu_capture_end(cu_stream s, cu_graph *g) {
    if (capturing != s) return CU_NOT_IN_CAPTURE;
    capturing = NULL;
    *g = xcalloc(1, sizeof **g);
    pthread_mutex_lock(&s->context->lock);
    (*g)->work = *s->captured;
    free(s->captured);
    s->captured = NULL;
    pthread_mutex_unlock(&s->context->lock);
    return capture_is_broken ? CU_NOT_IN_CAPTURE : 0;
}

static void copy_items(item_list *to, const item_list *from) {
    for (const item *i = from->first; i; i = i->next)
        append(to, new_item(i->run, i->args, i->bytes, NULL, 0));
}

static cu_result emu_graph_make(cu_graph_exec *x, cu_graph g, unsigned long long flags) {
    (void)flags;
    *x = xcalloc(1, sizeof **x);
    copy_items(&(*x)->work, &g->work);
    return 0;
}

static cu_result emu_graph_launch(cu_graph_exec x, cu_stream s) {
    for (const item *i = x->work.first; i; i = i->next)
        give(s, new_item(i->run, i->args, i->bytes, NULL, 0));
    return 0;
}

static cu_result emu_graph_destroy(cu_graph g) {
    free_items(&g->work);
    free(g);
    return 0;
}

static cu_result emu_graph_exec_destroy(cu_graph_exec x) {
    free_items(&x->work);
    free(x);
    return 0;
}

/* ---- work ---- */

typedef struct move {
    void *to;
    const void *from;
    size_t bytes;
} move;

static void run_move(cu_context c, const void *args) {
    const move *m = args;
    const char *to = m->to, *from = m->from;
    if (to < from + m->bytes && from < to + m->bytes)
        emu_keep_fault(c->device, "a copy goes to memory of which it has parts");
    emu_move_memory(c->device, "a copy", m->from, (int64_t)m->bytes, false);
    emu_move_memory(c->device, "a copy", m->to, (int64_t)m->bytes, true);
    memmove(m->to, m->from, m->bytes); /* after a fault, too */
}

static void *host_of(cu_ptr p) {
    return (void *)(uintptr_t)p;
}

static bool is_pinned(cu_context c, const void *host) {
    pthread_mutex_lock(&c->lock);
    const reservation *r = c->pinned;
    while (r && ((const char *)host < r->at || (const char *)host >= r->at + r->bytes)) r = r->next;
    pthread_mutex_unlock(&c->lock);
    return r != NULL;
}

static cu_result emu_copy(cu_ptr to, cu_ptr from, size_t bytes, cu_stream s) {
    move m = {host_of(to), host_of(from), bytes};
    give(s, new_item(run_move, &m, sizeof m, NULL, 0));
    return 0;
}

static cu_result emu_copy_in(cu_ptr to, const void *from, size_t bytes, cu_stream s) {
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    if (!is_pinned(s->context, from))
        emu_keep_fault(s->context->device,
                       "a copy to the GPU takes bytes of the host that are not pinned");
    emu_copy(to, (cu_ptr)(uintptr_t)from, bytes, s);
    return result_of(s->context);
}

static cu_result emu_copy_out(void *to, cu_ptr from, size_t bytes, cu_stream s) {
    if (forbidden_now()) return CU_NOT_IN_CAPTURE;
    return emu_copy((cu_ptr)(uintptr_t)to, from, bytes, s);
}

typedef struct filling {
    void *at;
    int byte;
    size_t bytes;
} filling;

static void run_fill(cu_context c, const void *args) {
    const filling *f = args;
    emu_move_memory(c->device, "a fill", f->at, (int64_t)f->bytes, true);
    memset(f->at, f->byte, f->bytes);
    if (c->fault == FAULT_FLIP && f->byte == FLIPS_IN && !c->flipped) {
        ((uint8_t *)f->at)[f->bytes / 2] ^= 4;
        c->flipped = true;
    }
}

static cu_result emu_fill(cu_ptr to, unsigned char byte, size_t bytes, cu_stream s) {
    filling f = {host_of(to), byte, bytes};
    give(s, new_item(run_fill, &f, sizeof f, NULL, 0));
    return 0;
}

typedef struct grid_run {
    const gpu_kernel *kernel;
    gpu_grid grid;
} grid_run;

static void run_grid(cu_context c, const void *args) {
    const grid_run *r = args;
    emu_launch(c->device, r->kernel, &r->grid, r + 1);
}

static cu_result emu_launch_kernel(cu_function f, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                   cu_stream s, void **params, void **extra) {
    (void)extra;
    grid_run r = {(const gpu_kernel *)(const void *)f, {gx, gy, gz, bx * by * bz, shared}};
    pass_time(s->context);
    give(s, new_item(run_grid, &r, sizeof r, params[0], r.kernel->args_bytes));
    return 0;
}

typedef struct scope {
    cu_stream s;
    const char *what;
    int n;
} scope;

static void run_scope(cu_context c, const void *args) {
    const scope *s = args;
    c->in_scope = s->s;
    emu_scope_begin(c->device, s->what, (const gpu_range *)(const void *)(s + 1), s->n);
}

void emu_stream_scope(cu_stream s, const char *what, const gpu_range *ranges, int n) {
    scope head = {s, what, n};
    give(s, new_item(run_scope, &head, sizeof head, ranges, sizeof *ranges * (size_t)n));
}

static void run_scope_end(cu_context c, const void *args) {
    (void)args;
    c->in_scope = NULL;
    emu_scope_end(c->device);
}

void emu_stream_scope_end(cu_stream s) {
    give(s, new_item(run_scope_end, NULL, 0, NULL, 0));
}

static void run_host_call(cu_context c, const void *args) {
    const host_call *h = args;
    if (c->fault == FAULT_LOST && c->calls++ == LOST_AT)
        emu_keep_fault(c->device, "it has fallen off the bus");
    if (!emu_fault(c->device)) h->fn(h + 1);
    if (c->fault == FAULT_WRONG && h->out && c->calls++ == WRONG_AT) *h->out ^= 1;
}

/* Of a device that has a fault, too: fn frees what it was given. */
static void run_polled(cu_context c, const void *args) {
    const host_call *h = args;
    if (c->fault == FAULT_LOST && c->calls++ == LOST_AT)
        emu_keep_fault(c->device, "it has fallen off the bus");
    h->fn(h + 1);
}

void emu_stream_call(cu_stream s, void (*fn)(const void *), void *out, const void *args,
                     size_t bytes) {
    host_call h = {fn, out};
    pass_time(s->context);
    give(s, new_item(run_host_call, &h, sizeof h, args, bytes));
}

void emu_stream_poll(cu_stream s, bool (*poll)(const void *args), void (*fn)(const void *args),
                     const void *args, size_t bytes) {
    host_call h = {fn, NULL};
    item *i = new_item(run_polled, &h, sizeof h, args, bytes);
    i->poll = poll;
    give(s, i);
}

bool emu_stream_use(cu_stream s, const char *who, const void *at, size_t bytes, bool write) {
    const reservation *r = s->context->reserved;
    while (r && ((const char *)at < r->at || (const char *)at + bytes > r->at + r->bytes))
        r = r->next;
    if (r) emu_move_memory(s->context->device, who, at, (int64_t)bytes, write);
    return r != NULL;
}

emu_device *emu_stream_device(cu_stream s) {
    return s->context->device;
}

/* ---- the device ---- */

static uint64_t seed_of_environment(void) {
    const char *text = getenv("ATHANOR_CUDA_SEED");
    return text ? strtoull(text, NULL, 10) : 0;
}

static fault fault_of_environment(int device) {
    static const char *const words[] = {"", "slow", "slows", "flip", "wrong", "full", "lost"};
    const char *text = getenv("ATHANOR_CUDA_FAULT"), *colon = text ? strchr(text, ':') : NULL;
    if (!colon || atoi(colon + 1) != device) return FAULT_NONE;
    for (int i = FAULT_SLOW; i <= FAULT_LOST; i++)
        if (strlen(words[i]) == (size_t)(colon - text) &&
            memcmp(words[i], text, strlen(words[i])) == 0)
            return (fault)i;
    return FAULT_NONE;
}

static int host_threads(void) {
    const char *text = getenv("OMP_NUM_THREADS");
    int limit = text ? atoi(text) : 0;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return limit > 0 && limit < cores ? limit : cores > 0 ? cores : 1;
}

static cu_result emu_context_retain(cu_context *out, int device) {
    cu_context c = *out = xcalloc(1, sizeof *c);
    c->fault = fault_of_environment(device);
    c->random = seed_of_environment();
    c->device = emu_device_new(c->random, host_threads());
    pthread_mutex_init(&c->lock, NULL);
    return 0;
}

static cu_result emu_context_set(cu_context c) {
    current = c;
    return 0;
}

void emu_context_free(cu_context c) {
    CHECK(!c->streams && !c->reserved, "a device is closed before its streams and memory");
    for (cu_stream s = c->destroyed, next; s; s = next) {
        next = s->next;
        free(s);
    }
    emu_device_free(c->device);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const char *emu_context_fault(cu_context c) {
    return emu_fault(c->device);
}

void emu_context_sync(void) {
    pthread_mutex_lock(&current->lock);
    run_all(current);
    pthread_mutex_unlock(&current->lock);
}

void emu_context_open(cu_context c) {
    pthread_mutex_lock(&c->lock);
    open_memory(c);
    pthread_mutex_unlock(&c->lock);
}

void emu_context_close(cu_context c) {
    pthread_mutex_lock(&c->lock);
    close_memory(c);
    pthread_mutex_unlock(&c->lock);
}

static cu_result emu_init(unsigned flags) {
    (void)flags;
    return 0;
}
static cu_result emu_driver_version(int *version) {
    *version = 13000;
    return 0;
}
static cu_result emu_device_count(int *count) {
    const char *text = getenv("ATHANOR_CUDA_COUNT");
    *count = text && atoi(text) > 0 ? atoi(text) : 1;
    return 0;
}
static cu_result emu_device_get(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}
static cu_result emu_device_name(char *name, int bytes, int device) {
    (void)device;
    snprintf(name, (size_t)bytes, "emulated GPU");
    return 0;
}
static cu_result emu_device_attribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == CU_COMPUTE_MAJOR       ? 9
             : attribute == CU_COMPUTE_MINOR     ? 0
             : attribute == CU_MULTIPROCESSORS   ? 4
             : attribute == CU_MOST_SHARED_BYTES ? 227 << 10
                                                 : 0;
    return 0;
}
static cu_result emu_device_memory(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return 0;
}
/* The same in all processes of a machine. */
static cu_result emu_device_uuid(char *uuid, int device) {
    memset(uuid, 0, CU_UUID_BYTES);
    memcpy(uuid, &device, sizeof device);
    return 0;
}
/* It is in no slot, and has memory that no other reaches. */
static cu_result emu_device_bus_id(char *id, int bytes, int device) {
    (void)id, (void)bytes, (void)device;
    return CU_NO_DEVICE;
}
static cu_result emu_can_access_peer(int *can, int device, int peer) {
    (void)device, (void)peer;
    *can = 0;
    return 0;
}
static cu_result emu_peer_attribute(int *value, int attribute, int from, int to) {
    (void)attribute, (void)from, (void)to;
    *value = 0;
    return 0;
}
static cu_result emu_mem_info(size_t *available, size_t *total) {
    emu_device_memory(total, 0);
    *available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (current->fault == FAULT_FULL) *available = 0;
    return 0;
}
static cu_result emu_error_text(cu_result r, const char **text) {
    *text = r == CU_OUT_OF_MEMORY ? "out of memory" : "a kernel failed";
    return 0;
}

void emu_driver_fill(cu_driver *d) {
    *d = (cu_driver){
        .init = emu_init,
        .driver_version = emu_driver_version,
        .device_count = emu_device_count,
        .device_get = emu_device_get,
        .device_name = emu_device_name,
        .device_attribute = emu_device_attribute,
        .device_memory = emu_device_memory,
        .device_uuid = emu_device_uuid,
        .device_bus_id = emu_device_bus_id,
        .can_access_peer = emu_can_access_peer,
        .peer_attribute = emu_peer_attribute,
        .context_retain = emu_context_retain,
        .context_set = emu_context_set,
        .mem_info = emu_mem_info,
        .mem_alloc = emu_mem_alloc,
        .mem_free = emu_mem_free,
        .mem_host_alloc = emu_mem_host_alloc,
        .mem_host_free = emu_mem_host_free,
        .copy_in = emu_copy_in,
        .copy_out = emu_copy_out,
        .copy = emu_copy,
        .fill = emu_fill,
        .capture_begin = emu_capture_begin,
        .capture_end = emu_capture_end,
        .graph_make = emu_graph_make,
        .graph_launch = emu_graph_launch,
        .graph_destroy = emu_graph_destroy,
        .graph_exec_destroy = emu_graph_exec_destroy,
        .stream_create = emu_stream_create,
        .stream_destroy = emu_stream_destroy,
        .stream_sync = emu_stream_sync,
        .stream_wait = emu_stream_wait,
        .event_create = emu_event_create,
        .event_destroy = emu_event_destroy,
        .event_record = emu_event_record,
        .event_sync = emu_event_sync,
        .event_query = emu_event_query,
        .event_elapsed = emu_event_elapsed,
        .launch = emu_launch_kernel,
        .error_text = emu_error_text,
        .emulated = true,
    };
}
