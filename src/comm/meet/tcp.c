/* Sockets do not block and are closed by exec; what waits is poll. */
#include "comm/meet/tcp.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { BACKLOG = 4096 }; /* a caller that finds no place here is forgotten for a second */

/* ---- waiting ---- */

int tcp_left_ms(int64_t deadline_ns) {
    if (deadline_ns == 0) return -1;
    int64_t left = (deadline_ns - clock_now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

bool tcp_await(int fd, short events, int64_t deadline_ns) {
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, tcp_left_ms(deadline_ns));
    if (n == 0) errno = ETIMEDOUT;
    return n > 0;
}

/* Whether a transfer that did nothing may be tried again. */
static bool may_go_on(int fd, short events, ssize_t moved, int64_t deadline_ns) {
    if (moved == 0) errno = ECONNRESET;
    if (moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return false;
    return tcp_await(fd, events, deadline_ns);
}

bool tcp_send(int fd, const void *data, size_t bytes, int64_t deadline_ns) {
    for (const char *at = data; bytes > 0;) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0 && !may_go_on(fd, POLLOUT, n, deadline_ns)) return false;
        if (n > 0) at += n, bytes -= (size_t)n;
    }
    return true;
}

bool tcp_receive(int fd, void *data, size_t bytes, int64_t deadline_ns) {
    for (char *at = data; bytes > 0;) {
        ssize_t n = recv(fd, at, bytes, 0);
        if (n <= 0 && !may_go_on(fd, POLLIN, n, deadline_ns)) return false;
        if (n > 0) at += n, bytes -= (size_t)n;
    }
    return true;
}

/* ---- addresses ---- */

static struct addrinfo *resolve(tcp_place at, const char **why) {
    char service[16];
    struct addrinfo *found = NULL, wish = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(service, sizeof service, "%d", at.port);
    int bad = getaddrinfo(at.host, service, &wish, &found);
    if (bad) *why = bad == EAI_SYSTEM ? strerror(errno) : gai_strerror(bad);
    return bad ? NULL : found;
}

/* What is said is short and waited for. */
static int without_delay(int fd) {
    int yes = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static int new_socket(const struct addrinfo *a) {
    return without_delay(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

static int close_failed(int fd) {
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return -1;
}

static int listen_at(const struct addrinfo *a) {
    int fd = new_socket(a), yes = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes,
               sizeof yes); /* after a run that has just ended */
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    return close_failed(fd);
}

static status refuse_host(tcp_place at, const char *why, err *e) {
    err_at(e, ST_USAGE, "MASTER_ADDR", "rank 0 cannot listen at %s: %s", at.host, why);
    return err_hint(e, "this is the machine of rank 0; on one machine 127.0.0.1 will do");
}

static status name_listen_failure(tcp_place at, err *e) {
    if (errno == EADDRNOTAVAIL) return refuse_host(at, "it is no address of this machine", e);
    err_at(e, ST_USAGE, "MASTER_PORT", "rank 0 cannot listen at %s, port %d: %s", at.host, at.port,
           strerror(errno));
    return err_hint(e, "another run, or another program, may have this port: choose another");
}

/* An address of a kind that this machine does not have is passed over. */
status tcp_listen(tcp_place at, int *fd, err *e) {
    const char *why = NULL;
    struct addrinfo *all = resolve(at, &why);
    *fd = -1;
    if (!all) return refuse_host(at, why, e);
    for (const struct addrinfo *a = all; a && *fd < 0; a = a->ai_next) {
        *fd = listen_at(a);
        if (*fd < 0 && errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
    }
    status st = *fd >= 0 ? ST_OK : name_listen_failure(at, e);
    freeaddrinfo(all);
    return st;
}

int tcp_accept(int listener) {
    return without_delay(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void tcp_name_peer(int fd, char name[TCP_NAME_BYTES]) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getpeername(fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, name, TCP_NAME_BYTES, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(name, TCP_NAME_BYTES, "an unknown place");
}

/* ---- connecting ---- */

/* A port in the range of those that the kernel gives to callers may be given to this very call,
 * which then reaches itself. */
static bool is_own_echo(int fd) {
    struct sockaddr_storage mine = {0}, theirs = {0};
    socklen_t n = sizeof mine, m = sizeof theirs;
    if (getsockname(fd, (struct sockaddr *)&mine, &n) != 0) return true;
    if (getpeername(fd, (struct sockaddr *)&theirs, &m) != 0) return true;
    return n == m && memcmp(&mine, &theirs, n) == 0;
}

static bool finish_connect(int fd, int64_t deadline_ns) {
    int why = 0;
    socklen_t n = sizeof why;
    if (errno != EINPROGRESS || !tcp_await(fd, POLLOUT, deadline_ns)) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) != 0) return false;
    errno = why;
    return why == 0;
}

static int connect_to(const struct addrinfo *a, int64_t deadline_ns) {
    int fd = new_socket(a);
    if (fd < 0) return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 && !finish_connect(fd, deadline_ns))
        return close_failed(fd);
    if (!is_own_echo(fd)) return fd;
    errno = ECONNREFUSED;
    return close_failed(fd);
}

int tcp_connect(tcp_place to, int64_t deadline_ns, const char **why) {
    struct addrinfo *all = resolve(to, why);
    int fd = -1;
    errno = EHOSTUNREACH;
    if (!all) return -1;
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        fd = connect_to(a, deadline_ns);
        if (fd < 0 && errno == EINTR) break;
    }
    int reason = errno;
    freeaddrinfo(all);
    errno = reason;
    if (fd < 0) *why = strerror(reason);
    return fd;
}
