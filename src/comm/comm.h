/* Ranks, and the collectives between them.
 *
 * A run of several ranks is the same program several times; each has a number, its rank. A world is
 * one rank's end of the connection to all others; a comm is an ordered group of ranks in it (along
 * one axis of the mesh: mesh.h). What they do together is a collective: every rank of a comm makes
 * the same call, and what this rank does next has its result. Ranks are threads of one process,
 * processes over a shared segment, or MPI processes; a world of one rank needs none of these.
 * Everything above this module is written once and sees no difference.
 *
 * How ranks meet: a launcher that forks them gives them a segment of shared memory (segment.c); MPI
 * has its own way (mpi/); ranks that know only the address of rank 0 connect to it over TCP, prove
 * that they belong to the run, and then share a segment, too (meet/joined.c).
 *
 * Reading order: this file, world.c (what surrounds a collective), collective.c (every collective,
 * made of one move: pieces to and from peers), nccl.h and staged.c (on a GPU's memory), sum.h, wire/wire.h (that move), wire/hub.h
 * (the move in memory that threads or processes share), segment.c, mpi.c and its plugin, queue.c (collectives
 * beside the computation), board/board.h (who is where, for hangs), voice.c (which rank prints the
 * error that ends a run), environment.c (who started this process), then meet/: joined.c,
 * rendezvous.h, greeting.h, reception.c, frame.h, tcp.h, lifeline.c; mesh.h.
 *
 * Invariants
 *  1. All ranks of a comm call the same collectives on it in the same order.
 *  2. Sums run in the order of the ranks of the comm, element by element, in fp32 for bf16 and f16: the
 *     same bits on every rank, whatever the transport. Integer sums wrap modulo 2^bits. By NCCL
 *     (comm_by_nccl) they have its order, with the same bits on every rank, and sums of bf16 and f16 are
 *     rounded to 16 bits on their way from rank to rank.
 *  3. A peer that fails or hangs makes the world fail: the failure is sticky, every collective
 *     returns at once from then on, and comm_check says what happened. No collective returns a
 *     status: the step path polls at step borders.
 *  4. A collective on a comm of one rank only copies.
 *  5. If its arrays are in a device's memory, a collective comes after all work that the device was
 *     given before it. It runs on the host, and what the host does not reach, a GPU's memory, it moves in
 *     pieces through memory of its own (staged.c); or, by NCCL, it is work of the GPU (nccl.c). */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/dtype.h"
#include "base/status.h"
#include "dev/dev.h"

typedef struct comm_world comm_world;
typedef struct comm comm;

/* ---- worlds ---- */

/* One rank alone. */
comm_world *comm_open_self(void);
/* Ends for n ranks that are threads of this process: out[0..n). */
void comm_open_threads(int n, comm_world *out[]);

/* Ranks that are processes of one machine share a segment of memory: a file without a name, made
 * before they exist (by athanor launch, from which they inherit it) or by rank 0 (joined.c). The
 * caller must know the number of ranks. ST_USAGE: the segment is for another number, or another
 * user made it; nothing of it has been read then. */
enum { COMM_MOST_RANKS = 256 };
status comm_segment_new(int ranks, int *fd, err *e) ATH_MUST_USE;
status comm_open_segment(comm_world **out, int fd, int rank, int ranks, err *e) ATH_MUST_USE;
int64_t comm_segment_bytes(int ranks); /* its length; pages that are not used take no memory */
/* Whether MPI has started this process, as one of several ranks; what each of so many has there to send from, all of which it
 * comes to use. */
bool comm_is_by_mpi(void);
int64_t comm_outbox_bytes(int ranks);
/* ST_USAGE, with err.where = where: one machine cannot have so many ranks. */
status comm_check_ranks(int64_t ranks, const char *where, err *e) ATH_MUST_USE;
/* For the launcher of the ranks. comm_segment_fail says that a rank is gone, so that the others
 * stop waiting. comm_segment_check asks whether the world has failed (ST_RANK, and why). */
status comm_segment_fail(int fd, int ranks, int rank, const err *why, err *e) ATH_MUST_USE;
status comm_segment_check(int fd, int ranks, err *e) ATH_MUST_USE;

