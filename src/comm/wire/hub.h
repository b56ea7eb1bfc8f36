/* The hub: the memory that ranks of one machine share, and the wire over it.
 *
 *     board | bells | channels | outboxes
 *
 * A channel is a ring of descriptors for one ordered pair of ranks and one stream. A descriptor
 * names a piece: an address for threads, or a place in the outbox of the sender. An outbox is a
 * ring of slots of one rank and stream; a slot may be posted to several peers and is free when all
 * have released it. A bell is what a rank sleeps at (a futex), one per stream.
 *
 * Why nothing blocks for ever: a rank posts at most one piece ahead of what it awaits, so it waits
 * for a free slot or descriptor only because of a peer that is behind it. The rank that is behind
 * all others never waits. */
#ifndef COMM_HUB_H
#define COMM_HUB_H

#include "comm/wire/wire.h"

typedef struct hub hub;

/* Bytes for n ranks; with outboxes, or for ranks that lend their memory. */
size_t hub_bytes(int ranks, bool outboxes);
/* Lays a hub out over zeroed memory. */
void hub_init(void *memory, int ranks, bool outboxes);
int hub_ranks(const hub *h);
board *hub_board(hub *h);

/* A wire over a hub. `release_hub` is called with the hub at close. */
wire *hub_wire_new(hub *h, int rank, const char *kind, void (*release_hub)(hub *h));

/* Ends that hold it, for memory that threads share: true when the last one lets go. */
void hub_retain(hub *h, int holders);
bool hub_let_go(hub *h);

#endif
