/* Frames, then how one rank comes, then how rank 0 receives, then the exchange. */
#include "comm/meet/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    VERSION_BYTES = 24,
    HELLO_BYTES = 8 + VERSION_BYTES + 4 + 4, /* magic, version, world, rank */
    FRAME_BYTES = 4 + 4 + 4,                 /* magic, status, length */
    MOST_WORDS = 1536,                       /* of a failure */
    GUESTS = 64                              /* that have not said hello yet */
};
static const char HELLO_MAGIC[8] = "ATHRANK1";  /* no NUL; the digit is the format's version */
static const uint32_t FRAME_MAGIC = 0x31465441; /* "ATF1" */
static const double PARTING_S = 3;              /* for the last words */
static const double ANSWER_S = 10;              /* rank 0 welcomes at once */
static const double SILENCE_S = 5;              /* then people are told what is waited for */
static const double PATIENCE_S = 5; /* others wait longer, to hear from rank 0 who is missing */

struct rendezvous {
    rendezvous_plan plan;
    int *sockets; /* [size]; -1: none */
    int64_t deadline_ns;
    int64_t notice_ns; /* when to tell; 0: it is told */
};

/* ---- numbers and times ---- */

static void put_u32(unsigned char *to, uint32_t x) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(x >> 8 * i);
}

