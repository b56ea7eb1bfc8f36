/* Connections: their number, and how long they may take for what they do. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http/server_int.h"

enum { MOST_LINGERING = 256 };

/* ---- lists ---- */

static void unlink_from(connection_list *l, connection *c) {
    *(c->previous ? &c->previous->next : &l->first) = c->next;
    *(c->next ? &c->next->previous : &l->last) = c->previous;
    c->next = c->previous = NULL;
}

static void append_to(connection_list *l, connection *c) {
    c->previous = l->last;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
}

void connection_enter(http_server *s, connection *c, phase p) {
    unlink_from(&s->phases[c->phase], c);
    if (c->half_closed && (p == PHASE_FIRST || p == PHASE_IDLE || p == PHASE_BODY)) p = PHASE_HALF;
    c->phase = p;
    c->since_ns = clock_now_ns();
    append_to(&s->phases[p], c);
}

static connection *add(http_server *s, phase p, int fd) {
    connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->phase = p;
    c->fd = fd;
    c->since_ns = clock_now_ns();
    append_to(&s->phases[p], c);
    return c;
}

static void count_open(http_server *s, int change) {
    s->n_connections += change;
    pthread_mutex_lock(&s->lock);
    s->counters.connections = s->n_connections;
    s->counters.accepted += change > 0;
    pthread_mutex_unlock(&s->lock);
}

static void count_one(http_server *s, uint64_t *counter) {
    pthread_mutex_lock(&s->lock);
    ++*counter;
    pthread_mutex_unlock(&s->lock);
}

/* ---- places ---- */

void connection_shut(connection *c) {
    shutdown(c->fd, SHUT_RDWR);
}

/* libmicrohttpd will find it closed. */
static void cut_off(http_server *s, connection *c) {
    connection_enter(s, c, PHASE_SHUT);
    connection_shut(c);
}

/* Of those that wait for a request, the one that has waited longest makes place. */
static void evict_one(http_server *s) {
    connection *first = s->phases[PHASE_FIRST].first, *idle = s->phases[PHASE_IDLE].first;
    connection *c = !first || (idle && idle->since_ns < first->since_ns) ? idle : first;
    if (!c) return;
    count_one(s, &s->counters.evicted);
    cut_off(s, c);
}

static int fd_of(struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* libmicrohttpd does not see the end of a connection to which it writes nothing; nor one that comes
 * together with the last bytes, as it is told of changes only. */
static void watch(http_server *s, connection *c, int operation) {
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c};
    epoll_ctl(s->poll_fd, operation, c->fd, &ev);
}

void connection_notify(void *server, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code) {
    http_server *s = server;
    connection *c = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        if (s->n_connections >= s->options.connections) evict_one(s);
        c = add(s, PHASE_FIRST, fd_of(mhd));
        if (!c) return;
        c->mhd = mhd;
        *socket_context = c;
        watch(s, c, EPOLL_CTL_ADD);
        count_open(s, 1);
    } else if (c) {
        watch(s, c, EPOLL_CTL_DEL);
        unlink_from(&s->phases[c->phase], c);
        count_open(s, -1);
        free(c);
        *socket_context = NULL;
    }
}

/* ---- the end of a client ---- */

static void end_lingering(http_server *s, connection *c) {
    unlink_from(&s->phases[PHASE_LINGER], c);
    epoll_ctl(s->poll_fd, EPOLL_CTL_DEL, c->fd, NULL); /* the first descriptor may still be open */
    close(c->fd);
    s->n_lingering--;
    free(c);
}

void connection_linger(http_server *s, const connection *c) {
    if (s->n_lingering >= MOST_LINGERING) return;
    int fd = dup(c->fd);
    connection *copy = fd < 0 ? NULL : add(s, PHASE_LINGER, fd);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = copy};
    if (!copy) {
        if (fd >= 0) close(fd);
        return;
    }
    s->n_lingering++;
    shutdown(fd, SHUT_WR);
    if (epoll_ctl(s->poll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) end_lingering(s, copy);
}

/* What has come before the end may be a whole request, which is answered if that can be done at once. */
static void half_close(http_server *s, connection *c) {
    c->half_closed = true;
    if (c->phase == PHASE_ANSWER) {
        reply_set_gone(c->reply);
        c->reply->suspended ? call_resume(c->reply) : connection_shut(c);
    } else {
        connection_enter(s, c, c->phase);
    }
}

void connection_event(http_server *s, connection *c) {
    if (c->mhd)
        half_close(s, c);
    else if (recv(c->fd, NULL, 1 << 20, MSG_TRUNC | MSG_DONTWAIT) <= 0) /* not even copied */
        end_lingering(s, c);
}

/* ---- time ---- */

static void expire(http_server *s, connection *c) {
    if (c->phase == PHASE_LINGER) {
        end_lingering(s, c);
        return;
    }
    if (c->phase != PHASE_HALF) count_one(s, &s->counters.timed_out);
    if (c->phase == PHASE_BODY) call_cut(c, 408, "the body of the request did not come in time");
    cut_off(s, c);
}

void connection_refuse_bodies(http_server *s) {
    for (connection *c; (c = s->phases[PHASE_BODY].first) != NULL;) {
        call_cut(c, 503, "the server is stopping");
        cut_off(s, c);
    }
}

int64_t connection_expire(http_server *s) {
    int64_t now = clock_now_ns(), next = -1;
    for (int p = 0; p < PHASES; p++) {
        if (s->limit_ns[p] == 0) continue;
        connection *c;
        while ((c = s->phases[p].first) && now - c->since_ns >= s->limit_ns[p]) expire(s, c);
        if (!c) continue;
        int64_t left = c->since_ns + s->limit_ns[p] - now;
        if (next < 0 || left < next) next = left;
    }
    return next;
}

void connection_end_lingering(http_server *s) {
    while (s->phases[PHASE_LINGER].first) end_lingering(s, s->phases[PHASE_LINGER].first);
}

void connection_end_all(http_server *s) {
    for (int p = 0; p < PHASES; p++)
        for (connection *c = s->phases[p].first; c; c = c->next) {
            if (!c->reply) continue;
            reply_set_gone(c->reply);
            call_resume(c->reply);
        }
}
