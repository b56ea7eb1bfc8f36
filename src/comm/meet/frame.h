/* Frames: the messages of a meeting, after the greeting (greeting.h).
 *
 * A frame is a magic number, a status, a length, and so many bytes; numbers are little-endian. If
 * the status is not ST_OK, the meeting has failed, and the bytes are the error: message, hint and
 * where, each with its NUL. Such a frame may come at any time, and is the last one of its
 * connection. */
#ifndef COMM_FRAME_H
#define COMM_FRAME_H

#include "comm/meet/tcp.h"

enum { FRAME_HEAD_BYTES = 4 + 4 + 4, FRAME_MOST_WORDS = 1536 };

typedef struct frame_head {
    bool good; /* the magic number is right */
    uint32_t status, bytes;
} frame_head;

bool frame_send(int fd, status st, const void *data, size_t bytes, int64_t deadline_ns);
/* Sends a failure and ends this side of the connection. */
void frame_send_failure(int fd, const err *why, int64_t deadline_ns);

frame_head frame_read_head(const unsigned char head[FRAME_HEAD_BYTES]);
/* Reads the error from the bytes of a frame. These may be anything: e gets plain lines. `words` has
 * room for three more bytes, which become NULs. */
status frame_read_failure(uint32_t code, char *words, size_t bytes, err *e);
/* Receives the bytes that follow this head, and reads the error from them. */
status frame_take_failure(int fd, frame_head head, int64_t deadline_ns, err *e);

#endif
