/* Worlds, groups, and what surrounds a collective: notes, delay, counts. How worlds of several
 * processes are found is in environment.c. */
#include "comm/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "comm/nccl.h"
#include "comm/wire/hub.h"

/* ---- worlds ---- */

static const double DEFAULT_TIMEOUT_S = 600;

comm_world *comm_world_new(wire *w) {
    comm_world *world = xcalloc(1, sizeof *world);
    world->rank = w ? w->rank : 0;
    world->size = w ? w->size : 1;
    world->wire = w;
    if (w) board_enter(w->board, w->rank, w->size);
    comm_set_timeout(world, DEFAULT_TIMEOUT_S);
    return world;
}

comm_world *comm_open_self(void) {
    return comm_world_new(NULL);
}

void comm_open_threads(int n, comm_world *out[]) {
    CHECK(n >= 1, "%d ranks", n);
    size_t bytes = (hub_over(NULL, n, false).bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    CHECK(memory, "no memory for %d ranks", n);
    hub h = hub_over(memset(memory, 0, bytes), n, false);
    for (int r = 0; r < n; r++) out[r] = comm_world_new(hub_wire_new(&h, r, "threads"));
}

void comm_close(comm_world *w) {
    if (!w) return;
    queue_free(w->queue);
    if (w->wire) {
        board_leave(w->wire->board, w->rank);
        lifeline_free(w->lifeline);
        w->wire->class->close(w->wire);
    }
    for (comm *c = w->comms, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(w);
}

int comm_world_rank(const comm_world *w) {
    return w->rank;
}

int comm_world_size(const comm_world *w) {
    return w->size;
}

const char *comm_world_kind(const comm_world *w) {
    return w->wire ? w->wire->kind : "self";
}

/* ---- groups ---- */

comm *comm_group(comm_world *w, const int *ranks, int n) {
    comm *c = xmalloc(sizeof *c + (size_t)n * sizeof *ranks);
    *c = (comm){.world = w, .next = w->comms, .n = n, .rank = -1, .tag = 2166136261u};
    for (int i = 0; i < n; i++) {
        CHECK(ranks[i] >= 0 && ranks[i] < w->size && (i == 0 || ranks[i] > ranks[i - 1]),
              "rank %d at %d of a group", ranks[i], i);
        c->ranks[i] = ranks[i];
        c->tag = (c->tag ^ (uint32_t)ranks[i]) * 16777619u;
        if (ranks[i] == w->rank) c->rank = i;
    }
    CHECK(c->rank >= 0, "rank %d is not in its own group", w->rank);
    w->comms = c;
    return c;
}

int comm_rank(const comm *c) {
    return c->rank;
}

int comm_size(const comm *c) {
    return c->n;
}

/* A name is hashed, since ranks of other processes cannot read it. */
int comm_rank_here(comm_world *w) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    if (w->size == 1) return 0;
    int *ranks = xcalloc((size_t)w->size, sizeof *ranks), before = 0;
    int64_t *host = xcalloc((size_t)w->size, sizeof *host);
    for (int r = 0; r < w->size; r++) ranks[r] = r;
    host[w->rank] = (int64_t)hash_bytes(name, strlen(name));
    comm_sum_i64(comm_group(w, ranks, w->size), host, w->size);
    for (int r = 0; r < w->rank; r++) before += host[r] == host[w->rank];
    free(ranks);
    free(host);
    return before;
}

/* ---- running ---- */

static void sleep_for(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0) continue;
}

/* The delay follows the collective, which ends when the slowest rank has come: so all ranks are
 * delayed at once. */
static void delay(const comm_world *w, int64_t sent_bytes) {
    double s = w->link.latency_s;
    if (w->link.bytes_per_s > 0) s += (double)sent_bytes / w->link.bytes_per_s;
    if (s > 0) sleep_for(s);
}

