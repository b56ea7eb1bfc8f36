/* Rank 0 receives the other ranks. Other programs may connect, too: until its greeting
 * (greeting.h) has ended, whatever connects is a guest.
 *
 * Rank 0 listens to all guests at once, so none delays another. It refuses a guest that sends no
 * greeting, has another token, runs another version, or claims a rank that does not exist or has
 * come already. The others are not affected. The log names the first few that are refused.
 *
 * There are GUESTS places. When all are taken, a new guest gets the place of one that was refused;
 * else of the one whose hello is awaited longest; else of one whose proof has been awaited for more
 * than PROOF_S; else it waits for a place. A real rank answers at once, so many guests can delay it
 * by fractions of a second only, and a rank that lost its place connects again. */
#include "comm/meet/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "comm/meet/frame.h"
#include "comm/meet/greeting.h"

enum { GUESTS = 256, GUESTS_A_ROUND = 64, REFUSALS_TOLD = 4, FULL_MS = 20 };
static const double PROOF_S = 0.2;
static const int64_t AT_ONCE =
    1; /* a deadline that is over: the buffer of a guest has room, or it is none */

typedef enum guest_state { GUEST_NONE, GUEST_REFUSED, GUEST_HELLO, GUEST_PROOF } guest_state;

typedef struct guest {
    guest_state state; /* what it owes */
    int fd;            /* -1: a free place */
    int64_t since_ns;
    size_t got; /* of hello, or of proof */
    unsigned char hello[GREETING_HELLO_BYTES], answer[GREETING_ANSWER_BYTES],
        proof[GREETING_PROOF_BYTES];
} guest;

typedef struct reception {
    const rendezvous_plan *plan;
    int *sockets; /* of the ranks that have come; -1: not yet */
    int listener, missing, refused;
    int64_t deadline_ns, notice_ns;
    bool full;           /* nobody is let in for a moment */
    bool short_of_files; /* somebody was not let in since this process may not open more */
    guest guests[GUESTS];
    struct pollfd *polls; /* listener, guests, ranks */
} reception;

/* ---- guests ---- */

static void drop(guest *g) {
    if (g->fd >= 0) close(g->fd);
    *g = (guest){.fd = -1};
}

/* The connection waits until the guest ends it: closed now, what was said might be lost. */
static void part(guest *g, const err *why) {
    frame_send_failure(g->fd, why, AT_ONCE);
    g->state = GUEST_REFUSED;
}

static void tell_refusal(reception *c, const guest *g, const err *why) {
    char from[TCP_NAME_BYTES];
    if (++c->refused > REFUSALS_TOLD) return;
    tcp_name_peer(g->fd, from);
    log_warn("rank 0 refuses a guest from %s: %s%s", from, why->message,
             c->refused == REFUSALS_TOLD ? "; more are refused in silence" : "");
}

static status check_claim(const reception *c, const greeting_claim *claim, err *e) {
    const rendezvous_plan *p = c->plan;
    if (strcmp(claim->version, p->version) != 0) {
        err_set(e, ST_USAGE, "rank %u is version %s of athanor, rank 0 version %s", claim->rank,
                claim->version, p->version);
        return err_hint(e, "all ranks run the same program");
    }
    if (claim->size != (uint32_t)p->size)
        err_set(e, ST_USAGE, "rank %u is one of %u ranks, but rank 0 one of %d", claim->rank,
                claim->size, p->size);
    else if (claim->rank == 0 || claim->rank >= claim->size)
        err_set(e, ST_USAGE, "there is no rank %u among the others of %u ranks", claim->rank,
                claim->size);
    else if (c->sockets[claim->rank] >= 0)
        err_set(e, ST_USAGE, "rank %u has come twice", claim->rank);
    else
        return ST_OK;
    return err_hint(e, "do two runs use port %d? Each needs a MASTER_PORT of its own", p->at.port);
}

