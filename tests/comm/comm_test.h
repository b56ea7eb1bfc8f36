/* Ranks for tests: the same function on every rank of a world, as threads or as forked processes.
 * Checks are CHECKs: they end a rank that is a process, and are fatal in a thread. */
#ifndef TESTS_COMM_TEST_H
#define TESTS_COMM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "comm/mesh.h"

enum { MOST_RANKS = 8 };

typedef void (*rank_fn)(comm_world *w, void *ctx);

typedef struct rank_thread {
    comm_world *w;
    rank_fn f;
    void *ctx;
} rank_thread;

static void *run_rank_thread(void *arg) {
    rank_thread *t = arg;
    t->f(t->w, t->ctx);
    comm_close(t->w);
    return NULL;
}

static inline void run_threads(int n, rank_fn f, void *ctx) {
    comm_world *worlds[MOST_RANKS];
    rank_thread ranks[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    comm_open_threads(n, worlds);
    for (int r = 0; r < n; r++) {
        ranks[r] = (rank_thread){worlds[r], f, ctx};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank_thread, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
}

static inline comm *everyone(comm_world *w) {
    int ranks[MOST_RANKS];
    for (int r = 0; r < comm_world_size(w); r++) ranks[r] = r;
    return comm_group(w, ranks, comm_world_size(w));
}

#endif
