#include "comm/nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "dev/cuda.h"
#include "gpu/nccl.h"

enum { UNDER_WAY = 64, REASON = 256, TOLD = 64 };
static const char CHOICE[] = "ATHANOR_NCCL";

/* A set of ranks, which several groups may have. */
typedef struct link {
    struct link *next;
    int n, *ranks;
    nccl_comm at[STREAMS]; /* NULL: not made yet, or aborted */
} link;

/* A call that is given, or was given and is not known to have ended. Then its slot is its number modulo UNDER_WAY. */
typedef struct job {
    const comm *c;
    comm_call call;
    char what[TOLD];       /* of the call, whose own may be gone before the GPU has come to it */
    nccl_comm at;          /* NULL: there are no peers */
    cu_event begun, ended; /* its stream has come there */
    int stream;
    uint32_t place;   /* on the board, if it is noted there */
    int64_t begin_ns; /* when `begun` was seen; 0: not yet */
    clock_wait wait;  /* since then */
    int64_t wait_ns;  /* what board_waits has returned */
    int64_t wrong_ns; /* when NCCL first told of an error that may be a peer's */
    int64_t left_ns;  /* of board_is_gone */
    bool noted, done;
} job;

struct nccl_world {
    comm_world *world;
    dev *dev;
    const cu_driver *gpu;
    nccl_library api;
    char name[32];
    cu_stream side;
    cu_event given;
    link *links; /* the caller's thread adds to them, with the lock held */
    pthread_t watcher;
    /* Guards what follows, and the communicators; held while NCCL is called, but not while it works. */
    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    job job[UNDER_WAY];
    uint64_t added, finished; /* numbers of jobs; all up to `finished` are done */
    bool giving, stop, aborted;
};

static void nap(void) {
    const struct timespec moment = {.tv_nsec = 100000};
    nanosleep(&moment, NULL);
}

static board *board_of(const nccl_world *n) {
    return n->world->wire->board;
}

/* ---- errors ---- */

static bool gives_up(const nccl_world *n) {
    return n->aborted || board_failed(board_of(n));
}

static void fail(nccl_world *n, const char *what, const char *text) {
    err why = {0};
    err_set(&why, ST_RANK, "rank %d failed: NCCL's %s: %s", n->world->rank, what, text);
    cuda_note_error(n->dev, what, text);
    (void)board_fail(board_of(n), n->world->rank, &why);
}

static bool good_gpu(nccl_world *n, cu_result r) {
    if (r == 0) return true;
    fail(n, "stream", cuda_error_text(n->dev, r));
    return false;
}

/* A peer that is gone is named by who watches over the ranks, a moment later: then nothing is wrong with this
 * GPU. To be called again until the world has failed. */
static void complain(nccl_world *n, job *j, nccl_result r) {
    static const double MOMENT_S = 4; /* longer than board_is_gone takes to be sure */
    bool by_other = r == NCCL_REMOTE_ERROR || r == NCCL_SYSTEM_ERROR;
    bool opens = j->call.kind == COMM_BARRIER; /* which does not go by NCCL otherwise */
    if (!j->wrong_ns) j->wrong_ns = clock_now_ns();
    if (!by_other || clock_since_s(j->wrong_ns) > MOMENT_S)
        fail(n, opens ? "communicators" : comm_kind_name(j->call.kind), n->api.error_text(r));
}

/* All in a group: to abort one gives back memory, which waits for the kernels of all others, and these wait for
 * peers until they are marked, too. With the lock held. */
static void abort_all(nccl_world *n) {
    if (n->aborted) return;
    n->aborted = true;
    n->api.group_start();
    for (link *l = n->links; l; l = l->next)
        for (int s = 0; s < STREAMS; s++)
            if (l->at[s]) {
                n->api.abort(l->at[s]);
                l->at[s] = NULL;
            }
    n->api.group_end();
}

/* ---- waiting for peers; with the lock held ---- */

/* This rank has come to the call. */
static void note(nccl_world *n, job *j) {
    comm_call call = j->call;
    if (j->c->n == 1 || j->noted) return;
    call.what = j->what;
    j->noted = true;
    j->place = board_begin(board_of(n), n->world->rank, j->stream == STREAM_SIDE, &call,
                           collective_bytes(j->c, &call), j->c->n);
}

