/* Connections between ranks while they meet. Calls that wait have a deadline (clock_now_ns; 0:
 * none), and a signal for which there is a handler ends them with EINTR. */
#ifndef COMM_TCP_H
#define COMM_TCP_H

#include <stddef.h>

#include "base/status.h"

typedef struct tcp_place {
    const char *host; /* a name, or an address of IPv4 or IPv6 */
    int port;
} tcp_place;

/* Listens at the first of the host's addresses that is one of this machine. */
status tcp_listen(tcp_place at, int *fd, err *e) ATH_MUST_USE;
int tcp_accept(int listener); /* -1: nobody is there, or errno */
/* The address of the other side, in digits. */
enum { TCP_NAME_BYTES = 64 };
void tcp_name_peer(int fd, char name[TCP_NAME_BYTES]);
/* Tries each of the host's addresses once. -1: *why (static, or from strerror) and errno say
 * why. */
int tcp_connect(tcp_place to, int64_t deadline_ns, const char **why);

/* Waits for these events of poll on fd; fd -1: only until the deadline. */
bool tcp_await(int fd, short events, int64_t deadline_ns);
/* Sends or receives all of the bytes. False: errno says why; ECONNRESET: the other side has
 * ended. */
bool tcp_send(int fd, const void *data, size_t bytes, int64_t deadline_ns);
bool tcp_receive(int fd, void *data, size_t bytes, int64_t deadline_ns);

/* Milliseconds until a deadline, as poll takes them. */
int tcp_left_ms(int64_t deadline_ns);

/* Numbers are sent in little-endian order. */
static inline void tcp_put_u32(unsigned char *to, uint32_t x) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(x >> 8 * i);
}
static inline uint32_t tcp_get_u32(const unsigned char *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

#endif
