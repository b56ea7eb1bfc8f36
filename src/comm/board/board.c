/* Notes of the ranks, and the failure of the world; the report is in board_report.c. */
#include "comm/board/board.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

size_t board_bytes(int ranks) {
    return sizeof(board) + (size_t)ranks * sizeof(board_seat);
}

void board_enter(board *b, int rank, int ranks) {
    atomic_store(&b->ranks, ranks);
    atomic_store(&b->seats[rank].process, (int)getpid());
    atomic_store(&b->seats[rank].here, 1);
}

/* Word by word: what is read while this runs is a mixture of two strings, never a data race. */
static void put_text(board_text *t, const char *s) {
    uint64_t words[BOARD_WORDS] = {0};
    if (s) memcpy(words, s, strnlen(s, sizeof words - 1));
    for (int i = 0; i < BOARD_WORDS; i++)
        atomic_store_explicit(&t->words[i], words[i], memory_order_relaxed);
}

void board_set_host(board *b, int rank, const char *host) {
    put_text(&b->seats[rank].host, host);
}

void board_at(board *b, int rank, const char *where, int64_t step) {
    board_seat *seat = &b->seats[rank];
    put_text(&seat->at, where);
    atomic_store_explicit(&seat->step, step, memory_order_relaxed);
    atomic_store_explicit(&seat->at_ns, clock_now_ns(), memory_order_relaxed);
}

uint32_t board_begin(board *b, int rank, bool side, const comm_call *call, int64_t bytes,
                     int group) {
    board_seat *seat = &b->seats[rank];
    uint32_t place = atomic_fetch_add_explicit(&seat->n_recent, 1, memory_order_relaxed);
    board_call *c = &seat->recent[place % BOARD_RECENT];
    int64_t number = atomic_fetch_add_explicit(&seat->calls[side], 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&c->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&c->begin_ns, clock_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&c->end_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&c->kind, (int)call->kind, memory_order_relaxed);
    atomic_store_explicit(&c->side, side, memory_order_relaxed);
    atomic_store_explicit(&c->group, group, memory_order_relaxed);
    put_text(&c->what, call->what);
    atomic_store_explicit(&c->number, number, memory_order_release);
    return place;
}

/* A later call may have its place: many may be under way by NCCL. */
void board_end(board *b, int rank, uint32_t place) {
    board_seat *seat = &b->seats[rank];
    uint32_t later = atomic_load_explicit(&seat->n_recent, memory_order_relaxed) - place;
    if (later > BOARD_RECENT) return;
    atomic_store_explicit(&seat->recent[place % BOARD_RECENT].end_ns, clock_now_ns(),
                          memory_order_relaxed);
}

int64_t board_waits(board *b, int rank, bool side, int peer) {
    board_seat *seat = &b->seats[rank];
    int64_t now = clock_now_ns();
    board_looks(b, rank, side);
    atomic_store_explicit(&seat->wait_ns[side], now, memory_order_relaxed);
    atomic_store_explicit(&seat->waits_for[side], peer + 1, memory_order_relaxed);
    return now;
}

void board_waited(board *b, int rank, bool side, int64_t began_ns) {
    board_seat *seat = &b->seats[rank];
    if (atomic_load_explicit(&seat->wait_ns[side], memory_order_relaxed) == began_ns)
        atomic_store_explicit(&seat->waits_for[side], 0, memory_order_relaxed);
}

void board_looks(board *b, int rank, bool side) {
    atomic_store_explicit(&b->seats[rank].look_ns[side], clock_now_ns(), memory_order_relaxed);
}

void board_leave(board *b, int rank) {
    atomic_store(&b->seats[rank].ended, 1);
}

bool board_has_left(const board *b, int rank) {
    return atomic_load(&b->seats[rank].ended) != 0;
}

/* One that nobody has waited for yet (Z) has ended, too, unlike what kill() would say. */
static bool has_ended(int process) {
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/%d/stat", process);
    FILE *f = fopen(name, "r");
    if (!f) return errno == ENOENT;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *state =
        strrchr(line, ')'); /* "PID (NAME) STATE ...", and names may hold anything */
    return n == 0 || (state && (state[2] == 'Z' || state[2] == 'X'));
}

bool board_is_dead(const board *b, int rank, double waited) {
    static const double START_S = 5;
    int process = atomic_load(&b->seats[rank].process);
    return process ? has_ended(process) && !board_has_left(b, rank) : waited > START_S;
}

bool board_is_gone(const board *b, int rank, int64_t *seen_ns) {
    static const double LAST_WORDS_S = 2;
    if (!board_has_left(b, rank)) return false;
    if (*seen_ns == 0) *seen_ns = clock_now_ns();
    return clock_since_s(*seen_ns) > LAST_WORDS_S;
}

/* ---- failure ---- */

bool board_failed(const board *b) {
    return atomic_load(&b->failed) != 0;
}

/* What the claimer does until it raises takes microseconds; should it have been killed meanwhile,
 * nobody waits for it forever. */
static void await_raised(const board *b) {
    enum { LOOKS = 1000 };
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < LOOKS && !board_failed(b); i++) nanosleep(&moment, NULL);
}

bool board_claim(board *b) {
    if (!atomic_exchange(&b->claimed, 1)) return true;
    await_raised(b);
    return false;
}

void board_raise(board *b, int rank, const err *why) {
    b->failed_rank = rank;
    b->failure = *why;
    atomic_store(&b->failed, 1);
}

bool board_fail(board *b, int rank, const err *why) {
    bool first = board_claim(b);
    if (first) board_raise(b, rank, why);
    return first;
}

void board_fail_dead(board *b, int rank) {
    err why = {0};
    err_set(&why, ST_RANK, "rank %d has died", rank);
    board_fail(b, rank, &why);
}

status board_check(const board *b, err *e) {
    if (!board_failed(b)) return ST_OK;
    if (e) {
        *e = b->failure;
        e->code = ST_RANK;
    }
    return ST_RANK;
}
