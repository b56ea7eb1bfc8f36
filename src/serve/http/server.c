/* The server: its socket, its loop, its end. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "serve/http/server_int.h"

enum {
    CONNECTION_POOL = 16 << 10, /* of libmicrohttpd: headers and what is read of a body at once */
    SPARE_CONNECTIONS = 64,     /* until those that had to make place are gone */
    OTHER_FILES = 256,          /* that the program may have open beside connections */
    EVENTS = 64,
};

/* ---- the socket ---- */

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
    uint32_t four = ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);
    return a->sa_family == AF_INET && four >> 24 == 127;
}

static status check_keys(const http_server *s, const char *host, bool loopback, err *e) {
    for (int i = 0; i < s->options.n_keys; i++)
        if (!*s->options.keys[i]) return err_set(e, ST_USAGE, "an API key is empty");
    if (loopback || s->options.n_keys > 0) return ST_OK;
    err_set(e, ST_USAGE, "%s can be reached from other machines, and there is no API key", host);
    return err_hint(e, "give --api-key-file FILE, or ATHANOR_API_KEY in the environment");
}

static status bind_to(http_server *s, const struct addrinfo *a, const char *host, err *e) {
    int on = 1;
    s->listener = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listener < 0) return err_errno(e, host, "cannot make a socket");
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s->listener, a->ai_addr, a->ai_addrlen) == 0 && listen(s->listener, 1024) == 0)
        return ST_OK;
    bool taken = errno == EADDRINUSE;
    err_errno(e, host, "cannot listen on %s port %d", host, s->options.port);
    e->code = ST_USAGE;
    return taken ? err_hint(e, "another program has the port: --port 0 takes a free one")
                 : ST_USAGE;
}

static void name_url(http_server *s, const char *host) {
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    char name[256], port[8];
    getsockname(s->listener, (struct sockaddr *)&at, &n);
    if (getnameinfo((struct sockaddr *)&at, n, name, sizeof name, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(name, sizeof name, "%s", host);
        snprintf(port, sizeof port, "%d", s->options.port);
    }
    s->port = atoi(port);
    if (strcmp(name, "0.0.0.0") == 0) strcpy(name, "127.0.0.1");
    if (strcmp(name, "::") == 0) strcpy(name, "::1");
    snprintf(s->url, sizeof s->url, strchr(name, ':') ? "http://[%s]:%s" : "http://%s:%s", name,
             port);
}

static status listen_on(http_server *s, err *e) {
    const char *host = s->options.host ? s->options.host : "127.0.0.1";
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", s->options.port);
    int failed = getaddrinfo(host, port, &want, &found);
    if (failed)
        return err_at(e, ST_USAGE, "--host", "%s is no address of this machine: %s", host,
                      gai_strerror(failed));
    bool loopback = is_loopback(found->ai_addr);
    status st = check_keys(s, host, loopback, e);
    if (st == ST_OK) st = bind_to(s, found, host, e);
    freeaddrinfo(found);
    if (st != ST_OK) return st;
    guard_init(&s->guard, &s->options, loopback);
    name_url(s, host);
    return ST_OK;
}

/* ---- its parts ---- */

static double default_s(double given, double otherwise) {
    return given > 0 ? given : otherwise;
}

static void set_limits(http_server *s) {
    http_options *o = &s->options;
    if (o->connections == 0) o->connections = 4096;
    if (o->per_address == 0) o->per_address = 256;
    if (o->body_bytes == 0) o->body_bytes = (size_t)16 << 20;
    if (o->bodies_bytes == 0) o->bodies_bytes = (size_t)128 << 20;
    if (o->unread_bytes == 0) o->unread_bytes = (size_t)1 << 20;
    const double seconds[PHASES] = {
        [PHASE_FIRST] = default_s(o->header_s, 10),
        [PHASE_IDLE] = default_s(o->idle_s, 60),
        [PHASE_BODY] = default_s(o->body_s, 60),
        [PHASE_WRITE] = default_s(o->write_s, 60),
        [PHASE_HALF] = 1,
        [PHASE_LINGER] = 2,
    };
    for (int p = 0; p < PHASES; p++) s->limit_ns[p] = (int64_t)(seconds[p] * 1e9);
}

/* As many open files as there may be connections, or as many connections as there may be open files. */
static void raise_files(http_server *s) {
    struct rlimit l;
    rlim_t want = (rlim_t)s->options.connections + SPARE_CONNECTIONS + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur >= want) return;
    l.rlim_cur = l.rlim_max < want ? l.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &l);
    int most = (int)l.rlim_cur - SPARE_CONNECTIONS - OTHER_FILES;
    if (most < s->options.connections) s->options.connections = most > 16 ? most : 16;
}

/* Paths are compared as they were sent. */
static size_t keep_escapes(void *unused, struct MHD_Connection *mhd, char *text) {
    (void)unused;
    (void)mhd;
    return strlen(text);
}

