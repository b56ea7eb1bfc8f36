/* How a rank comes to rank 0, then the exchange. How rank 0 receives the ranks: reception.c. */
#include "comm/meet/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/meet/frame.h"
#include "comm/meet/greeting.h"

static const double PARTING_S = 3;  /* for the last words */
static const double CONNECT_S = 1;  /* a crowd at the door may make the kernel forget a caller */
static const double ANSWER_S = 10;  /* rank 0 welcomes at once */
static const double SILENCE_S = 5;  /* then people are told what is waited for */
static const double PATIENCE_S = 5; /* others wait longer, to hear from rank 0 who is missing */

struct rendezvous {
    rendezvous_plan plan;
    int *sockets; /* [size]; -1: none */
    int64_t deadline_ns;
    int64_t notice_ns; /* when to tell; 0: it is told */
};

/* ---- numbers and times ---- */

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

/* ---- losses ---- */

status rendezvous_name_loss(const rendezvous_plan *plan, int rank, err *e) {
    if (errno == EINTR) return err_set(e, ST_STOPPED, "a signal came while the ranks met");
    if (errno == ETIMEDOUT)
        err_set(e, ST_RANK, "rank %d has said nothing for %g s while the ranks met", rank,
                plan->timeout_s);
    else
        err_set(e, ST_RANK, "rank %d has left while the ranks met: %s", rank, strerror(errno));
    return err_hint(e, "what that rank said may tell why");
}

/* A connection that is closed before all that came was read is reset, and takes what was sent with
 * it: so the other one closes first. */
static void await_parting(int fd, int64_t deadline_ns) {
    char rest[256];
    while (clock_now_ns() < deadline_ns && tcp_receive(fd, rest, sizeof rest, deadline_ns))
        continue;
}

/* The frame of a rank, which must have `bytes`. */
static status receive_frame(const rendezvous *r, int rank, void *data, size_t bytes, err *e) {
    unsigned char begin[FRAME_HEAD_BYTES];
    int fd = r->sockets[rank];
    if (!tcp_receive(fd, begin, sizeof begin, r->deadline_ns))
        return rendezvous_name_loss(&r->plan, rank, e);
    frame_head head = frame_read_head(begin);
    if (!head.good || (head.status == ST_OK && head.bytes != bytes)) {
        err_set(e, ST_RANK, "rank %d speaks another language while the ranks meet", rank);
        return err_hint(e, "all ranks run the same program");
    }
    if (head.status != ST_OK) return frame_take_failure(fd, head, r->deadline_ns, e);
    return tcp_receive(fd, data, bytes, r->deadline_ns) ? ST_OK
                                                        : rendezvous_name_loss(&r->plan, rank, e);
}

/* ---- a rank comes to rank 0 ---- */

/* Greets what listens at fd; NULL: it is rank 0 of this run, and *head is what it said. */
static const char *greet(const rendezvous *r, int fd, int64_t deadline_ns, frame_head *head) {
    static const char stranger[] = "what listens there does not answer as rank 0 does";
    unsigned char hello[GREETING_HELLO_BYTES], answer[GREETING_ANSWER_BYTES];
    unsigned char proof[GREETING_PROOF_BYTES], begin[FRAME_HEAD_BYTES];
    greeting_hello(hello, r->plan.version, r->plan.size, r->plan.rank);
    if (!tcp_send(fd, hello, sizeof hello, deadline_ns) ||
        !tcp_receive(fd, answer, sizeof answer, deadline_ns))
        return stranger;
    errno = 0;
    if (!greeting_begins(answer, sizeof answer)) return stranger;
    if (!greeting_is_answer(answer, hello, r->plan.token))
        return "what listens there does not know the token of this run (ATHANOR_TOKEN)";
    greeting_prove(proof, answer, hello, r->plan.token);
    if (!tcp_send(fd, proof, sizeof proof, deadline_ns) ||
        !tcp_receive(fd, begin, sizeof begin, deadline_ns))
        return "rank 0 has no time for this rank";
    *head = frame_read_head(begin);
    errno = 0;
    return head->good ? NULL : stranger;
}

/* One attempt. ST_OK without a socket: not yet, for the reason in *why. Only who has shown that it
 * is rank 0 can send this rank away. */
static status come_once(rendezvous *r, const char **why, err *e) {
    int64_t deadline = earlier(r->deadline_ns, in_seconds(ANSWER_S));
    int fd = tcp_connect(r->plan.at, earlier(deadline, in_seconds(CONNECT_S)), why);
    if (fd < 0) return errno == EINTR ? rendezvous_name_loss(&r->plan, 0, e) : ST_OK;
    frame_head head = {0};
    status st = ST_OK;
    const char *problem = greet(r, fd, deadline, &head);
    bool cut_short = problem && errno == ETIMEDOUT && **why; /* tells nothing new */
    if (problem && errno == EINTR)
        st = rendezvous_name_loss(&r->plan, 0, e);
    else if (problem)
        *why = cut_short ? *why : problem;
    else if (head.status != ST_OK)
        st = frame_take_failure(fd, head, deadline, e);
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
        if (errno == EINTR) return rendezvous_name_loss(&r->plan, 0, e);
        if (nap_ms < 500) nap_ms += nap_ms / 2;
    }
}

/* ---- the exchange ---- */

/* Rank 0 has a reason to end the meeting: the others hear it. */
static void tell_failure(const rendezvous *r, const err *why) {
    if (r->plan.rank != 0) return;
    for (int i = 1; i < r->plan.size; i++)
        if (r->sockets[i] >= 0) frame_send_failure(r->sockets[i], why, in_seconds(PARTING_S));
    int64_t deadline_ns = in_seconds(PARTING_S);
    for (int i = 1; i < r->plan.size; i++)
        if (r->sockets[i] >= 0) await_parting(r->sockets[i], deadline_ns);
}

static status gather(const rendezvous *r, char *out, size_t bytes, err *e) {
    for (int i = 1; i < r->plan.size; i++)
        TRY(receive_frame(r, i, out + (size_t)i * bytes, bytes, e));
    for (int i = 1; i < r->plan.size; i++)
        if (!frame_send(r->sockets[i], ST_OK, out, bytes * (size_t)r->plan.size, r->deadline_ns))
            return rendezvous_name_loss(&r->plan, i, e);
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
    } else if (!frame_send(r->sockets[0], ST_OK, in, bytes, r->deadline_ns) && errno == EINTR) {
        st = rendezvous_name_loss(&r->plan, 0, &why);
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
    status st = plan->rank == 0
                    ? reception_hold(&r->plan, r->deadline_ns, r->notice_ns, r->sockets, &why)
                    : come(r, &why);
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
