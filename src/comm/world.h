/* What the files of this module share of a world. */
#ifndef COMM_WORLD_H
#define COMM_WORLD_H

#include "comm/meet/lifeline.h"
#include "comm/queue.h"
#include "comm/wire/wire.h"

struct comm {
    comm_world *world;
    comm *next; /* of the world */
    uint32_t tag;
    int n, rank;
    int ranks[]; /* of the world, ascending */
};

struct comm_world {
    int rank, size;
    wire *wire; /* NULL: one rank alone */
    comm *comms;
    queue *queue;       /* made when first used */
    lifeline *lifeline; /* NULL: who started the ranks watches over them */
    comm_link link;
    comm_observer observer;
    void *observer_ctx;
    _Atomic int64_t calls[COMM_KINDS], sent_bytes[COMM_KINDS];
};

/* A world over a wire, which it owns. */
comm_world *comm_world_new(wire *w);

/* Runs a collective on this thread and notes, delays and counts it. The memory of call->dev, which
 * has been waited for, is entered meanwhile. */
void comm_run_on(comm *c, const comm_call *call, int stream);

/* collective.c: the collective itself; returns the bytes this rank sent. */
int64_t collective_run(comm *c, const comm_call *call, int stream);
/* Bytes of what the call yields, for reports. */
int64_t collective_bytes(const comm *c, const comm_call *call);

#endif
