/* Who tells people why ranks end: one voice for what all found, its own for what one found.
 *
 * No collective is left to ask by then. Every rank that ends badly leaves a mark of its reason at
 * its seat of the board, and the others look there. */
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "comm/world.h"

/* Rank 0 may still be on its way to the same mistake. */
static const double PATIENCE_S = 5;
/* The others may be about to leave the collective that this one left before it failed. */
static const double SAME_S = 1;
enum { NAP_NS = 5000000 };

/* A hash of the words with the status in its low byte. */
static uint64_t mark_of(const err *why) {
    uint64_t mark = hash_bytes(why->message, strlen(why->message));
    mark += hash_bytes(why->where, strlen(why->where));
    return mark << 8 | (uint64_t)why->code;
}

static int status_of(uint64_t mark) {
    return (int)(mark & 0xff);
}

void voice_mark(board *b, int rank, const err *why) {
    atomic_store(&b->seats[rank].reason, mark_of(why));
}

/* Waits until it is so, or for so many seconds. */
static void wait_until(bool (*is_so)(const board *b), const board *b, double seconds) {
    int64_t began = clock_now_ns();
    const struct timespec nap = {.tv_nsec = NAP_NS};
    while (!is_so(b) && clock_since_s(began) < seconds) nanosleep(&nap, NULL);
}

static bool first_ends(const board *b) {
    return atomic_load(&b->seats[0].reason) || board_has_left(b, 0) ||
           (board_failed(b) && b->failed_rank == 0);
}

/* Whether rank 0 ends for the same reason, once it does. */
static bool first_says_so(const board *b, const err *why) {
    wait_until(first_ends, b, PATIENCE_S);
    return atomic_load(&b->seats[0].reason) == mark_of(why);
}

static bool all_have_reasons(const board *b) {
    for (int r = 0; r < b->ranks; r++)
        if (!atomic_load(&b->seats[r].reason) && !board_has_left(b, r)) return board_failed(b);
    return true;
}

void voice_await_others(board *b) {
    wait_until(all_have_reasons, b, SAME_S);
}

static bool all_have_left(const board *b) {
    for (int r = 0; r < b->ranks; r++)
        if (!board_has_left(b, r)) return false;
    return true;
}

status voice_last_words(board *b, int rank) {
    wait_until(all_have_left, b, PATIENCE_S);
    int mine = status_of(atomic_load(&b->seats[rank].reason));
    for (int r = 0; r < b->ranks; r++) /* of ranks on other hosts the board knows no reason */
        if (atomic_load(&b->seats[r].here) && status_of(atomic_load(&b->seats[r].reason)) != mine)
            return ST_RANK;
    return mine ? (status)mine : ST_RANK;
}

bool comm_speaks(comm_world *w, const err *why) {
    if (!w || !w->wire) return true;
    board *b = w->wire->board;
    err failure = {0};
    voice_mark(b, w->rank, why);
    bool told_by_world = board_check(b, &failure) != ST_OK && mark_of(&failure) == mark_of(why);
    if (told_by_world && b->failed_rank != w->rank) {
        if (atomic_load(&b->seats[b->failed_rank].reason)) return false; /* it speaks itself */
        return w->rank == (b->failed_rank == 0 ? 1 : 0);
    }
    return w->rank == 0 || !first_says_so(b, why);
}
