/* Collectives on the memory of GPUs by NCCL, where each rank of a world has a GPU of its own. Private to
 * the module.
 *
 * A call is given to a stream and returns: comm_run's to the stream of kernels, comm_start's to one of
 * its own, after what the device was given before. comm_wait makes the kernels' stream wait, not the
 * host. So a group has two communicators of NCCL, and each is used in one order. One thread gives the
 * calls. It waits for peers only where NCCL connects them: when communicators are opened, in the first
 * collective of each, and in the first message between two ranks.
 *
 * A thread watches what is under way: it tells the board where this rank is, traces when a call began
 * and ended, and, when the world fails, NCCL tells of an error or a peer is waited for too long, aborts
 * NCCL's communicators, so that nothing waits for ever. What the host knows and says itself (small sums,
 * agreement, the board) does not go through NCCL.
 *
 * Sums have NCCL's order, which is the same on all ranks but not that of the host. */
#ifndef COMM_NCCL_H
#define COMM_NCCL_H

#include "comm/world.h"

/* Opens it for the groups that the world was given since it was last opened, if ATHANOR_NCCL and the GPUs
 * of all ranks allow it; else it is NULL. After an error it is closed, too. All ranks call it. */
status nccl_world_open(nccl_world **out, comm_world *w, dev *d, err *e) ATH_MUST_USE;
/* Waits for what is under way. NULL is fine. */
void nccl_world_close(nccl_world *n);
const char *nccl_world_name(const nccl_world *n); /* "NCCL 2.27.0" */

/* By which a call goes; NULL: by the host. */
nccl_world *nccl_of(const comm *c, const comm_call *call);
void nccl_run(nccl_world *n, comm *c, const comm_call *call);
/* The ticket has NCCL_TICKET set, so that it is none of the queue's. */
static const comm_ticket NCCL_TICKET = (comm_ticket)1 << 63;
comm_ticket nccl_start(nccl_world *n, comm *c, const comm_call *call);
void nccl_wait(nccl_world *n, comm_ticket t);
/* Returns when all calls have ended and the observer knows of them. */
void nccl_await_all(nccl_world *n);

#endif
