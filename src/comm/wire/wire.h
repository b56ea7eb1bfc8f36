/* The one move that every collective is made of: pieces to and from peers.
 *
 * A wire passes pieces between this rank and the others, in order per pair of ranks and stream.
 * There are two streams, so that the side stream and the caller's thread never meet: each is used
 * by one thread of a rank. Ranks are ranks of the world.
 *
 *     sender                                   receiver
 *     buffer = reserve                         piece = await(peer)
 *     fill, post(buffer) to one or more        read it
 *                                              release(peer)
 *
 * Where ranks share an address space the wire lends: what is posted is the sender's own memory, and
 * it must stay as it is until settle. So a device's memory is lent only while this rank has entered
 * it: comm_run_on does so around a whole collective, which settles all that it posted, and in a
 * kernel it is open anyway. Otherwise only what was reserved is posted, and a piece has
 * at most piece_bytes.
 *
 * Everything returns false or NULL once the world has failed. Then too settle waits until no peer
 * reads what was lent. */
#ifndef COMM_WIRE_H
#define COMM_WIRE_H

#include "comm/board/board.h"

enum { STREAM_CALLER, STREAM_SIDE, STREAMS };

typedef struct wire wire;

typedef struct wire_class {
    bool one_thread; /* all calls must come from one thread: there is only the side stream */
    void *(*reserve)(wire *w, int stream); /* never of a wire that lends */
    bool (*post)(wire *w, int stream, int peer, const void *data, int64_t bytes, uint32_t tag);
    /* The next piece of peer, which must have these bytes and this tag. One at a time per peer. */
    const void *(*await)(wire *w, int stream, int peer, int64_t bytes, uint32_t tag);
    /* NULL: pieces are copies, which nobody waits for. */
    void (*release)(wire *w, int stream, int peer);
    void (*settle)(wire *w, int stream, int peer);
    /* Moves what was posted, while no other call does. False: all of it has gone. NULL: it needs nobody. */
    bool (*progress)(wire *w);
    void (*close)(wire *w);
} wire_class;

struct wire {
    const wire_class *class;
    bool lends;
    const char *kind; /* comm_world_kind */
    int rank, size;
    int64_t piece_bytes;
    double timeout_s; /* of one wait; 0: for ever */
    board *board;
};

#endif
