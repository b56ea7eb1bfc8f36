/* Ranks that know nothing of each other but an address and a port find each other over TCP: rank 0
 * listens there, the others come, and small blobs pass from each to all. What these say is the
 * caller's: where ranks live and the memory they share (joined.c), or the identifier that a library
 * of collectives wants from rank 0.
 *
 *     rank r                                     rank 0
 *     hello: magic, version, world, rank  ---->
 *                                         <----  frame without bytes: welcome
 *     frame: its blob                     ---->  once for each exchange
 *                                         <----  frame: the blobs of all ranks, in their order
 *
 * A frame is a magic, a status, a length and its bytes; numbers are little-endian. A status other
 * than ST_OK brings the sentence for which the meeting has failed, and comes at any time.
 *
 * Invariants
 *  1. Who does not say hello is no rank: it is not answered, and holds nobody up.
 *  2. Whoever says hello and does not fit (another number of ranks, another version, a rank twice)
 *     ends the meeting for all that have come, with one sentence. Who comes later finds nobody.
 *  3. A rank that leaves ends it, too. Connections stay until rendezvous_close, and their end tells
 *     of the end of a rank (lifeline.h). */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include "base/strbuf.h"
#include "comm/meet/tcp.h"

enum { RENDEZVOUS_MOST_BYTES = 4096 }; /* of one rank's blob */

typedef struct rendezvous_plan {
    int rank, size; /* size >= 2 */
    tcp_place at;
    double timeout_s;    /* until all have come, and for each exchange; 0: for ever */
    const char *version; /* of the program, shorter than 24 bytes */
} rendezvous_plan;

typedef struct rendezvous rendezvous;

/* Meets the others. ST_RANK: one has not come, or has left; ST_STOPPED: a signal that this process
 * catches came; ST_USAGE: what they were told does not fit. */
status rendezvous_open(rendezvous **out, const rendezvous_plan *plan, err *e) ATH_MUST_USE;
/* An all-gather: out[size * bytes] holds the blobs of all ranks. */
status rendezvous_exchange(rendezvous *r, const void *in, void *out, size_t bytes,
                           err *e) ATH_MUST_USE;
/* The connection to a rank; -1: there is none. Rank 0 has all, the others one. */
int rendezvous_socket(const rendezvous *r, int rank);
void rendezvous_close(rendezvous *r); /* NULL is fine */

/* "rank 2", "ranks 0-3, 7": those of n whose flag is set, and how many they are. */
int rank_list_put(strbuf *out, const bool *flags, int n);

#endif