static status start_daemon(http_server *s, err *e) {
    const http_options *o = &s->options;
    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, call_access, s,
        MHD_OPTION_LISTEN_SOCKET, s->listener, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_POOL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(o->connections + SPARE_CONNECTIONS), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        s->guard.loopback ? 0u : (unsigned)o->per_address, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        connection_notify, s, MHD_OPTION_NOTIFY_COMPLETED, call_completed, s, MHD_OPTION_END);
    if (!s->daemon) return err_set(e, ST_FAILED, "cannot start the HTTP server");
    s->listener = -1; /* the daemon's now */
    return ST_OK;
}

static status start_polling(http_server *s, err *e) {
    s->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &s->waker};
    struct epoll_event events = {.events = EPOLLIN, .data.ptr = &s->daemon_events};
    if (s->poll_fd < 0 || s->wake_fd < 0 ||
        epoll_ctl(s->poll_fd, EPOLL_CTL_ADD, s->wake_fd, &wake) != 0)
        return err_errno(e, NULL, "cannot wait for connections");
    TRY(start_daemon(s, e));
    int fd = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    if (epoll_ctl(s->poll_fd, EPOLL_CTL_ADD, fd, &events) != 0)
        return err_errno(e, NULL, "cannot wait for connections");
    return ST_OK;
}

status http_server_open(http_server **out, const http_options *options, const http_route *routes,
                        err *e) {
    http_server *s = xcalloc(1, sizeof *s);
    *out = NULL;
    s->options = *options;
    s->routes = routes;
    s->listener = s->poll_fd = s->wake_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    set_limits(s);
    raise_files(s);
    status st = guard_check(&s->options, e);
    if (st == ST_OK) st = listen_on(s, e);
    if (st == ST_OK) st = start_polling(s, e);
    if (st == ST_OK)
        *out = s;
    else
        http_server_close(s);
    return st;
}

int http_server_port(const http_server *s) {
    return s->port;
}

const char *http_server_url(const http_server *s) {
    return s->url;
}

/* ---- the loop ---- */

static void refresh_replies(http_server *s) {
    for (http_reply *r; (r = reply_pop_ready(s)) != NULL;) {
        call_refresh(r);
        reply_release(r);
    }
}

static bool is_done(http_server *s) {
    int stops = atomic_load(&s->stops);
    pthread_mutex_lock(&s->lock);
    bool idle = s->n_replies == 0;
    pthread_mutex_unlock(&s->lock);
    return stops > 1 || (stops == 1 && idle);
}

/* Milliseconds until there is something to do without an event; -1: never. */
static int next_timeout(http_server *s) {
    MHD_UNSIGNED_LONG_LONG ms;
    int64_t ns = connection_expire(s);
    if (s->look_again) return 0;
    int64_t wait = ns < 0 ? -1 : ns / 1000000 + 1;
    if (MHD_get_timeout(s->daemon, &ms) == MHD_YES && (wait < 0 || (int64_t)ms < wait))
        wait = (int64_t)ms;
    return wait > 60000 ? 60000 : (int)wait;
}

static status wait_for_events(http_server *s, err *e) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(s->poll_fd, events, EVENTS, next_timeout(s));
    if (n < 0 && errno != EINTR) return err_errno(e, NULL, "cannot wait for connections");
    for (int i = 0; i < n; i++) {
        connection *c = events[i].data.ptr;
        eventfd_t wakes;
        if (c == &s->waker)
            eventfd_read(s->wake_fd, &wakes);
        else if (c != &s->daemon_events)
            connection_event(s, c);
    }
    return ST_OK;
}

/* Once: what is not a whole request yet need not be waited for. */
static void begin_stop(http_server *s) {
    if (s->stopping || atomic_load(&s->stops) == 0) return;
    s->stopping = true;
    connection_refuse_bodies(s);
}

static void stop_daemon(http_server *s) {
    connection_end_all(s);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    connection_end_lingering(s);
    s->daemon = NULL;
}

status http_server_run(http_server *s, err *e) {
    status st = ST_OK;
    while (st == ST_OK && !is_done(s)) {
        st = wait_for_events(s, e);
        refresh_replies(s);
        begin_stop(s);
        s->look_again = false;
        MHD_run(s->daemon);
    }
    stop_daemon(s);
    return st;
}

void http_server_stop(http_server *s) {
    int saved = errno;
    atomic_fetch_add(&s->stops, 1);
    eventfd_write(s->wake_fd, 1);
    errno = saved;
}

void http_server_close(http_server *s) {
    if (!s) return;
    stop_daemon(s);
    refresh_replies(s);
    CHECK(s->n_replies == 0, "%d replies were not ended", (int)s->n_replies);
    int fds[] = {s->listener, s->poll_fd, s->wake_fd};
    for (int i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0) close(fds[i]);
    guard_free(&s->guard);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void http_server_count(const http_server *s, http_counters *out) {
    pthread_mutex_t *lock = (pthread_mutex_t *)&s->lock;
    pthread_mutex_lock(lock);
    *out = s->counters;
    out->requests_now = s->n_replies;
    pthread_mutex_unlock(lock);
}
