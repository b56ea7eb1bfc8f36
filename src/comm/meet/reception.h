/* Rank 0 receives the other ranks, among whatever else connects.
 *
 * All guests are heard at once, each no further than its greeting goes (greeting.h), so none holds
 * up another. A guest that does not belong here is refused alone: it says nothing that is no
 * greeting, has another token, runs another version, or claims a rank that there is not or that
 * has come already. People are told of the first few.
 *
 * There are GUESTS places. When all are taken, a new guest takes the place of one that was refused,
 * else of the one that has owed its hello longest, else of one that has owed its proof for longer
 * than PROOF_S; when there is none of these either, it waits until there is. A rank answers at
 * once, so a crowd can delay it by fractions of a second, and a rank that lost its place tries
 * again. */
#ifndef COMM_RECEPTION_H
#define COMM_RECEPTION_H

#include "comm/meet/rendezvous.h"

/* Waits for all other ranks of the plan: sockets[1..size) are theirs. Until deadline_ns (0: for
 * ever); at notice_ns people hear who is waited for. */
status reception_hold(const rendezvous_plan *plan, int64_t deadline_ns, int64_t notice_ns,
                      int *sockets, err *e) ATH_MUST_USE;

#endif