/* It knows the token. */
static void admit(reception *c, guest *g) {
    err why = {0};
    greeting_claim claim = greeting_read(g->hello);
    if (check_claim(c, &claim, &why) != ST_OK) {
        tell_refusal(c, g, &why);
        part(g, &why);
        return;
    }
    if (frame_send(g->fd, ST_OK, NULL, 0, AT_ONCE)) {
        c->sockets[claim.rank] = g->fd;
        c->missing--;
        g->fd = -1;
    }
    drop(g);
}

/* A rank with another token leaves when it has seen that of rank 0. */
static void refuse_token(reception *c, guest *g) {
    err why = {0};
    greeting_claim claim = greeting_read(g->hello);
    err_set(&why, ST_USAGE, "it says it is rank %u of %u, but does not know the token of this run",
            claim.rank, claim.size);
    err_hint(&why, "all ranks of a run have the same ATHANOR_TOKEN");
    tell_refusal(c, g, &why);
    part(g, &why);
}

static void answer(reception *c, guest *g) {
    greeting_answer(g->answer, g->hello, c->plan->token);
    g->state = GUEST_PROOF;
    g->got = 0;
    if (!tcp_send(g->fd, g->answer, sizeof g->answer, AT_ONCE)) drop(g);
}

/* Reads what there is of what it owes. False: there is no more of it now. */
static bool hear_part(reception *c, guest *g, unsigned char *to, size_t bytes) {
    ssize_t n = recv(g->fd, to + g->got, bytes - g->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n > 0) g->got += (size_t)n;
    if (n > 0 && g->got == bytes) return true;
    if (n <= 0 && g->state == GUEST_PROOF) refuse_token(c, g);
    if (n <= 0 || (g->state == GUEST_HELLO && !greeting_begins(g->hello, g->got))) drop(g);
    return false;
}

static void hear(reception *c, guest *g) {
    char rest[256];
    if (g->state == GUEST_HELLO && hear_part(c, g, g->hello, sizeof g->hello)) {
        if (greeting_begins(g->hello, sizeof g->hello))
            answer(c, g);
        else
            drop(g);
    } else if (g->state == GUEST_PROOF && hear_part(c, g, g->proof, sizeof g->proof)) {
        if (greeting_is_proof(g->proof, g->answer, g->hello, c->plan->token))
            admit(c, g);
        else
            refuse_token(c, g);
    } else if (g->state == GUEST_REFUSED) {
        ssize_t n = recv(g->fd, rest, sizeof rest, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) drop(g);
    }
}

/* ---- who gets a place ---- */

/* In the order in which their places are taken; false: it keeps its place. */
static bool is_before(const guest *a, const guest *b) {
    if (a->state != b->state) return a->state < b->state;
    return a->since_ns < b->since_ns;
}

/* The place for a new guest, who may be in it still; NULL: there is none now. */
static guest *find_place(reception *c) {
    guest *best = &c->guests[0];
    for (int i = 1; i < GUESTS; i++)
        if (is_before(&c->guests[i], best)) best = &c->guests[i];
    return best->state == GUEST_PROOF && clock_since_s(best->since_ns) < PROOF_S ? NULL : best;
}

/* A rank says hello as it comes, so it is heard at once. */
static void let_in(reception *c) {
    for (int i = 0; i < GUESTS_A_ROUND && !c->full; i++) {
        guest *g = find_place(c);
        c->full = g == NULL;
        if (!g) return;
        int fd = tcp_accept(c->listener);
        if (fd < 0) { /* nobody, or this process has no more descriptors */
            c->full = errno == EMFILE || errno == ENFILE;
            c->short_of_files = c->short_of_files || c->full;
            return;
        }
        drop(g);
        *g = (guest){.state = GUEST_HELLO, .fd = fd, .since_ns = clock_now_ns()};
        hear(c, g);
    }
}

/* ---- waiting ---- */

static void list_missing(const reception *c, strbuf *out) {
    int n = c->plan->size;
    bool *missing = xcalloc((size_t)n, sizeof *missing);
    for (int i = 1; i < n; i++) missing[i] = c->sockets[i] < 0;
    rank_list_put(out, missing, n);
    free(missing);
}

