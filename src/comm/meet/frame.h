/* Frames: what ranks that have greeted each other say while they meet.
 *
 * A frame is a magic, a status, a length and its bytes; numbers are little-endian. A status other
 * than ST_OK brings the sentence for which the meeting has failed (message, hint and where, each
 * with its NUL), comes at any time, and is the last that a connection sends. */
#ifndef COMM_FRAME_H
#define COMM_FRAME_H

#include "comm/meet/tcp.h"

enum { FRAME_HEAD_BYTES = 4 + 4 + 4, FRAME_MOST_WORDS = 1536 };

typedef struct frame_head {
    bool good; /* has the magic */
    uint32_t status, bytes;
} frame_head;

bool frame_send(int fd, status st, const void *data, size_t bytes, int64_t deadline_ns);
/* Tells a failure and ends this side of the connection. */
void frame_send_failure(int fd, const err *why, int64_t deadline_ns);

frame_head frame_read_head(const unsigned char head[FRAME_HEAD_BYTES]);
/* The failure that `bytes` of words tell, as plain lines: they may be anything. Room for three NULs
 * follows them. */
status frame_read_failure(uint32_t code, char *words, size_t bytes, err *e);
/* The same of the frame whose head was read. */
status frame_take_failure(int fd, frame_head head, int64_t deadline_ns, err *e);

#endif