static bool is_waiting(const nccl_world *n, int rank, bool side) {
    return atomic_load_explicit(&board_of(n)->seats[rank].waits_for[side], memory_order_relaxed) >
           0;
}

/* The peer that a call waits for: one who is not in it, as far as the board tells. */
static int awaited_peer(const nccl_world *n, const job *j) {
    const comm *c = j->c;
    for (int p = 0; p < c->n; p++)
        if (p != c->rank && !is_waiting(n, c->ranks[p], j->stream == STREAM_SIDE))
            return c->ranks[p];
    return c->ranks[(c->rank + 1) % c->n];
}

/* The host may wait at the same seat, and leaves it empty when that is over. */
static void look_at_wait(nccl_world *n, job *j, clock_wait *wait) {
    int peer = awaited_peer(n, j), rank = n->world->rank;
    bool side = j->stream == STREAM_SIDE;
    double waited = clock_waited_s(wait), most = n->world->wire->timeout_s;
    if (!is_waiting(n, rank, side)) j->wait_ns = board_waits(board_of(n), rank, side, peer);
    board_looks(board_of(n), rank, side);
    if (board_is_gone(board_of(n), peer, &j->left_ns))
        board_fail_left(board_of(n), rank, side, peer);
    else if (most > 0 && waited > most)
        board_stall(board_of(n), rank, side, peer, waited);
}

static void end_wait(nccl_world *n, const job *j) {
    board_waited(board_of(n), n->world->rank, j->stream == STREAM_SIDE, j->wait_ns);
}

static void note_end(nccl_world *n, const job *j) {
    if (j->noted && !board_failed(board_of(n))) board_end(board_of(n), n->world->rank, j->place);
}

/* Whether an earlier call of the stream is under way. */
static bool is_busy(const nccl_world *n, int stream) {
    for (uint64_t i = n->finished + 1; i <= n->added; i++) {
        const job *j = &n->job[i % UNDER_WAY];
        if (!j->done && j->stream == stream) return true;
    }
    return false;
}

static nccl_result ask(const nccl_world *n, nccl_comm c) {
    nccl_result r = 0, asked = n->api.async_error(c, &r);
    return asked ? asked : r;
}

/* Calls return before NCCL has given their work to the stream. That takes microseconds, but the first calls of a communicator
 * wait for its peers, of which the watcher knows nothing; while an earlier call of the stream is under way, this rank waits for
 * that one instead. The lock is free between two looks. */
static bool settle(nccl_world *n, job *j, nccl_result r) {
    enum { YIELDS = 300 };
    clock_wait wait = {0};
    for (int looks = 0; r != 0 && !gives_up(n); looks++) {
        if (r != NCCL_IN_PROGRESS)
            complain(n, j, r);
        else if (looks >= YIELDS && !is_busy(n, j->stream)) {
            note(n, j);
            if (!wait.begin_ns) wait = clock_begin_wait();
            look_at_wait(n, j, &wait);
        }
        pthread_mutex_unlock(&n->lock);
        if (looks < YIELDS)
            sched_yield();
        else
            nap();
        pthread_mutex_lock(&n->lock);
        if (r == NCCL_IN_PROGRESS && !gives_up(n)) r = ask(n, j->at);
    }
    if (wait.begin_ns) end_wait(n, j);
    return r == 0;
}

/* ---- communicators ---- */

static link *find_link(const nccl_world *n, const comm *c) {
    link *l = n->links;
    while (l && (l->n != c->n || memcmp(l->ranks, c->ranks, (size_t)c->n * sizeof *c->ranks) != 0))
        l = l->next;
    return l;
}

static nccl_result init(nccl_world *n, const comm *c, nccl_id id, nccl_comm *out) {
    nccl_config config = {.size = sizeof config,
                          .magic = NCCL_CONFIG_MAGIC,
                          .version = NCCL_CONFIG_VERSION,
                          .blocking = 0,
                          .cga_cluster_size = NCCL_CONFIG_UNDEFINED,
                          .least_ctas = NCCL_CONFIG_UNDEFINED,
                          .most_ctas = NCCL_CONFIG_UNDEFINED,
                          .split_share = NCCL_CONFIG_UNDEFINED};
    return n->api.init(out, c->n, id, c->rank, &config);
}