/* The world that the environment describes: ATHANOR_RANK, ATHANOR_WORLD_SIZE, ATHANOR_SEGMENT_FD
 * (athanor launch); OMPI_*, PMI_*, SLURM_* (MPI: needs the plugin, and says so when it is absent);
 * RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun and others: ranks of one machine, which meet
 * over TCP within ATHANOR_TIMEOUT seconds or 300, and let in only ranks that know ATHANOR_TOKEN).
 * If none of them is set: one rank alone. ATHANOR_TIMEOUT is also the number of comm_set_timeout.
 * ATHANOR_LINK is for comm_set_link, in tests: microseconds, a comma, GB/s. ST_USAGE: a value is
 * not a number, or is out of range. */
status comm_open_environment(comm_world **out, err *e) ATH_MUST_USE;
/* ST_USAGE: ATHANOR_NCCL has a word that it does not know. */
status comm_check_environment(err *e) ATH_MUST_USE;
/* How many cores each of so many ranks gets, if they share those that this process may use; 1 at
 * least. */
int comm_core_share(int ranks);

/* Waits for the side stream, tells the others that this rank is done, and frees. NULL is fine. */
void comm_close(comm_world *w);

int comm_world_rank(const comm_world *w);
int comm_world_size(const comm_world *w);
const char *
comm_world_kind(const comm_world *w); /* "self", "threads", "processes", "joined", "mpi" */

/* ---- groups ---- */

/* The ranks of a group, ascending; this rank is one of them. Freed with the world. */
comm *comm_group(comm_world *w, const int *ranks, int n);
int comm_rank(const comm *c); /* in the group */
int comm_size(const comm *c);

/* ---- the device ---- */

/* What ranks do together with a GPU's memory goes by NCCL where each rank has a GPU of its own, else
 * through memory of the host: opens the one or gets the other, for calls whose dev is this one; nothing
 * where the host reaches the device's memory, and for one rank. All ranks call it, with all groups that
 * they know. ATHANOR_NCCL=off leaves NCCL out; on: ST_USAGE where it cannot be. Before dev_close the
 * world leaves the device, when all calls are done. w NULL is fine. */
status comm_use_device(comm_world *w, dev *d, err *e) ATH_MUST_USE;
void comm_leave_device(comm_world *w, dev *d);
int64_t comm_staging_bytes(void); /* of that memory */
/* "NCCL 2.27.0", "host memory"; without such a device what comm_world_kind says. */
const char *comm_transport(const comm_world *w);
/* Calls on the device go by NCCL. Then a sum has NCCL's order, and neither `add` nor `narrow` can be; comm_wait
 * returns before the call has ended, and what the device is given later comes after it. */
bool comm_by_nccl(const comm_world *w);
/* How many ranks of this machine come before this one. All ranks must call it. */
int comm_rank_here(comm_world *w);

/* ---- collectives ---- */

typedef enum comm_kind {
    COMM_ALL_REDUCE,     /* out[n] = sum over ranks of in[n]; in == out is fine */
    COMM_REDUCE_SCATTER, /* out[n] = part `rank` of the sum of in[size * n], and may lie there */
    COMM_ALL_GATHER,     /* out[size * n] = in[n] of all ranks; in may be this rank's part of out */
    COMM_BROADCAST,      /* out[n] of rank `root` to all; in is not read */
    COMM_SEND,           /* the same in a comm of two: what stages of a pipeline pass on */
    COMM_ALL_TO_ALL, /* out[size * n]: part p is part `rank` of rank p's in[size * n]; not in place */
    COMM_SHIFT, /* out[n] = in[n] of the rank before this one, the last before rank 0; not in place */
    COMM_BARRIER,
    COMM_KINDS
} comm_kind;
const char *comm_kind_name(comm_kind kind); /* "all-reduce" */

typedef enum comm_sum { COMM_SUM, COMM_MAX } comm_sum;