static uint32_t get_u32(const unsigned char *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static int64_t in_seconds(double s) {
    return clock_now_ns() + (int64_t)(s * 1e9);
}

static int64_t earlier(int64_t a_ns, int64_t b_ns) {
    if (a_ns == 0 || b_ns == 0) return a_ns + b_ns;
    return a_ns < b_ns ? a_ns : b_ns;
}

static bool is_over(const rendezvous *r) {
    return r->deadline_ns != 0 && clock_now_ns() >= r->deadline_ns;
}

/* Whether people should hear now that somebody is waited for. */
static bool is_notice_due(rendezvous *r) {
    if (r->notice_ns == 0 || clock_now_ns() < r->notice_ns) return false;
    r->notice_ns = 0;
    return true;
}

int rank_list_put(strbuf *out, const bool *flags, int n) {
    int count = 0, last = -2;
    for (int i = 0; i < n; i++) count += flags[i];
    strbuf_puts(out, count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < n; i++) {
        if (!flags[i] || (i > 0 && flags[i - 1])) continue;
        int end = i;
        while (end + 1 < n && flags[end + 1]) end++;
        strbuf_printf(out, end > i ? "%s%d-%d" : "%s%d", last < 0 ? "" : ", ", i, end);
        last = end;
    }
    return count;
}

/* ---- frames ---- */

static status name_loss(const rendezvous *r, int rank, err *e) {
    if (errno == EINTR) return err_set(e, ST_STOPPED, "a signal came while the ranks met");
    if (errno == ETIMEDOUT)
        err_set(e, ST_RANK, "rank %d has said nothing for %g s while the ranks met", rank,
                r->plan.timeout_s);
    else
        err_set(e, ST_RANK, "rank %d has left while the ranks met: %s", rank, strerror(errno));
    return err_hint(e, "what that rank said may tell why");
}

static bool send_frame(int fd, status st, const void *data, size_t bytes, int64_t deadline_ns) {
    strbuf frame = {0};
    unsigned char *head = (unsigned char *)strbuf_extend(&frame, FRAME_BYTES);
    put_u32(head, FRAME_MAGIC);
    put_u32(head + 4, (uint32_t)st);
    put_u32(head + 8, (uint32_t)bytes);
    strbuf_append(&frame, data, bytes);
    bool sent = tcp_send(fd, frame.data, frame.len, deadline_ns);
    strbuf_free(&frame);
    return sent;
}

/* Message, hint and where of an err, each with its NUL; the last that this connection sends. */
static void send_failure(int fd, const err *why) {
    strbuf words = {0};
    const char *const parts[] = {why->message, why->hint, why->where};
    for (int i = 0; i < 3; i++) {
        strbuf_append(&words, parts[i], strnlen(parts[i], MOST_WORDS / 3 - 1));
        strbuf_putc(&words, '\0');
    }
    (void)send_frame(fd, why->code, words.data, words.len, in_seconds(PARTING_S));
    shutdown(fd, SHUT_WR);
    strbuf_free(&words);
}

/* A connection that is closed before all that came was read is reset, and takes what was sent with
 * it: so the other one closes first. */
static void await_parting(int fd, int64_t deadline_ns) {
    char rest[256];
    while (clock_now_ns() < deadline_ns && tcp_receive(fd, rest, sizeof rest, deadline_ns))
        continue;
}

static status take_failure(int fd, uint32_t code, uint32_t bytes, int64_t deadline_ns, err *e) {
    char words[MOST_WORDS + 3] = {0}; /* NULs behind whatever comes */
    if (bytes > MOST_WORDS || !tcp_receive(fd, words, bytes, deadline_ns)) bytes = 0;
    const char *hint = words + strlen(words) + 1, *where = hint + strlen(hint) + 1;
    status st = code == ST_USAGE || code == ST_STOPPED ? (status)code : ST_RANK;
    err_set(e, st, "%s", bytes ? words : "the meeting of the ranks has failed");
    if (*hint) err_hint(e, "%s", hint);
    if (*where) err_where(e, "%s", where);
    return st;
}

/* The frame of a rank, which must have `bytes`. */
static status receive_frame(const rendezvous *r, int rank, void *data, size_t bytes, err *e) {
    unsigned char head[FRAME_BYTES];
    int fd = r->sockets[rank];
    if (!tcp_receive(fd, head, sizeof head, r->deadline_ns)) return name_loss(r, rank, e);
    uint32_t code = get_u32(head + 4), length = get_u32(head + 8);
    if (get_u32(head) != FRAME_MAGIC || (code == ST_OK && length != bytes)) {
        err_set(e, ST_RANK, "rank %d speaks another language while the ranks meet", rank);
        return err_hint(e, "all ranks run the same program");
    }
    if (code != ST_OK) return take_failure(fd, code, length, r->deadline_ns, e);
    return tcp_receive(fd, data, bytes, r->deadline_ns) ? ST_OK : name_loss(r, rank, e);
}

/* ---- a rank comes to rank 0 ---- */

static void make_hello(const rendezvous *r, unsigned char hello[HELLO_BYTES]) {
    memset(hello, 0, HELLO_BYTES);
    memcpy(hello, HELLO_MAGIC, sizeof HELLO_MAGIC);
    memcpy(hello + 8, r->plan.version, strnlen(r->plan.version, VERSION_BYTES - 1));
    put_u32(hello + 8 + VERSION_BYTES, (uint32_t)r->plan.size);
    put_u32(hello + 12 + VERSION_BYTES, (uint32_t)r->plan.rank);
}

/* One attempt. ST_OK without a socket: not yet, for the reason in *why. */
static status come_once(rendezvous *r, const char **why, err *e) {
    unsigned char hello[HELLO_BYTES], head[FRAME_BYTES];
    int64_t deadline = earlier(r->deadline_ns, in_seconds(ANSWER_S));
    int fd = tcp_connect(r->plan.at, deadline, why);
    if (fd < 0) return errno == EINTR ? name_loss(r, 0, e) : ST_OK;
    make_hello(r, hello);
    bool heard =
        tcp_send(fd, hello, sizeof hello, deadline) && tcp_receive(fd, head, sizeof head, deadline);
    status st = ST_OK;
    if (!heard && errno == EINTR) st = name_loss(r, 0, e);
    if (!heard || get_u32(head) != FRAME_MAGIC)
        *why = "what listens there does not answer as rank 0 does";
    else if (get_u32(head + 4) != ST_OK)
        st = take_failure(fd, get_u32(head + 4), get_u32(head + 8), deadline, e);
    else
        r->sockets[0] = fd;
    if (r->sockets[0] < 0) close(fd);
    return st;
}

static status name_absence(const rendezvous *r, const char *why, err *e) {
    tcp_place at = r->plan.at;
    err_set(e, ST_RANK, "rank %d has not found rank 0 at %s, port %d, for %g s: %s", r->plan.rank,
            at.host, at.port, r->plan.timeout_s, why);
    return err_hint(e, "MASTER_ADDR and MASTER_PORT say where rank 0 is; has it been started? "
                       "ATHANOR_TIMEOUT is how many seconds ranks wait");
}

static status come(rendezvous *r, err *e) {
    const char *why = "";
    int nap_ms = 20;
    for (;;) {
        TRY(come_once(r, &why, e));
        if (r->sockets[0] >= 0) return ST_OK;
        if (is_over(r)) return name_absence(r, why, e);
        if (is_notice_due(r))
            log_info("rank %d looks for rank 0 at %s, port %d: %s", r->plan.rank, r->plan.at.host,
                     r->plan.at.port, why);
        tcp_await(-1, 0, earlier(r->deadline_ns, in_seconds(nap_ms * 1e-3)));
        if (errno == EINTR) return name_loss(r, 0, e);
        if (nap_ms < 500) nap_ms += nap_ms / 2;
    }
}

/* ---- rank 0 receives ---- */

typedef struct guest {
    int fd; /* -1: a free place */
    size_t got;
    unsigned char hello[HELLO_BYTES];
} guest;

typedef struct reception {
    rendezvous *r;
    int listener, missing, next; /* next: the place that a new guest takes */
    guest guests[GUESTS];
    struct pollfd *polls; /* listener, guests, ranks */
} reception;

static void drop(guest *g) {
    if (g->fd >= 0) close(g->fd);
    g->fd = -1;
}

/* The place of the one that has been silent longest, when all are taken. */
static void let_in(reception *c) {
    int fd = tcp_accept(c->listener);
    if (fd < 0) return;
    guest *g = &c->guests[c->next];
    c->next = (c->next + 1) % GUESTS;
    drop(g);
    *g = (guest){.fd = fd};
}

static status name_misfit(const rendezvous *r, const guest *g, err *e) {
    int size = (int)get_u32(g->hello + 8 + VERSION_BYTES);
    int rank = (int)get_u32(g->hello + 12 + VERSION_BYTES);
    char version[VERSION_BYTES + 1] = {0};
    memcpy(version, g->hello + 8, VERSION_BYTES);
    if (strcmp(version, r->plan.version) != 0) {
        err_set(e, ST_USAGE, "rank %d is version %s of athanor, rank 0 version %s", rank, version,
                r->plan.version);
        return err_hint(e, "all ranks run the same program");
    }
    if (size != r->plan.size)
        err_set(e, ST_USAGE, "rank %d is one of %d ranks, but rank 0 one of %d", rank, size,
                r->plan.size);
    else if (rank <= 0 || rank >= size)
        err_set(e, ST_USAGE, "there is no rank %d among the others of %d ranks", rank, size);
    else if (r->sockets[rank] >= 0)
        err_set(e, ST_USAGE, "rank %d has come twice", rank);
    else
        return ST_OK;
    return err_hint(e, "do two runs use port %d? Each needs a MASTER_PORT of its own",
                    r->plan.at.port);
}

static status admit(reception *c, guest *g, err *e) {
    if (name_misfit(c->r, g, e) != ST_OK) {
        send_failure(g->fd, e);
        await_parting(g->fd, in_seconds(PARTING_S));
        return e->code;
    }
    if (send_frame(g->fd, ST_OK, NULL, 0, in_seconds(PARTING_S))) {
        c->r->sockets[get_u32(g->hello + 12 + VERSION_BYTES)] = g->fd;
        c->missing--;
        g->fd = -1;
    }
    drop(g);
    return ST_OK;
}

static status hear(reception *c, guest *g, err *e) {
    ssize_t n = recv(g->fd, g->hello + g->got, HELLO_BYTES - g->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ST_OK;
    if (n > 0) g->got += (size_t)n;
    size_t seen = g->got < sizeof HELLO_MAGIC ? g->got : sizeof HELLO_MAGIC;
    if (n <= 0 || memcmp(g->hello, HELLO_MAGIC, seen) != 0)
        drop(g);
    else if (g->got == HELLO_BYTES)
        return admit(c, g, e);
    return ST_OK;
}

static void list_missing(const reception *c, strbuf *out) {
    int n = c->r->plan.size;
    bool *missing = xcalloc((size_t)n, sizeof *missing);
    for (int i = 1; i < n; i++) missing[i] = c->r->sockets[i] < 0;
    rank_list_put(out, missing, n);
    free(missing);
}

static status name_missing(const reception *c, err *e) {
    const rendezvous_plan *p = &c->r->plan;
    strbuf who = {0};
    list_missing(c, &who);
    err_set(e, ST_RANK, "%s of %d %s not come to %s, port %d, within %g s", who.data, p->size,
            c->missing == 1 ? "has" : "have", p->at.host, p->at.port, p->timeout_s);
    strbuf_free(&who);
    return err_hint(e, "what they said may tell why; ATHANOR_TIMEOUT is how many seconds ranks "
                       "wait");
}

/* Until something happens, people are to be told what is waited for, or it is too late. */
static status wait_for_somebody(reception *c, err *e) {
    rendezvous *r = c->r;
    int size = r->plan.size;
    struct pollfd *p = c->polls;
    p[0] = (struct pollfd){.fd = c->listener, .events = POLLIN};
    for (int i = 0; i < GUESTS; i++)
        p[1 + i] = (struct pollfd){.fd = c->guests[i].fd, .events = POLLIN};
    for (int i = 0; i < size; i++) /* their blobs may have come already: only their end counts */
        p[1 + GUESTS + i] = (struct pollfd){.fd = r->sockets[i], .events = POLLRDHUP};
    int n =
        poll(p, (nfds_t)(1 + GUESTS + size), tcp_left_ms(earlier(r->deadline_ns, r->notice_ns)));
    if (n < 0) return name_loss(r, 0, e);
    if (is_notice_due(r)) {
        strbuf who = {0};
        list_missing(c, &who);
        log_info("rank 0 waits for %s at %s, port %d", who.data, r->plan.at.host, r->plan.at.port);
        strbuf_free(&who);
    }
    return is_over(r) ? name_missing(c, e) : ST_OK;
}

static status receive_some(reception *c, err *e) {
    TRY(wait_for_somebody(c, e));
    for (int i = 1; i < c->r->plan.size; i++) {
        errno = ECONNRESET;
        if (c->polls[1 + GUESTS + i].revents) return name_loss(c->r, i, e);
    }
    for (int i = 0; i < GUESTS; i++)
        if (c->polls[1 + i].revents) TRY(hear(c, &c->guests[i], e));
    if (c->polls[0].revents) let_in(c);
    return ST_OK;
}

static status receive_all(rendezvous *r, err *e) {
    reception c = {.r = r, .missing = r->plan.size - 1};
    TRY(tcp_listen(r->plan.at, &c.listener, e));
    c.polls = xcalloc((size_t)(1 + GUESTS + r->plan.size), sizeof *c.polls);
    for (int i = 0; i < GUESTS; i++) c.guests[i].fd = -1;
    status st = ST_OK;
    while (st == ST_OK && c.missing > 0) st = receive_some(&c, e);
    for (int i = 0; i < GUESTS; i++) drop(&c.guests[i]);
    close(c.listener);
    free(c.polls);
    return st;
}

/* ---- the exchange ---- */

/* Rank 0 has a reason to end the meeting: the others hear it. */
static void tell_failure(const rendezvous *r, const err *why) {
    if (r->plan.rank != 0) return;
    for (int i = 1; i < r->plan.size; i++)
        if (r->sockets[i] >= 0) send_failure(r->sockets[i], why);
    int64_t deadline_ns = in_seconds(PARTING_S);
    for (int i = 1; i < r->plan.size; i++)
        if (r->sockets[i] >= 0) await_parting(r->sockets[i], deadline_ns);
}

static status gather(const rendezvous *r, char *out, size_t bytes, err *e) {
    for (int i = 1; i < r->plan.size; i++)
        TRY(receive_frame(r, i, out + (size_t)i * bytes, bytes, e));
    for (int i = 1; i < r->plan.size; i++)
        if (!send_frame(r->sockets[i], ST_OK, out, bytes * (size_t)r->plan.size, r->deadline_ns))
            return name_loss(r, i, e);
    return ST_OK;
}

static void start_waiting(rendezvous *r, double extra_s) {
    r->deadline_ns = r->plan.timeout_s > 0 ? in_seconds(r->plan.timeout_s + extra_s) : 0;
}

status rendezvous_exchange(rendezvous *r, const void *in, void *out, size_t bytes, err *e) {
    CHECK(bytes <= RENDEZVOUS_MOST_BYTES, "a blob of %zu bytes", bytes);
    start_waiting(r, r->plan.rank == 0 ? 0 : PATIENCE_S);
    err why = {0};
    status st = ST_OK;
    if (r->plan.rank == 0) {
        memcpy(out, in, bytes);
        st = gather(r, out, bytes, &why);
        if (st != ST_OK) tell_failure(r, &why);
    } else if (!send_frame(r->sockets[0], ST_OK, in, bytes, r->deadline_ns) && errno == EINTR) {
        st = name_loss(r, 0, &why);
    } else { /* rank 0 may have said why it no longer listens */
        st = receive_frame(r, 0, out, bytes * (size_t)r->plan.size, &why);
    }
    if (st != ST_OK && e) *e = why;
    return st;
}

status rendezvous_open(rendezvous **out, const rendezvous_plan *plan, err *e) {
    CHECK(plan->size >= 2 && plan->rank >= 0 && plan->rank < plan->size, "rank %d of %d",
          plan->rank, plan->size);
    rendezvous *r = xcalloc(1, sizeof *r);
    err why = {0};
    r->plan = *plan;
    r->sockets = xcalloc((size_t)plan->size, sizeof *r->sockets);
    for (int i = 0; i < plan->size; i++) r->sockets[i] = -1;
    start_waiting(r, 0);
    r->notice_ns = in_seconds(SILENCE_S);
    status st = plan->rank == 0 ? receive_all(r, &why) : come(r, &why);
    *out = st == ST_OK ? r : NULL;
    if (st == ST_OK) return ST_OK;
    tell_failure(r, &why);
    rendezvous_close(r);
    if (e) *e = why;
    return st;
}

int rendezvous_socket(const rendezvous *r, int rank) {
    return r->sockets[rank];
}

void rendezvous_close(rendezvous *r) {
    if (!r) return;
    for (int i = 0; i < r->plan.size; i++)
        if (r->sockets[i] >= 0) close(r->sockets[i]);
    free(r->sockets);
    free(r);
}