/* The id comes from the first rank, over the host's world. What is half made is aborted. */
static void open_one(nccl_world *n, comm *c, nccl_comm *out) {
    nccl_id id = {{0}};
    job j = {.c = c, .call = {.kind = COMM_BARRIER}, .what = "NCCL's communicators"};
    nccl_result r = c->rank == 0 ? n->api.get_id(&id) : 0;
    if (r != 0) fail(n, "unique id", n->api.error_text(r));
    comm_broadcast(c, &id, sizeof id, 0);
    pthread_mutex_lock(&n->lock);
    if (!gives_up(n)) {
        r = init(n, c, id, out);
        j.at = *out;
        if (settle(n, &j, r))
            note_end(n, &j);
        else
            abort_all(n);
    }
    pthread_mutex_unlock(&n->lock);
}

static link *open_link(nccl_world *n, comm *c) {
    link *l = xcalloc(1, sizeof *l);
    *l = (link){.n = c->n, .ranks = c->ranks};
    cuda_stream(n->dev); /* NCCL asks for the context of the thread */
    pthread_mutex_lock(&n->lock);
    l->next = n->links, n->links = l;
    pthread_mutex_unlock(&n->lock);
    for (int s = 0; s < STREAMS && !board_failed(board_of(n)); s++) open_one(n, c, &l->at[s]);
    return l;
}

static const link *link_of(nccl_world *n, comm *c) {
    const link *l = find_link(n, c);
    return l ? l : open_link(n, c);
}

/* In the order in which they were made, which is the same for all ranks of each. Groups from before another device was opened are
 * another run's; if not, they are opened when they are used. */
static void open_links(nccl_world *n, comm *last) {
    if (!last || last == n->world->opened) return;
    open_links(n, last->next);
    if (last->n > 1) link_of(n, last);
}

/* ---- giving a call ---- */

typedef struct given {
    nccl_world *n;
    const comm *c;
    const comm_call *call;
    nccl_comm to;
    cu_stream s;
    int type;
    size_t bytes; /* of an element */
} given;

static void *part_at(const given *g, const void *data, int part) {
    return (char *)(uintptr_t)data + (size_t)part * (size_t)g->call->n * g->bytes;
}

static nccl_result exchange(const given *g) {
    const nccl_library *a = &g->n->api;
    const comm_call *k = g->call;
    nccl_result r = a->group_start();
    for (int p = 0; p < g->c->n && r == 0; p++) {
        r = a->send(part_at(g, k->in, p), (size_t)k->n, g->type, p, g->to, g->s);
        if (r == 0) r = a->recv(part_at(g, k->out, p), (size_t)k->n, g->type, p, g->to, g->s);
    }
    nccl_result end = a->group_end();
    return r ? r : end;
}

static nccl_result shift(const given *g) {
    const nccl_library *a = &g->n->api;
    const comm_call *k = g->call;
    int n = g->c->n, next = (g->c->rank + 1) % n, last = (g->c->rank + n - 1) % n;
    nccl_result r = a->group_start();
    if (r == 0) r = a->send(k->in, (size_t)k->n, g->type, next, g->to, g->s);
    if (r == 0) r = a->recv(k->out, (size_t)k->n, g->type, last, g->to, g->s);
    nccl_result end = a->group_end();
    return r ? r : end;
}

static nccl_result send(const given *g) {
    const comm_call *k = g->call;
    if (g->c->rank == k->root)
        return g->n->api.send(k->out, (size_t)k->n, g->type, 1 - k->root, g->to, g->s);
    return g->n->api.recv(k->out, (size_t)k->n, g->type, k->root, g->to, g->s);
}

static nccl_result issue(const given *g) {
    const nccl_library *a = &g->n->api;
    const comm_call *k = g->call;
    int op = k->sum == COMM_MAX ? NCCL_MAX : NCCL_SUM;
    size_t n = (size_t)k->n;
    switch (k->kind) {
        case COMM_ALL_REDUCE: return a->all_reduce(k->in, k->out, n, g->type, op, g->to, g->s);
        case COMM_REDUCE_SCATTER:
            return a->reduce_scatter(k->in, k->out, n, g->type, op, g->to, g->s);
        case COMM_ALL_GATHER: return a->all_gather(k->in, k->out, n, g->type, g->to, g->s);
        case COMM_BROADCAST: return a->broadcast(k->out, k->out, n, g->type, k->root, g->to, g->s);
        case COMM_SEND: return send(g);
        case COMM_ALL_TO_ALL: return exchange(g);
        case COMM_SHIFT: return shift(g);
        case COMM_BARRIER:
        case COMM_KINDS: break;
    }
    return 0;
}

