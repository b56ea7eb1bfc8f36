/* Ranks that know only the address and port of rank 0 meet over TCP: rank 0 listens there, the
 * others connect, and each sends a small blob of bytes to all. The caller decides what is in it: on
 * which machine the ranks are and the memory that they share (joined.c), or the identifier that a
 * library of collectives needs from rank 0.
 *
 *     rank r                                     rank 0
 *     hello                               ---->
 *                                         <----  answer
 *     proof                               ---->        the greeting: greeting.h
 *                                         <----  frame without bytes: welcome
 *     frame: its blob                     ---->  once for each exchange
 *                                         <----  frame: the blobs of all ranks, in their order
 *
 * Files: greeting.h (who belongs to the run), reception.c (how rank 0 lets ranks in), frame.h (the
 * messages after that), tcp.h (sockets).
 *
 * Invariants
 *  1. A process that does not know the token of the run is no rank, whatever it claims: it is
 *     refused, and can neither end the meeting nor delay it. Nothing that it sends is believed.
 *  2. A process that knows the token but does not fit (another number of ranks, another version, a
 *     rank that has come already) is refused, too, and ends with an error; the others go on
 *     waiting.
 *  3. A rank that leaves ends the meeting for all. Connections stay until rendezvous_close; the end
 *     of a connection is the sign that a rank has ended (lifeline.c). */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "base/strbuf.h"
#include "comm/meet/tcp.h"

enum { RENDEZVOUS_MOST_BYTES = 4096 }; /* of one rank's blob */

typedef struct rendezvous_plan {
    int rank, size; /* size >= 2 */
    tcp_place at;
    double timeout_s;    /* for all to come, and then for each exchange; 0: for ever */
    const char *version; /* of the program, shorter than 24 bytes */
    const char *token;   /* what only ranks of this run know; "": there is none */
} rendezvous_plan;

typedef struct rendezvous rendezvous;

/* Meets the others. ST_RANK: one has not come, or has left; ST_STOPPED: a signal arrived, for which
 * this process has a handler; ST_USAGE: ranks were started with values that do not fit together. */
status rendezvous_open(rendezvous **out, const rendezvous_plan *plan, err *e) ATH_MUST_USE;
/* An all-gather: out[size * bytes] holds the blobs of all ranks. */
status rendezvous_exchange(rendezvous *r, const void *in, void *out, size_t bytes,
                           err *e) ATH_MUST_USE;
/* The connection to a rank; -1: there is none. Rank 0 has all, the others one. */
int rendezvous_socket(const rendezvous *r, int rank);
void rendezvous_close(rendezvous *r); /* NULL is fine */

/* ---- for the files of this folder ---- */

/* reception.c: waits for all other ranks of the plan, until deadline_ns (0: for ever):
 * sockets[1..size) are theirs. At notice_ns the log says which ranks are missing. */
status reception_hold(const rendezvous_plan *plan, int64_t deadline_ns, int64_t notice_ns,
                      int *sockets, err *e) ATH_MUST_USE;
/* Makes the error for a rank that was lost; errno says why. */
status rendezvous_name_loss(const rendezvous_plan *plan, int rank, err *e);
/* Appends the ranks of 0 .. n - 1 whose flag is set: "rank 2", "ranks 0-3, 7". Returns how many. */
int rank_list_put(strbuf *out, const bool *flags, int n);

#endif
