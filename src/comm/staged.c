/* Collectives on memory that the host does not reach, as a GPU's is: by way of the host. Pieces are
 * copied to staging memory, the collective runs there, and what it gives is copied back. Elements are
 * summed as on the host, so the bits are the same.
 *
 * The staging memory of a stream is two rooms of equal size: what goes in, and what comes out. It is
 * pinned, made when the world gets its device, and of a size that plans know. */
#include <stdlib.h>

#include "base/arena.h"
#include "comm/nccl.h"
#include "dev/cuda.h"

enum { ROOM_BYTES = 4 << 20, STAGING_BYTES = 2 * ROOM_BYTES * STREAMS, ROUND = 16 };

bool comm_by_nccl(const comm_world *w) {
    const comm_device *k = comm_device_of(w, NULL);
    return k && k->nccl;
}

const char *comm_transport(const comm_world *w) {
    const comm_device *k = comm_device_of(w, NULL);
    if (!k) return comm_world_kind(w);
    return k->nccl ? nccl_world_name(k->nccl) : "host memory";
}

int64_t comm_staging_bytes(void) {
    return STAGING_BYTES;
}

bool staged_is_needed(const comm_call *call) {
    return call->dev && !dev_host_enters(call->dev);
}

/* ---- the memory ---- */

status comm_use_device(comm_world *w, dev *d, err *e) {
    if (w->size == 1 || dev_is_meta(d) || dev_host_enters(d)) return ST_OK;
    comm_device *k = xcalloc(1, sizeof *k);
    *k = (comm_device){.next = w->devices, .dev = d, .staging = cuda_pinned(d, STAGING_BYTES)};
    w->devices = k;
    TRY(dev_check(d, e));
    TRY(nccl_world_open(&k->nccl, w, d, e));
    if (k->nccl) cuda_note_baseline(d);
    return ST_OK;
}

void comm_leave_device(comm_world *w, dev *d) {
    comm_device **at = w ? &w->devices : NULL;
    while (at && *at && (*at)->dev != d) at = &(*at)->next;
    if (!at || !*at) return;
    comm_device *k = *at;
    nccl_world_close(k->nccl);
    cuda_pinned_free(d, k->staging);
    *at = k->next;
    free(k);
}

comm_device *comm_device_of(const comm_world *w, const dev *d) {
    comm_device *k = w->devices;
    while (k && d && k->dev != d) k = k->next;
    return k;
}

/* ---- pieces ---- */

/* Piece of a call: elements [at, at + n) of each part. */
typedef struct piece {
    const comm *c;
    const comm_call *call;
    char *in, *out; /* rooms */
    size_t bytes;   /* of an element */
    int64_t at, n;
} piece;

static bool has_parts_in(const comm_call *call) {
    return call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_TO_ALL;
}

static bool has_parts_out(const comm_call *call) {
    return call->kind == COMM_ALL_GATHER || call->kind == COMM_ALL_TO_ALL;
}

static bool is_root(const piece *p) {
    return p->c->rank == p->call->root;
}

static bool has_root(const comm_call *call) {
    return call->kind == COMM_BROADCAST || call->kind == COMM_SEND;
}

typedef void (*move_fn)(const piece *p, char *room, char *there, size_t bytes);

static void fetch(const piece *p, char *room, char *there, size_t bytes) {
    cuda_fetch(p->call->dev, 0, room, there, bytes);
}

static void put(const piece *p, char *room, char *there, size_t bytes) {
    cuda_store(p->call->dev, there, room, bytes);
}

/* The piece of each of so many parts, which lie one behind the other in the room. */
static void move(const piece *p, char *room, const void *data, int parts, move_fn f) {
    size_t bytes = (size_t)p->n * p->bytes;
    for (int i = 0; i < parts; i++) {
        size_t at = (size_t)(i * p->call->n + p->at) * p->bytes;
        f(p, room + (size_t)i * bytes, (char *)(uintptr_t)data + at, bytes);
    }
}

static void fetch_piece(const piece *p) {
    const comm_call *call = p->call;
    if (has_root(call)) {
        if (is_root(p)) move(p, p->out, call->out, 1, fetch);
        return;
    }
    move(p, p->in, call->in, has_parts_in(call) ? p->c->n : 1, fetch);
    if (call->add) move(p, p->out, call->out, 1, fetch);
}

static void store_piece(const piece *p) {
    const comm_call *call = p->call;
    if (!has_root(call) || !is_root(p))
        move(p, p->out, call->out, has_parts_out(call) ? p->c->n : 1, put);
}

/* Whole lines of each rank's part, so that a sum is divided as that of the whole is. */
static int64_t most_elements(const piece *p) {
    bool parts = has_parts_in(p->call) || has_parts_out(p->call);
    int64_t most = ROOM_BYTES / (int64_t)p->bytes / (parts ? p->c->n : 1), unit = p->c->n * ROUND;
    return most > unit ? most / unit * unit : most;
}

static int64_t run_piece(piece *p, int stream) {
    comm_call call = *p->call;
    call.dev = NULL, call.ready = NULL;
    call.in = p->in, call.out = p->out, call.n = p->n;
    fetch_piece(p);
    cuda_moved(p->call->dev);
    int64_t sent = collective_run((comm *)(uintptr_t)p->c, &call, stream);
    if (p->c->n > 1 && board_failed(p->c->world->wire->board)) return sent; /* nothing came */
    store_piece(p);
    cuda_moved(p->call->dev);
    return sent;
}

int64_t staged_run(comm *c, const comm_call *call, dev_event after, int stream) {
    if (call->kind == COMM_BARRIER || (c->n == 1 && call->in == call->out && !call->add))
        return collective_run(c, call, stream);
    const comm_device *k = comm_device_of(c->world, call->dev);
    CHECK(k, "a collective on a device that the world does not use");
    char *room = k->staging + (size_t)stream * 2 * ROOM_BYTES;
    piece p = {.c = c, .call = call, .in = room, .out = room + ROOM_BYTES};
    p.bytes = dtype_bytes(call->dt);
    int64_t most = most_elements(&p), sent = 0;
    cuda_fetch(call->dev, after, NULL, NULL, 0);
    do {
        p.n = call->n - p.at < most ? call->n - p.at : most;
        sent += run_piece(&p, stream);
        p.at += p.n;
    } while (p.at < call->n);
    return sent;
}