/* The place of the next job, when what had it has ended. With the lock held. */
static job *next_job(nccl_world *n) {
    while (n->added - n->finished == UNDER_WAY) pthread_cond_wait(&n->progress, &n->lock);
    job *j = &n->job[(n->added + 1) % UNDER_WAY];
    *j = (job){.begun = j->begun, .ended = j->ended};
    return j;
}

/* After what the device was given, where the stream is another than that of its kernels. */
static bool begin(nccl_world *n, const job *j, cu_stream s, cu_stream kernels) {
    const cu_driver *gpu = n->gpu;
    if (gives_up(n)) return false;
    if (s != kernels && !(good_gpu(n, gpu->event_record(n->given, kernels)) &&
                          good_gpu(n, gpu->stream_wait(s, n->given, 0))))
        return false;
    return good_gpu(n, gpu->event_record(j->begun, s));
}

/* On one rank its own part is the result. */
static bool issue_alone(const given *g) {
    const comm_call *k = g->call;
    if (k->in == k->out || !k->in || k->n == 0) return true;
    return good_gpu(g->n, g->n->gpu->copy((cu_ptr)(uintptr_t)k->out, (cu_ptr)(uintptr_t)k->in,
                                          (size_t)k->n * g->bytes, g->s));
}

/* What is given up is aborted here: the watcher may have nothing to look at. */
static comm_ticket give(nccl_world *n, comm *c, const comm_call *call, int stream) {
    cu_stream kernels = cuda_stream(n->dev), s = stream == STREAM_SIDE ? n->side : kernels;
    CHECK(!call->narrow && !call->add, "NCCL makes plain sums");
    if (call->ready) call->ready(call->ready_ctx);
    const link *l = c->n > 1 ? link_of(n, c) : NULL;
    pthread_mutex_lock(&n->lock);
    CHECK(!n->giving, "two threads give calls to NCCL");
    n->giving = true;
    job *j = next_job(n);
    j->c = c, j->call = *call, j->stream = stream, j->at = l ? l->at[stream] : NULL;
    snprintf(j->what, sizeof j->what, "%s", call->what ? call->what : "");
    given g = {n, c, call, j->at, s, nccl_type_of(call->dt), dtype_bytes(call->dt)};
    bool good = begin(n, j, s, kernels) && (l ? settle(n, j, issue(&g)) : issue_alone(&g)) &&
                good_gpu(n, n->gpu->event_record(j->ended, s));
    if (good) {
        n->added++;
        pthread_cond_signal(&n->work);
    } else
        abort_all(n);
    comm_ticket t = n->added | NCCL_TICKET;
    n->giving = false;
    pthread_mutex_unlock(&n->lock);
    return t;
}

nccl_world *nccl_of(const comm *c, const comm_call *call) {
    if (!call->dev || call->kind == COMM_BARRIER) return NULL;
    const comm_device *k = comm_device_of(c->world, call->dev);
    return k ? k->nccl : NULL;
}

void nccl_run(nccl_world *n, comm *c, const comm_call *call) {
    (void)give(n, c, call, STREAM_CALLER);
}

comm_ticket nccl_start(nccl_world *n, comm *c, const comm_call *call) {
    return give(n, c, call, STREAM_SIDE);
}

/* A job that has ended has given its events to another. */
void nccl_wait(nccl_world *n, comm_ticket t) {
    uint64_t number = t & ~NCCL_TICKET;
    cu_stream kernels = cuda_stream(n->dev);
    pthread_mutex_lock(&n->lock);
    if (number > n->finished && number <= n->added)
        (void)good_gpu(n, n->gpu->stream_wait(kernels, n->job[number % UNDER_WAY].ended, 0));
    pthread_mutex_unlock(&n->lock);
}

