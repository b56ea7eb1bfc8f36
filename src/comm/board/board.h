/* The board: what every rank is doing, in memory that all ranks see.
 *
 * Threads share it as it is; processes of one machine have it at the head of their segment; ranks
 * of MPI map a file with those of their node. It answers two questions: has the world failed, and
 * where is everybody? A rank writes only its own seat, in atomic words, so that a report made at
 * any moment is readable, if perhaps a moment old.
 *
 * Invariant: the first failure stays. Whoever claims it writes it, then raises `failed`. */
#ifndef COMM_BOARD_H
#define COMM_BOARD_H

#include <stdatomic.h>

#include "base/strbuf.h"
#include "comm/comm.h"

enum { BOARD_STREAMS = 2, BOARD_RECENT = 16, BOARD_WORDS = 8 };

/* A string of up to 63 bytes that may be read while it is replaced. */
typedef struct board_text {
    _Atomic uint64_t words[BOARD_WORDS];
} board_text;

/* One collective of a rank. */
typedef struct board_call {
    _Atomic int64_t number;                  /* counted from 1 per stream; 0: none */
    _Atomic int64_t bytes, begin_ns, end_ns; /* end_ns 0: in it */
    _Atomic int kind, side, group;           /* group: ranks that take part */
    board_text what;
} board_call;

typedef struct board_seat {
    _Atomic int here, ended;
    _Atomic int process;                  /* 0: it has not come */
    _Atomic int waits_for[BOARD_STREAMS]; /* a rank + 1; 0: nobody */
    _Atomic int64_t wait_ns[BOARD_STREAMS], at_ns;
    _Atomic int64_t look_ns[BOARD_STREAMS]; /* when it last looked whether the wait is over */
    board_text at;                          /* what it computes */
    board_text host;                        /* "": there is only one */
    _Atomic int64_t step;                   /* of the run; 0: outside of steps */
    _Atomic uint64_t reason;                /* a mark of why it ends; 0: it does not (voice.c) */
    _Atomic uint32_t n_recent;              /* calls so far: the ring's next place */
    _Atomic int64_t calls[BOARD_STREAMS];
    board_call recent[BOARD_RECENT];
} board_seat;

enum { BOARD_NOBODY = -1 };

typedef struct board {
    _Atomic int ranks;
    _Atomic int claimed, failed; /* claimed: somebody writes `failure` */
    int failed_rank;
    err failure;
    board_seat seats[];
} board;

/* Zeroed memory is a board where nobody is. */
size_t board_bytes(int ranks);

/* Rank's own notes, from board_enter to board_leave. board_begin returns the place to give to
 * board_end. */
void board_enter(board *b, int rank, int ranks);
/* Ranks are on several hosts: this one is there, even if its seat is on a board of its own host. */
void board_set_host(board *b, int rank, const char *host);
void board_at(board *b, int rank, const char *where, int64_t step);
uint32_t board_begin(board *b, int rank, bool side, const comm_call *call, int64_t bytes,
                     int group);
void board_end(board *b, int rank, uint32_t place);
/* Returns when this wait began. */
int64_t board_waits(board *b, int rank, bool side, int peer);
/* The wait that began then is over, if no other has begun: what waits for a GPU's calls shares a seat with the host. */
void board_waited(board *b, int rank, bool side, int64_t began_ns);
/* Now and then while it waits. Who waits and does not look does not run. */
void board_looks(board *b, int rank, bool side);
void board_leave(board *b, int rank);
bool board_has_left(const board *b, int rank);
/* Whether its process has ended and had not left, or has not come in `waited` seconds, where that is long enough. */
bool board_is_dead(const board *b, int rank, double waited);
/* Whether it left so long ago, two seconds, that nothing it has sent is under way any more. `seen_ns` is the asker's: 0 at
 * first, then when it was seen to have left. */
bool board_is_gone(const board *b, int rank, int64_t *seen_ns);

bool board_failed(const board *b);
/* Fails the world in the name of a rank; false when it has failed already: the first failure
 * stays. */
bool board_fail(board *b, int rank, const err *why);
/* The same in two steps, for who must look at the others before they see the failure and leave
 * what they are in. The claimer raises soon; false comes after somebody else has raised. */
bool board_claim(board *b);
void board_raise(board *b, int rank, const err *why);
status board_check(const board *b, err *e);

/* Rank waits for `peer` too long: writes where everybody is to standard error and fails the world
 * in the name of the rank that is behind. */
void board_stall(board *b, int rank, bool side, int peer, double seconds);
/* `peer` has left, or is in another collective. */
void board_fail_left(board *b, int rank, bool side, int peer);
/* Its process has ended, killed say. */
void board_fail_dead(board *b, int rank);
void board_fail_mixed(board *b, int rank, bool side, int peer);
/* A line per rank, then the last collectives of each. */
void board_report(const board *b, strbuf *out);

/* voice.c: this rank ends for that reason, and will tell people. */
void voice_mark(board *b, int rank, const err *why);
/* Waits shortly until all ranks have a reason of their own. */
void voice_await_others(board *b);
/* This rank has left a world that failed: waits until the others have said their last words, five
 * seconds at most. The status that all ranks of this host ended with, or ST_RANK. */
status voice_last_words(board *b, int rank);

#endif