static status name_missing(const reception *c, err *e) {
    const rendezvous_plan *p = c->plan;
    strbuf who = {0};
    list_missing(c, &who);
    err_set(e, ST_RANK, "%s of %d %s not come to %s, port %d, within %g s", who.data, p->size,
            c->missing == 1 ? "has" : "have", p->at.host, p->at.port, p->timeout_s);
    strbuf_free(&who);
    if (c->short_of_files)
        return err_hint(e, "rank 0 may not have more files open, and needs one for each rank: "
                           "raise its ulimit -n");
    return err_hint(e, "what they said may tell why; ATHANOR_TIMEOUT is how many seconds ranks "
                       "wait");
}

static void notice(reception *c) {
    if (c->notice_ns == 0 || clock_now_ns() < c->notice_ns) return;
    c->notice_ns = 0;
    strbuf who = {0};
    list_missing(c, &who);
    log_info("rank 0 waits for %s at %s, port %d", who.data, c->plan->at.host, c->plan->at.port);
    strbuf_free(&who);
}

static int patience_ms(const reception *c) {
    int64_t until = c->deadline_ns;
    if (c->notice_ns && (!until || c->notice_ns < until)) until = c->notice_ns;
    int ms = tcp_left_ms(until);
    return c->full && (ms < 0 || ms > FULL_MS) ? FULL_MS : ms;
}

/* Until something happens, people are to be told what is waited for, or it is too late. */
static status wait_for_somebody(reception *c, err *e) {
    int size = c->plan->size;
    struct pollfd *p = c->polls;
    p[0] = (struct pollfd){.fd = c->full ? -1 : c->listener, .events = POLLIN};
    for (int i = 0; i < GUESTS; i++)
        p[1 + i] = (struct pollfd){.fd = c->guests[i].fd, .events = POLLIN};
    for (int i = 0; i < size; i++) /* their blobs may have come already: only their end counts */
        p[1 + GUESTS + i] = (struct pollfd){.fd = c->sockets[i], .events = POLLRDHUP};
    int n = file_poll(p, 1 + GUESTS + size, patience_ms(c));
    if (n < 0) return rendezvous_name_loss(c->plan, 0, e);
    c->full = false;
    notice(c);
    bool over = c->deadline_ns != 0 && clock_now_ns() >= c->deadline_ns;
    return over ? name_missing(c, e) : ST_OK;
}

static status receive_some(reception *c, err *e) {
    TRY(wait_for_somebody(c, e));
    for (int i = 1; i < c->plan->size; i++) {
        errno = ECONNRESET;
        if (c->polls[1 + GUESTS + i].revents) return rendezvous_name_loss(c->plan, i, e);
    }
    for (int i = 0; i < GUESTS; i++)
        if (c->polls[1 + i].revents) hear(c, &c->guests[i]);
    if (c->polls[0].revents) let_in(c);
    return ST_OK;
}

status reception_hold(const rendezvous_plan *plan, int64_t deadline_ns, int64_t notice_ns,
                      int *sockets, err *e) {
    int listener;
    TRY(tcp_listen(plan->at, &listener, e));
    reception *c = xcalloc(1, sizeof *c);
    *c = (reception){.plan = plan,
                     .sockets = sockets,
                     .listener = listener,
                     .missing = plan->size - 1,
                     .deadline_ns = deadline_ns,
                     .notice_ns = notice_ns};
    c->polls = xcalloc((size_t)(1 + GUESTS + plan->size), sizeof *c->polls);
    for (int i = 0; i < GUESTS; i++) c->guests[i].fd = -1;
    status st = ST_OK;
    while (st == ST_OK && c->missing > 0) st = receive_some(c, e);
    if (c->refused > REFUSALS_TOLD) log_warn("rank 0 has refused %d guests in all", c->refused);
    for (int i = 0; i < GUESTS; i++) drop(&c->guests[i]);
    close(listener);
    free(c->polls);
    free(c);
    return st;
}