typedef struct comm_call {
    comm_kind kind;
    comm_sum sum;
    dev *dev; /* the device that has in and out; NULL: the host, or the caller is a kernel */
    const void *in;
    void *out;
    int64_t n;   /* elements, see comm_kind */
    dtype dt;    /* f32, f64, bf16, f16, i32, i64, u8 (u8: no sums) */
    bool add;    /* reduce-scatter: the sum is added to out, which must not overlap `in` */
    bool narrow; /* f32 reductions: each rank's contribution is rounded to bf16 and summed in
                    fp32; a sum that is sent on is rounded, too (parallel.reduce_dtype) */
    int root;
    const char
        *what; /* for traces and reports of hangs: "gradients of layers.3". Must be the same on
                         all ranks: it shows if a rank is in another call. Must stay alive until the
                         call has been waited for, and as long as an observer wants it */
    void (*ready)(
        void *ctx); /* waits until `in` is there, on the thread of the call; NULL: it is */
    void *ready_ctx;
} comm_call;

/* Returns when the collective is done; by NCCL when it is given, in the order of the device's kernels. */
void comm_run(comm *c, const comm_call *call);

/* The side stream: calls run one after the other on a thread of the world, or by NCCL on a stream of the
 * device, beside the computation. Do not touch the buffers before comm_wait. Tickets rise; comm_wait for one also waits for all
 * before it. */
typedef uint64_t comm_ticket;
comm_ticket comm_start(comm *c, const comm_call *call);
void comm_wait(comm_world *w, comm_ticket t);

/* Sums of a few numbers over a comm, in place. */
void comm_sum_i64(comm *c, int64_t *x, int64_t n);
void comm_barrier(comm *c);
/* Copies so many bytes of rank `root` to all. */
void comm_broadcast(comm *c, void *data, int64_t bytes, int root);

/* ---- failure ---- */

/* ST_RANK: the world has failed. The error says which rank did, and where each rank is. */
status comm_check(comm_world *w, err *e) ATH_MUST_USE;
/* This rank has failed. After a moment, in which the others may find the same error themselves,
 * they stop waiting, and their comm_check names this rank and its message. */
void comm_fail(comm_world *w, const err *why);
/* Seconds that a rank may wait for a peer before the world fails; 0: for ever. Default 600. */
void comm_set_timeout(comm_world *w, double seconds);
/* Notes what this rank computes, for reports of hangs: the first 63 bytes of `where`, and the step
 * of the run (0: none). Costs a few stores. */
void comm_at(comm_world *w, const char *where, int64_t step);
/* This rank ends because of `why`: is it the one that prints it? An error that all ranks found is
 * printed by rank 0, an error of one rank by that rank. The failure of a world is printed by the
 * rank that failed; if it cannot, by another. Waits up to two seconds for rank 0. w NULL: yes. */
bool comm_speaks(comm_world *w, const err *why);

/* ---- experiments and traces ---- */

/* Imitates a slow link on a fast machine: every collective ends at least latency_s + bytes sent /
 * bytes_per_s after the slowest rank has come. Both 0: no delay. */
typedef struct comm_link {
    double latency_s, bytes_per_s;
} comm_link;
void comm_set_link(comm_world *w, comm_link link);

/* Bytes that rank `rank` of a comm of `size` ranks sends in a call: for plans, which have no comm.
 * Only kind, n, dt, narrow and root of the call are read. */
int64_t comm_call_sends(const comm_call *call, int rank, int size);

/* One finished collective. Called on the thread that ran it, or that watches NCCL. */
typedef struct comm_event {
    const comm_call *call;
    int64_t begin_ns, end_ns; /* base/clock.h */
    int64_t sent_bytes;       /* by this rank */
    bool side;                /* on the side stream */
} comm_event;
typedef void (*comm_observer)(void *ctx, const comm_event *ev);
/* Calls that comm_wait has waited for are known to the observer before. */
void comm_observe(comm_world *w, comm_observer f, void *ctx);

/* Bytes and calls so far, by kind; calls that meet nobody are none. */
typedef struct comm_counts {
    int64_t calls[COMM_KINDS], sent_bytes[COMM_KINDS];
} comm_counts;
comm_counts comm_counted(const comm_world *w);

#endif
