/* Ranks that nobody started together watch over each other: a thread that sleeps until the
 * connection to another rank ends.
 *
 * Rank 0 has a connection to every other rank, they have one to rank 0. When one ends and its rank
 * has not left the world in order, the world fails in its name. A rank that is still there LAST_S
 * seconds after it has seen a failed world lose a rank is ended with ST_RANK, as a launcher would
 * kill it: it may be stuck where no collective tells it. */
#ifndef COMM_LIFELINE_H
#define COMM_LIFELINE_H

#include "comm/board/board.h"
#include "comm/meet/rendezvous.h"

typedef struct lifeline lifeline;

/* Owns the rendezvous from now on. */
lifeline *lifeline_new(rendezvous *r, board *b, int rank, int size);
/* After board_leave: from now on the others see that this rank has gone. NULL is fine. */
void lifeline_free(lifeline *l);

#endif
