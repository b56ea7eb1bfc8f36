/* Ranks without a launcher watch each other: each has a thread that sleeps until the connection to
 * another rank ends.
 *
 * Rank 0 has a connection to every other rank; each of these has one to rank 0. When a connection
 * ends and its rank has not left the world in order, the world fails, and the error names that rank.
 * A process that still runs LAST_S seconds after it has seen a failed world lose a rank is ended
 * with ST_RANK, as a launcher would kill it: it may hang outside of any collective. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/world.h"

enum { LAST_S = 4 };

struct lifeline {
    pthread_t thread;
    rendezvous *met;
    board *board;
    int rank, size, end; /* end: an event, written when this rank leaves */
};

static void note_gone(lifeline *l, int rank) {
    if (!board_has_left(l->board, rank)) board_fail_dead(l->board, rank);
}

/* A failed world has lost a rank: this one has LAST_S seconds. */
static void end_soon(const lifeline *l) {
    struct pollfd end = {.fd = l->end, .events = POLLIN};
    err why = {0};
    if (poll(&end, 1, 1000 * LAST_S) != 0) return;
    (void)!board_check(l->board, &why);
    log_warn("rank %d has not come to an end in %d s and is ended: %s", l->rank, LAST_S,
             why.message);
    _exit(ST_RANK);
}

static void watch(lifeline *l, struct pollfd *fds) {
    for (;;) {
        if (file_poll(fds, l->size + 1, -1) < 0) continue;
        if (fds[l->size].revents) return;
        for (int r = 0; r < l->size; r++) {
            if (!fds[r].revents) continue;
            note_gone(l, r);
            fds[r].fd = -1;
        }
        if (board_failed(l->board)) {
            end_soon(l);
            return;
        }
    }
}

static void *run(void *arg) {
    lifeline *l = arg;
    struct pollfd *fds = xcalloc((size_t)l->size + 1, sizeof *fds);
    for (int r = 0; r < l->size; r++)
        fds[r] = (struct pollfd){.fd = rendezvous_socket(l->met, r), .events = POLLRDHUP};
    fds[l->size] = (struct pollfd){.fd = l->end, .events = POLLIN};
    watch(l, fds);
    free(fds);
    return NULL;
}

/* Signals are for the thread that trains. */
lifeline *lifeline_new(rendezvous *r, board *b, int rank, int size) {
    lifeline *l = xcalloc(1, sizeof *l);
    *l = (lifeline){.met = r, .board = b, .rank = rank, .size = size};
    l->end = eventfd(0, EFD_CLOEXEC);
    CHECK(l->end >= 0, "no event for the lifeline");
    CHECK(thread_start(&l->thread, run, l), "no thread for the lifeline: %s", strerror(errno));
    return l;
}

void lifeline_free(lifeline *l) {
    if (!l) return;
    CHECK(eventfd_write(l->end, 1) == 0, "the lifeline cannot be ended");
    pthread_join(l->thread, NULL);
    rendezvous_close(l->met);
    close(l->end);
    free(l);
}