void comm_count(comm_world *w, const comm_call *call, int64_t sent_bytes) {
    atomic_fetch_add_explicit(&w->calls[call->kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->sent_bytes[call->kind], sent_bytes, memory_order_relaxed);
}

static void run_and_note(comm *c, const comm_call *call, dev_event after, int stream) {
    comm_world *w = c->world;
    bool side = stream == STREAM_SIDE, alone = c->n == 1;
    comm_event ev = {.call = call, .begin_ns = w->observer ? clock_now_ns() : 0, .side = side};
    uint32_t place = 0;
    if (!alone)
        place = board_begin(w->wire->board, w->rank, side, call, collective_bytes(c, call), c->n);
    ev.sent_bytes = staged_is_needed(call) ? staged_run(c, call, after, stream)
                                           : collective_run(c, call, stream);
    if (!alone) {
        delay(w, ev.sent_bytes);
        if (!board_failed(w->wire->board)) board_end(w->wire->board, w->rank, place);
        comm_count(w, call, ev.sent_bytes);
    }
    if (!w->observer) return;
    ev.end_ns = clock_now_ns();
    w->observer(w->observer_ctx, &ev);
}

void comm_run_on(comm *c, const comm_call *call, dev_event after, int stream) {
    bool staged = staged_is_needed(call);
    if (call->ready) {
        call->ready(call->ready_ctx);
        if (staged) after = dev_record(call->dev);
    }
    if (!staged) dev_enter_after(call->dev, 0); /* await_device has waited */
    run_and_note(c, call, after, stream);
    if (!staged) dev_leave(call->dev);
}

/* On the caller's thread: what is given while the call waits in the queue is not the call's. Memory
 * that is entered is waited for here. */
static dev_event await_device(const comm_call *call) {
    if (!call->dev) return 0;
    dev_event given = dev_record(call->dev);
    if (!staged_is_needed(call)) dev_wait(call->dev, given);
    return given;
}

/* A world of one rank does not use the device; what is copied there is copied in its own order. */
static bool run_on_device_alone(const comm *c, const comm_call *call) {
    if (c->world->size > 1 || !staged_is_needed(call)) return false;
    CHECK(!call->add, "one rank adds on its GPU by itself");
    if (call->ready) call->ready(call->ready_ctx);
    if (call->in && call->in != call->out)
        dev_copy(call->dev, call->out, call->in, (size_t)call->n * dtype_bytes(call->dt));
    return true;
}

static queue *queue_of(comm_world *w) {
    if (w->queue) return w->queue;
    bool one_machine = w->wire && !w->wire->class->one_thread;
    return w->queue = one_machine ? queue_new(w->wire, w->rank, w->size) : queue_new(w->wire, 0, 1);
}

void comm_run(comm *c, const comm_call *call) {
    comm_world *w = c->world;
    if (run_on_device_alone(c, call)) return;
    nccl_world *nccl = nccl_of(c, call);
    if (nccl) {
        nccl_run(nccl, c, call);
        return;
    }
    dev_event after = await_device(call);
    if (w->wire && w->wire->class->one_thread && c->n > 1)
        queue_wait(queue_of(w), queue_add(queue_of(w), c, call, after));
    else
        comm_run_on(c, call, after, STREAM_CALLER);
}

/* A group of one rank queues, too: the call before may make what this one copies. */
comm_ticket comm_start(comm *c, const comm_call *call) {
    if (run_on_device_alone(c, call)) return 0;
    nccl_world *nccl = nccl_of(c, call);
    if (nccl) return nccl_start(nccl, c, call);
    dev_event after = await_device(call);
    if (c->world->wire) return queue_add(queue_of(c->world), c, call, after);
    comm_run_on(c, call, after, STREAM_CALLER);
    return 0;
}

void comm_wait(comm_world *w, comm_ticket t) {
    if (t & NCCL_TICKET)
        nccl_wait(comm_device_of(w, NULL)->nccl, t);
    else if (w->queue)
        queue_wait(w->queue, t);
}

void comm_sum_i64(comm *c, int64_t *x, int64_t n) {
    comm_run(c, &(comm_call){.kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = n, .dt = DT_I64});
}

void comm_barrier(comm *c) {
    comm_run(c, &(comm_call){.kind = COMM_BARRIER, .dt = DT_U8});
}

void comm_broadcast(comm *c, void *data, int64_t bytes, int root) {
    comm_run(c, &(comm_call){
                    .kind = COMM_BROADCAST, .out = data, .n = bytes, .dt = DT_U8, .root = root});
}

/* ---- failure ---- */

status comm_check(comm_world *w, err *e) {
    return w->wire ? board_check(w->wire->board, e) : ST_OK;
}

void comm_fail(comm_world *w, const err *why) {
    if (!w->wire) return;
    err named = *why;
    err_context(&named, "rank %d failed", w->rank);
    voice_mark(w->wire->board, w->rank, why);
    voice_await_others(w->wire->board);
    board_fail(w->wire->board, w->rank, &named);
}

void comm_set_timeout(comm_world *w, double seconds) {
    if (w->wire) w->wire->timeout_s = seconds;
}

void comm_at(comm_world *w, const char *where, int64_t step) {
    if (w->wire) board_at(w->wire->board, w->rank, where, step);
}

/* ---- experiments and traces ---- */

void comm_set_link(comm_world *w, comm_link link) {
    w->link = link;
}

/* Calls of NCCL go on when comm_wait has returned; who watches them counts and observes them. */
static void await_noted(const comm_world *w) {
    for (const comm_device *k = w->devices; k; k = k->next)
        if (k->nccl) nccl_await_all(k->nccl);
}

void comm_observe(comm_world *w, comm_observer f, void *ctx) {
    await_noted(w);
    w->observer = f;
    w->observer_ctx = ctx;
}

comm_counts comm_counted(const comm_world *w) {
    comm_counts n = {0};
    await_noted(w);
    for (int k = 0; k < COMM_KINDS; k++) {
        n.calls[k] = atomic_load_explicit(&w->calls[k], memory_order_relaxed);
        n.sent_bytes[k] = atomic_load_explicit(&w->sent_bytes[k], memory_order_relaxed);
    }
    return n;
}
