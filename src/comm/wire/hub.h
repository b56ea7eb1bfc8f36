/* The hub: the memory that ranks of one machine share, and the wire over it.
 *
 *     holders | board | bells | channels | outboxes
 *
 * A channel is a ring of descriptors for one ordered pair of ranks and one stream. A descriptor
 * names a piece: an address for threads, or a place in the outbox of the sender. An outbox is a
 * ring of slots of one rank and stream; a slot may be posted to several peers and is free when all
 * have released it. A bell is what a rank sleeps at (a futex), one per stream.
 *
 * Where each part begins follows from the number of ranks, and every rank works it out for itself:
 * nothing in the memory says where anything lies, but for the place of a piece, which must be inside
 * the outboxes.
 *
 * Why nothing blocks for ever: a rank posts at most one piece ahead of what it awaits, so it waits
 * for a free slot or descriptor only because of a peer that is behind it. The rank that is behind
 * all others never waits. */
#ifndef COMM_HUB_H
#define COMM_HUB_H

#include "comm/wire/wire.h"

/* One rank's view of the shared memory, which was zeroed when the first rank came. */
typedef struct hub {
    char *memory;
    size_t bytes;
    int ranks, slots; /* slots: per outbox */
    int64_t slot_bytes;
    size_t board_at, bells_at, channels_at, outboxes_at;
} hub;

/* For n ranks; with outboxes, or for ranks that lend their memory. `memory` may be NULL where only
 * the bytes are asked for. */
hub hub_over(void *memory, int ranks, bool outboxes);
board *hub_board(const hub *h);

/* A rank's wire over a hub. Closing it unmaps the hub; where threads share it without outboxes, each
 * rank has a wire, and the last one that is closed frees the memory. */
wire *hub_wire_new(const hub *h, int rank, const char *kind);
void hub_unmap(hub *h);

#endif
