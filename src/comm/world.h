/* What the files of this module share of a world. */
#ifndef COMM_WORLD_H
#define COMM_WORLD_H

#include <sched.h>

#include "comm/meet/rendezvous.h"
#include "comm/wire/wire.h"

/* queue.c: the side stream, one thread that runs collectives in the order they were started, and moves what the wire has under
 * way between them. over NULL: there is none. rank, ranks: of those that share this machine; 0 of 1: unknown, or alone. */
typedef struct queue queue;
queue *queue_new(wire *over, int rank, int ranks);
/* Runs all calls that were added, then ends the thread. NULL is fine. */
void queue_free(queue *q);
/* Adds a call, which comes after the work of its device before `after`; waits while the queue is full. */
comm_ticket queue_add(queue *q, comm *c, const comm_call *call, dev_event after);
void queue_wait(queue *q, comm_ticket t);

/* meet/lifeline.c: ranks that nobody started together watch over each other. */
typedef struct lifeline lifeline;
/* Owns the rendezvous from now on. */
lifeline *lifeline_new(rendezvous *r, board *b, int rank, int size);
/* Call it after board_leave: it ends the connections, which tells the others that this rank is gone.
 * NULL is fine. */
void lifeline_free(lifeline *l);

struct comm {
    comm_world *world;
    comm *next; /* of the world */
    uint32_t tag;
    int n, rank;
    int ranks[]; /* of the world, ascending */
};

typedef struct nccl_world nccl_world;

/* staged.c: a device that the world uses. A run that tries its layout has one of its own beside. */
typedef struct comm_device {
    struct comm_device *next;
    dev *dev;
    nccl_world *nccl; /* comm/nccl.h; NULL: calls on its memory go by the host */
    char *staging;
} comm_device;
/* NULL: the host reaches its memory. d NULL: the device that came last. */
comm_device *comm_device_of(const comm_world *w, const dev *d);

struct comm_world {
    int rank, size;
    wire *wire; /* NULL: one rank alone */
    comm *comms;
    const comm *opened;   /* the newest when NCCL was opened last (nccl.c) */
    queue *queue;         /* made when first used */
    comm_device *devices; /* whose memory the host does not reach */
    lifeline *lifeline;   /* NULL: who started the ranks watches over them */
    comm_link link;
    comm_observer observer;
    void *observer_ctx;
    _Atomic int64_t calls[COMM_KINDS], sent_bytes[COMM_KINDS];
};

/* A world over a wire, which it owns. */
comm_world *comm_world_new(wire *w);

/* meet/joined.c: the world of ranks that somebody started and told where rank 0 is (torchrun,
 * scripts, cluster operators). They meet over TCP (meet/rendezvous.h), then share the memory of one
 * machine as those of athanor launch do. Ranks of several machines are refused with a sentence that
 * says which is where. */
status joined_open(comm_world **out, const rendezvous_plan *plan, err *e) ATH_MUST_USE;
/* mpi/mpi.c: the world of the ranks of MPI (by_mpi.c says whether there is one). MPI is in a plugin of its own so that
 * the program needs none: athanor-mpi.so beside the program, opened only where mpirun or srun started this process. */
status mpi_open(comm_world **out, err *e) ATH_MUST_USE;

/* environment.c: the processors that this process may use, into an empty set; what rank has of those that it may use beside the
 * other ranks of its machine; as many threads, unless OMP_NUM_THREADS says otherwise. */
void comm_list_processors(cpu_set_t *own);
double comm_share_of(const cpu_set_t *sets, int rank, int ranks);
void comm_share_processors(const cpu_set_t *sets, int rank, int ranks);

/* Adds to what comm_counted tells. */
void comm_count(comm_world *w, const comm_call *call, int64_t sent_bytes);

/* Runs a collective on this thread, after the work of call->dev before `after`, and notes, delays and
 * counts it. The memory of call->dev is entered meanwhile, or its pieces staged. */
void comm_run_on(comm *c, const comm_call *call, dev_event after, int stream);

/* staged.c: a collective on memory that the host does not reach; what collective_run returns. */
bool staged_is_needed(const comm_call *call);
int64_t staged_run(comm *c, const comm_call *call, dev_event after, int stream);

/* collective.c: the collective itself; returns the bytes this rank sent. */
int64_t collective_run(comm *c, const comm_call *call, int stream);
/* Bytes of what the call yields, for reports. */
int64_t collective_bytes(const comm *c, const comm_call *call);

#endif