void nccl_await_all(nccl_world *n) {
    pthread_mutex_lock(&n->lock);
    while (n->finished < n->added) pthread_cond_wait(&n->progress, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

/* ---- watching; with the lock held ---- */

static bool has_passed(nccl_world *n, cu_event e) {
    cu_result r = n->gpu->event_query(e);
    return r != CU_NOT_READY && (good_gpu(n, r) || true);
}

static void finish(nccl_world *n, job *j) {
    comm_world *w = n->world;
    comm_event ev = {&j->call, j->begin_ns, clock_now_ns(), 0, j->stream == STREAM_SIDE};
    j->done = true;
    if (j->c->n > 1) {
        ev.sent_bytes = comm_call_sends(&j->call, j->c->rank, j->c->n);
        end_wait(n, j);
        note_end(n, j);
        comm_count(w, &j->call, ev.sent_bytes);
    }
    if (w->observer) w->observer(w->observer_ctx, &ev);
}

static void look_at_peers(nccl_world *n, job *j) {
    nccl_result r = gives_up(n) ? 0 : ask(n, j->at);
    if (r != 0 && r != NCCL_IN_PROGRESS) complain(n, j, r);
    look_at_wait(n, j, &j->wait);
}

static void look_at(nccl_world *n, job *j) {
    if (!j->begin_ns) {
        if (!has_passed(n, j->begun)) return;
        j->wait = clock_begin_wait();
        j->begin_ns = j->wait.begin_ns;
        note(n, j);
    }
    if (has_passed(n, j->ended))
        finish(n, j);
    else if (j->c->n > 1)
        look_at_peers(n, j);
}

static void look_at_all(nccl_world *n) {
    for (uint64_t i = n->finished + 1; i <= n->added; i++)
        if (!n->job[i % UNDER_WAY].done) look_at(n, &n->job[i % UNDER_WAY]);
    while (n->finished < n->added && n->job[(n->finished + 1) % UNDER_WAY].done) n->finished++;
    pthread_cond_broadcast(&n->progress);
    if (board_failed(board_of(n))) abort_all(n);
}

static void *watch(void *arg) {
    nccl_world *n = arg;
    cuda_stream(n->dev); /* the device's context becomes this thread's */
    pthread_mutex_lock(&n->lock);
    while (!n->stop || n->finished < n->added) {
        if (n->finished == n->added) {
            pthread_cond_wait(&n->work, &n->lock);
            continue;
        }
        look_at_all(n);
        pthread_mutex_unlock(&n->lock);
        nap();
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* ---- whether it can be ---- */

typedef enum choice { CHOICE_AUTO, CHOICE_ON, CHOICE_OFF } choice;

static status read_choice(choice *out, err *e) {
    static const char *const words[] = {"auto", "on", "off"};
    int which = CHOICE_AUTO;
    status st = env_word(CHOICE, words, ARRAY_LEN(words), &which, e);
    *out = (choice)which;
    return st;
}

status comm_check_environment(err *e) {
    choice unused;
    return read_choice(&unused, e);
}

/* What a rank says of itself. */
typedef struct rank_says {
    char gpu[CU_UUID_BYTES];
    int choice, has_library;
} rank_says;

static comm *everyone(comm_world *w) {
    int *ranks = xcalloc((size_t)w->size, sizeof *ranks);
    for (int r = 0; r < w->size; r++) ranks[r] = r;
    comm *all = comm_group(w, ranks, w->size);
    free(ranks);
    return all;
}

/* Why NCCL cannot be used, "" if it can, and whether a rank wants it all the same; the same on all ranks. */
typedef struct obstacle {
    char why[REASON];
    bool on, off; /* some rank has said so */
} obstacle;

static void find_obstacle(const rank_says *all, int ranks, obstacle *o) {
    *o = (obstacle){{""}, false, false};
    for (int r = 0; r < ranks; r++) {
        o->on |= all[r].choice == CHOICE_ON;
        if (all[r].choice == CHOICE_OFF && !o->off)
            snprintf(o->why, REASON, "rank %d has %s=off", r, CHOICE);
        o->off |= all[r].choice == CHOICE_OFF;
    }
    for (int r = 0; r < ranks && !o->why[0]; r++) {
        if (!all[r].has_library) snprintf(o->why, REASON, "rank %d finds no NCCL", r);
        for (int q = 0; q < r && !o->why[0]; q++)
            if (memcmp(all[q].gpu, all[r].gpu, sizeof all[r].gpu) == 0)
                snprintf(o->why, REASON, "ranks %d and %d share a GPU", q, r);
    }
}

static status ask_ranks(comm_world *w, dev *d, const rank_says *own, obstacle *o, err *e) {
    rank_says *all = xcalloc((size_t)w->size, sizeof *all);
    all[w->rank] = *own;
    cuda_uuid(d, all[w->rank].gpu);
    comm_run(everyone(w), &(comm_call){.kind = COMM_ALL_GATHER,
                                       .in = &all[w->rank],
                                       .out = all,
                                       .n = sizeof *all,
                                       .dt = DT_U8,
                                       .what = "GPUs of the ranks"});
    find_obstacle(all, w->size, o);
    free(all);
    return comm_check(w, e);
}

/* ---- opening and closing ---- */

static status start(nccl_world *n, err *e) {
    const cu_driver *gpu = n->gpu;
    bool there = gpu->stream_create(&n->side, CU_STREAM_NON_BLOCKING) == 0 &&
                 gpu->event_create(&n->given, CU_EVENT_NO_TIMING) == 0;
    for (int i = 0; i < UNDER_WAY && there; i++)
        there = gpu->event_create(&n->job[i].begun, CU_EVENT_NO_TIMING) == 0 &&
                gpu->event_create(&n->job[i].ended, CU_EVENT_NO_TIMING) == 0;
    if (!there) return err_set(e, ST_RANK, "the GPU gives no stream for NCCL");
    open_links(n, n->world->comms);
    n->world->opened = n->world->comms;
    TRY(comm_check(n->world, e));
    CHECK(thread_start(&n->watcher, watch, n), "no thread to watch NCCL");
    return ST_OK;
}

static nccl_world *new_world(comm_world *w, dev *d, const nccl_library *api) {
    nccl_world *n = xcalloc(1, sizeof *n);
    int version = 0;
    api->get_version(&version);
    n->world = w, n->dev = d, n->gpu = cuda_driver(d), n->api = *api;
    snprintf(n->name, sizeof n->name, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->work, NULL);
    pthread_cond_init(&n->progress, NULL);
    return n;
}

static status refuse(const obstacle *o, const err *lacks, err *e) {
    if (o->off) {
        err_at(e, ST_USAGE, CHOICE, "%s is on, but %s", CHOICE, o->why);
        return err_hint(e, "set it to the same on all ranks, or unset it");
    }
    bool has = !lacks->message[0];
    err_at(e, ST_USAGE, CHOICE, "%s is on, but %s%s%s", CHOICE, o->why, has ? "" : ": ",
           lacks->message);
    return err_hint(e, "%s",
                    has ? "give each rank a GPU of its own, or unset it: ranks then send "
                          "through the host's memory"
                        : lacks->hint);
}

status nccl_world_open(nccl_world **out, comm_world *w, dev *d, err *e) {
    choice want;
    nccl_library api = {0};
    err lacks = {0};
    obstacle o = {{""}, false, false};
    TRY(read_choice(&want, e));
    rank_says own = {.choice = (int)want};
    if (want != CHOICE_OFF) own.has_library = nccl_open(&api, cuda_is_emulated(d), &lacks) == ST_OK;
    status st = ask_ranks(w, d, &own, &o, e);
    if (st == ST_OK && !o.why[0]) {
        *out = new_world(w, d, &api);
        return start(*out, e);
    }
    nccl_close(&api);
    return st == ST_OK && o.on ? refuse(&o, &lacks, e) : st;
}

/* Destroying waits for all ranks, which does not end where one has failed. */
static void close_links(nccl_world *n) {
    if (board_failed(board_of(n))) abort_all(n);
    for (link *l = n->links, *next; l; l = next) {
        next = l->next;
        for (int s = 0; s < STREAMS; s++)
            if (l->at[s]) n->api.destroy(l->at[s]);
        free(l);
    }
}

void nccl_world_close(nccl_world *n) {
    if (!n) return;
    cuda_stream(n->dev);
    if (n->watcher) {
        pthread_mutex_lock(&n->lock);
        n->stop = true;
        pthread_cond_signal(&n->work);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->watcher, NULL);
    }
    close_links(n);
    for (int i = 0; i < UNDER_WAY; i++) {
        if (n->job[i].begun) n->gpu->event_destroy(n->job[i].begun);
        if (n->job[i].ended) n->gpu->event_destroy(n->job[i].ended);
    }
    if (n->given) n->gpu->event_destroy(n->given);
    if (n->side) n->gpu->stream_destroy(n->side);
    nccl_close(&n->api);
    pthread_mutex_destroy(&n->lock);
    pthread_cond_destroy(&n->work);
    pthread_cond_destroy(&n->progress);
    free(n);
}

const char *nccl_world_name(const nccl_world *n) {
    return n->name;
}
