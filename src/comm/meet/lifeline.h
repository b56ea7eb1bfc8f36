/* Ranks without a launcher watch each other: each has a thread that sleeps until the connection to
 * another rank ends.
 *
 * Rank 0 has a connection to every other rank; each of these has one to rank 0. When a connection
 * ends and its rank has not left the world in order, the world fails, and the error names that
 * rank. A process that still runs LAST_S seconds after it has seen a failed world lose a rank is
 * ended with ST_RANK, as a launcher would kill it: it may hang outside of any collective. */
#ifndef COMM_LIFELINE_H
#define COMM_LIFELINE_H

#include "comm/board/board.h"
#include "comm/meet/rendezvous.h"

typedef struct lifeline lifeline;

/* Owns the rendezvous from now on. */
lifeline *lifeline_new(rendezvous *r, board *b, int rank, int size);
/* Call it after board_leave: it ends the connections, which tells the others that this rank is
 * gone. NULL is fine. */
void lifeline_free(lifeline *l);

#endif
