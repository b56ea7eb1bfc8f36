/* Layout of the hub, sleeping and waking, and the wire: lending for threads, through outboxes for
 * processes. All counters only grow and are compared by difference. */
#include "comm/wire/hub.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"

enum {
    LINE = 64,   /* bytes of a cache line: what two ranks write lies apart */
    DEPTH = 8,   /* descriptors per channel */
    SPINS = 500, /* looks before sleeping, where every rank has a core */
    NAP_MS = 100 /* failures, ends and timeouts are seen after this long */
};
static const int64_t OUTBOX_TOTAL_BYTES = 16 << 20, SLOT_LEAST = 16 << 10, SLOT_MOST = 256 << 10;

typedef struct piece {
    uint64_t place; /* address, or offset from the hub */
    int64_t bytes;
    uint32_t tag;
} piece;

typedef struct channel {
    alignas(LINE) atomic_uint posted; /* written by the sender, as the pieces */
    piece pieces[DEPTH];
    alignas(LINE) atomic_uint opened; /* written by the receiver: being read, ... */
    atomic_uint taken;                /* ... and no longer */
} channel;

typedef struct bell {
    alignas(LINE) atomic_uint rings;
    atomic_uint asleep;
} bell;

/* A slot is free when each peer has taken as many pieces as it says. */
typedef struct slot {
    uint32_t *until; /* [ranks] */
    bool used;
} slot;

typedef struct hub_wire {
    wire base;
    hub hub;
    int spins;
    pid_t parent; /* of this process when it began */
    slot *slots[STREAMS];
    uint32_t *until;      /* what the slots point into */
    int current[STREAMS]; /* the slot reserved last */
} hub_wire;

/* ---- layout ---- */

static size_t align_line(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Two pieces under way: for each, one for every peer and one for all of them. */
static int outbox_slots(int ranks) {
    return 2 * ranks;
}

static int64_t slot_bytes_for(int ranks) {
    int64_t boxes = (int64_t)ranks * STREAMS * outbox_slots(ranks), bytes = SLOT_MOST;
    while (bytes > SLOT_LEAST && boxes * bytes > OUTBOX_TOTAL_BYTES) bytes /= 2;
    return bytes;
}

hub hub_over(void *memory, int ranks, bool outboxes) {
    hub h = {.memory = memory,
             .ranks = ranks,
             .slots = outboxes ? outbox_slots(ranks) : 0,
             .slot_bytes = outboxes ? slot_bytes_for(ranks) : 0};
    h.board_at = align_line(sizeof(atomic_int)); /* behind the number of wires that were closed */
    h.bells_at = h.board_at + align_line(board_bytes(ranks));
    h.channels_at = h.bells_at + (size_t)(ranks * STREAMS) * sizeof(bell);
    h.outboxes_at = h.channels_at + (size_t)ranks * (size_t)ranks * STREAMS * sizeof(channel);
    h.bytes = h.outboxes_at + (size_t)ranks * STREAMS * (size_t)h.slots * (size_t)h.slot_bytes;
    return h;
}

board *hub_board(const hub *h) {
    return (board *)(h->memory + h->board_at);
}

void hub_unmap(hub *h) {
    munmap(h->memory, h->bytes);
}

static void let_go(hub *h, bool shared_by_threads) {
    if (!shared_by_threads)
        hub_unmap(h);
    else if (atomic_fetch_add((atomic_int *)(void *)h->memory, 1) + 1 == h->ranks)
        free(h->memory);
}

static bell *bell_of(const hub *h, int rank, int stream) {
    return (bell *)(void *)(h->memory + h->bells_at) + rank * STREAMS + stream;
}

static channel *channel_of(const hub *h, int from, int to, int stream) {
    size_t i = ((size_t)from * (size_t)h->ranks + (size_t)to) * STREAMS + (size_t)stream;
    return (channel *)(void *)(h->memory + h->channels_at) + i;
}

static char *slot_of(const hub *h, int rank, int stream, int i) {
    size_t n = ((size_t)rank * STREAMS + (size_t)stream) * (size_t)h->slots + (size_t)i;
    return h->memory + h->outboxes_at + n * (size_t)h->slot_bytes;
}

/* ---- sleeping and waking ---- */

/* Shared futexes: they work between threads and between processes. */
static void futex_sleep(atomic_uint *word, uint32_t seen) {
    struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &nap, NULL, 0);
}

/* After a counter was moved on. The order "counter, then asleep" against the sleeper's "asleep,
 * then counter" is what loses no call; hence sequentially consistent accesses throughout. */
