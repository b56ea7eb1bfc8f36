/* Rank 0 receives the other ranks. Other programs may connect, too: until its greeting
 * (greeting.h) has ended, whatever connects is a guest.
 *
 * Rank 0 listens to all guests at once, so none delays another. It refuses a guest that sends no
 * greeting, has another token, runs another version, or claims a rank that does not exist or has
 * come already. The others are not affected. The log names the first few that are refused.
 *
 * There are GUESTS places. When all are taken, a new guest gets the place of one that was refused;
 * else of the one whose hello is awaited longest; else of one whose proof has been awaited for more
 * than PROOF_S; else it waits for a place. A real rank answers at once, so many guests can delay it
 * by fractions of a second only, and a rank that lost its place connects again. */
#ifndef COMM_RECEPTION_H
#define COMM_RECEPTION_H

#include "comm/meet/rendezvous.h"

/* Waits for all other ranks of the plan, until deadline_ns (0: for ever): sockets[1..size) are
 * theirs. At notice_ns the log says which ranks are missing. */
status reception_hold(const rendezvous_plan *plan, int64_t deadline_ns, int64_t notice_ns,
                      int *sockets, err *e) ATH_MUST_USE;

#endif
