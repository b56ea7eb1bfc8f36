/* Frames as bytes (see frame.h). */
#include "comm/meet/frame.h"

#include <string.h>
#include <sys/socket.h>

#include "base/strbuf.h"
#include "base/text.h"

static const uint32_t MAGIC = 0x31465441; /* "ATF1" */

bool frame_send(int fd, status st, const void *data, size_t bytes, int64_t deadline_ns) {
    strbuf frame = {0};
    unsigned char *head = (unsigned char *)strbuf_extend(&frame, FRAME_HEAD_BYTES);
    tcp_put_u32(head, MAGIC);
    tcp_put_u32(head + 4, (uint32_t)st);
    tcp_put_u32(head + 8, (uint32_t)bytes);
    strbuf_append(&frame, data, bytes);
    bool sent = tcp_send(fd, frame.data, frame.len, deadline_ns);
    strbuf_free(&frame);
    return sent;
}

void frame_send_failure(int fd, const err *why, int64_t deadline_ns) {
    strbuf words = {0};
    const char *const parts[] = {why->message, why->hint, why->where};
    for (int i = 0; i < ARRAY_LEN(parts); i++) {
        strbuf_append(&words, parts[i], strnlen(parts[i], FRAME_MOST_WORDS / 3 - 1));
        strbuf_putc(&words, '\0');
    }
    (void)frame_send(fd, why->code, words.data, words.len, deadline_ns);
    shutdown(fd, SHUT_WR);
    strbuf_free(&words);
}

frame_head frame_read_head(const unsigned char head[FRAME_HEAD_BYTES]) {
    return (frame_head){tcp_get_u32(head) == MAGIC, tcp_get_u32(head + 4), tcp_get_u32(head + 8)};
}

status frame_read_failure(uint32_t code, char *words, size_t bytes, err *e) {
    memset(words + bytes, 0, 3);
    char *hint = words + strlen(words) + 1, *where = hint + strlen(hint) + 1;
    status st = code == ST_USAGE || code == ST_STOPPED ? (status)code : ST_RANK;
    text_make_plain(words);
    text_make_plain(hint);
    text_make_plain(where);
    err_set(e, st, "%s", *words ? words : "the meeting of the ranks has failed");
    if (*hint) err_hint(e, "%s", hint);
    if (*where) err_where(e, "%s", where);
    return st;
}

status frame_take_failure(int fd, frame_head head, int64_t deadline_ns, err *e) {
    char words[FRAME_MOST_WORDS + 3];
    size_t bytes = head.bytes <= FRAME_MOST_WORDS ? head.bytes : 0;
    if (!tcp_receive(fd, words, bytes, deadline_ns)) bytes = 0;
    return frame_read_failure(head.status, words, bytes, e);
}