static void ring(bell *b) {
    if (!atomic_load(&b->asleep)) return;
    atomic_fetch_add(&b->rings, 1);
    syscall(SYS_futex, &b->rings, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static bool reached(atomic_uint *counter, uint32_t target) {
    return (int32_t)(atomic_load(counter) - target) >= 0;
}

/* Whether to go on waiting. What a peer posted before it left must still be seen. That a rank was killed is told by the
 * launcher; where that is gone, each looks after whom it waits for. */
static bool may_wait(hub_wire *w, int stream, int peer, clock_wait *wait, atomic_uint *counter,
                     uint32_t target) {
    board *b = w->base.board;
    double waited = clock_waited_s(wait);
    board_looks(b, w->base.rank, stream == STREAM_SIDE);
    if (board_failed(b)) return false;
    bool left = board_has_left(b, peer);
    if (reached(counter, target)) return true;
    if (left) {
        board_fail_left(b, w->base.rank, stream == STREAM_SIDE, peer);
        return false;
    }
    if (getppid() != w->parent && board_is_dead(b, peer, waited)) {
        board_fail_dead(b, peer);
        return false;
    }
    if (w->base.timeout_s <= 0 || waited < w->base.timeout_s) return true;
    board_stall(b, w->base.rank, stream == STREAM_SIDE, peer, waited);
    return false;
}

static bool sleep_until(hub_wire *w, int stream, int peer, atomic_uint *counter, uint32_t target) {
    bell *b = bell_of(&w->hub, w->base.rank, stream);
    clock_wait wait = clock_begin_wait();
    bool going = true;
    board_waits(w->base.board, w->base.rank, stream == STREAM_SIDE, peer);
    while (going && !reached(counter, target)) {
        uint32_t seen = atomic_load(&b->rings);
        atomic_store(&b->asleep, 1);
        if (!reached(counter, target)) futex_sleep(&b->rings, seen);
        atomic_store(&b->asleep, 0);
        going = may_wait(w, stream, peer, &wait, counter, target);
    }
    board_waits(w->base.board, w->base.rank, stream == STREAM_SIDE, BOARD_NOBODY);
    return going;
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool wait_until(hub_wire *w, int stream, int peer, atomic_uint *counter, uint32_t target) {
    if (board_failed(w->base.board)) return false;
    /* The side stream shares its core with the computation: it does not spin. */
    int spins = stream == STREAM_SIDE ? 0 : w->spins;
    for (int i = 0; i < spins && !reached(counter, target); i++) pause_briefly();
    return reached(counter, target) || sleep_until(w, stream, peer, counter, target);
}

/* ---- the wire ---- */

static bool wait_for_slot(hub_wire *w, int stream, slot *s) {
    for (int peer = 0; s->used && peer < w->base.size; peer++) {
        if (peer == w->base.rank) continue;
        channel *ch = channel_of(&w->hub, w->base.rank, peer, stream);
        if (!wait_until(w, stream, peer, &ch->taken, s->until[peer])) return false;
    }
    return true;
}

/* Until it is posted, a slot is as free for every peer as what was posted before. */
static void *hub_reserve(wire *base, int stream) {
    hub_wire *w = (hub_wire *)base;
    int next = (w->current[stream] + 1) % w->hub.slots;
    slot *s = &w->slots[stream][next];
    if (!wait_for_slot(w, stream, s)) return NULL;
    w->current[stream] = next;
    s->used = true;
    for (int peer = 0; peer < base->size; peer++)
        s->until[peer] = atomic_load_explicit(&channel_of(&w->hub, base->rank, peer, stream)->taken,
                                              memory_order_relaxed);
    return slot_of(&w->hub, base->rank, stream, next);
}

static uint64_t place_of(hub_wire *w, int stream, const void *data, int64_t bytes) {
    if (w->base.lends) return (uint64_t)(uintptr_t)data;
    if (bytes == 0) return 0;
    CHECK(data == slot_of(&w->hub, w->base.rank, stream, w->current[stream]) &&
              bytes <= w->hub.slot_bytes,
          "%lld bytes that were not reserved", (long long)bytes);
    return (uint64_t)((const char *)data - w->hub.memory);
}

static bool hub_post(wire *base, int stream, int peer, const void *data, int64_t bytes,
                     uint32_t tag) {
    hub_wire *w = (hub_wire *)base;
    channel *ch = channel_of(&w->hub, base->rank, peer, stream);
    uint32_t n = atomic_load_explicit(&ch->posted, memory_order_relaxed);
    if (!wait_until(w, stream, peer, &ch->taken, n + 1 - DEPTH)) return false;
    uint64_t place = place_of(w, stream, data, bytes);
    ch->pieces[n % DEPTH] = (piece){.place = place, .bytes = bytes, .tag = tag};
    if (!base->lends && bytes > 0) w->slots[stream][w->current[stream]].until[peer] = n + 1;
    atomic_store(&ch->posted, n + 1);
    ring(bell_of(&w->hub, peer, stream));
    return true;
}

/* Whether a piece lies in the outboxes. Who lends gives addresses of this very process; a piece of no
 * bytes lies nowhere. */
static bool is_inside(const hub_wire *w, const piece *p) {
    const hub *h = &w->hub;
    return w->base.lends || p->bytes == 0 ||
           (p->bytes > 0 && p->place >= h->outboxes_at && p->place <= h->bytes &&
            (uint64_t)p->bytes <= h->bytes - p->place);
}

/* `opened` is raised before the last look at the failure, so that a sender that has seen the
 * failure and then finds nothing opened may take its memory back. */
static const void *hub_await(wire *base, int stream, int peer, int64_t bytes, uint32_t tag) {
    hub_wire *w = (hub_wire *)base;
    channel *ch = channel_of(&w->hub, peer, base->rank, stream);
    uint32_t n = atomic_load_explicit(&ch->taken, memory_order_relaxed);
    if (!wait_until(w, stream, peer, &ch->posted, n + 1)) return NULL;
    atomic_store(&ch->opened, n + 1);
    piece got = ch->pieces[n % DEPTH]; /* a copy: it is checked once */
    bool failed = board_failed(base->board);
    if (!failed && (got.bytes != bytes || got.tag != tag || !is_inside(w, &got))) {
        board_fail_mixed(base->board, base->rank, stream == STREAM_SIDE, peer);
        failed = true;
    }
    if (failed) {
        atomic_store(&ch->opened, n);
        return NULL;
    }
    if (base->lends) return bytes ? (const void *)(uintptr_t)got.place : "";
    return w->hub.memory + got.place;
}

static void hub_release(wire *base, int stream, int peer) {
    hub_wire *w = (hub_wire *)base;
    channel *ch = channel_of(&w->hub, peer, base->rank, stream);
    atomic_store(&ch->taken, atomic_load_explicit(&ch->opened, memory_order_relaxed));
    ring(bell_of(&w->hub, peer, stream));
}

static void hub_settle(wire *base, int stream, int peer) {
    hub_wire *w = (hub_wire *)base;
    if (!base->lends) return;
    channel *ch = channel_of(&w->hub, base->rank, peer, stream);
    uint32_t n = atomic_load_explicit(&ch->posted, memory_order_relaxed);
    if (wait_until(w, stream, peer, &ch->taken, n)) return;
    /* Failed. A peer within a piece is soon done with it, or gives it back as it fails, too. */
    const struct timespec moment = {.tv_nsec = 1000000};
    while (atomic_load(&ch->opened) != atomic_load(&ch->taken)) nanosleep(&moment, NULL);
}

static void hub_close(wire *base) {
    hub_wire *w = (hub_wire *)base;
    for (int s = 0; s < STREAMS; s++) free(w->slots[s]);
    free(w->until);
    let_go(&w->hub, base->lends);
    free(w);
}

static const wire_class OVER_HUB = {.reserve = hub_reserve,
                                    .post = hub_post,
                                    .await = hub_await,
                                    .release = hub_release,
                                    .settle = hub_settle,
                                    .close = hub_close};

static void make_slots(hub_wire *w) {
    size_t n = (size_t)w->hub.slots, ranks = (size_t)w->hub.ranks;
    w->until = xcalloc(STREAMS * n * ranks, sizeof *w->until);
    for (size_t s = 0; s < STREAMS; s++) {
        w->slots[s] = xcalloc(n, sizeof(slot));
        for (size_t i = 0; i < n; i++) w->slots[s][i].until = w->until + (s * n + i) * ranks;
    }
}

wire *hub_wire_new(const hub *h, int rank, const char *kind) {
    hub_wire *w = xcalloc(1, sizeof *w);
    bool lends = h->slots == 0;
    w->base = (wire){.class = &OVER_HUB,
                     .lends = lends,
                     .kind = kind,
                     .rank = rank,
                     .size = h->ranks,
                     .piece_bytes = lends ? SLOT_MOST : h->slot_bytes,
                     .board = hub_board(h)};
    w->hub = *h;
    w->parent = getppid();
    w->spins = h->ranks <= sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
    make_slots(w);
    return &w->base;
}
