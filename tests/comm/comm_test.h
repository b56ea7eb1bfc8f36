/* Ranks for tests: the same function on every rank of a world, as threads or as forked processes.
 * Checks are CHECKs: they end a rank that is a process, and are fatal in a thread. */
#ifndef TESTS_COMM_TEST_H
#define TESTS_COMM_TEST_H
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>

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

/* The same as processes, with the exit status of each (128 + signal) in out[n]. */
static inline void run_processes_status(int n, rank_fn f, void *ctx, int *out) {
    int fd;
    pid_t pids[MOST_RANKS];
    err e = {0};
    assert_int_equal(comm_segment_new(n, &fd, &e), ST_OK);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] > 0) continue;
        comm_world *w;
        CHECK(comm_open_segment(&w, fd, r, n, &e) == ST_OK, "%s", e.message);
        f(w, ctx);
        comm_close(w);
        _exit(0);
    }
    for (int r = 0; r < n; r++) {
        int state;
        assert_int_equal(waitpid(pids[r], &state, 0), pids[r]);
        out[r] = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
    }
    close(fd);
}

static inline void run_processes(int n, rank_fn f, void *ctx) {
    int ended[MOST_RANKS];
    run_processes_status(n, f, ctx, ended);
    for (int r = 0; r < n; r++) assert_int_equal(ended[r], 0);
}

static inline comm *everyone(comm_world *w) {
    int ranks[MOST_RANKS];
    for (int r = 0; r < comm_world_size(w); r++) ranks[r] = r;
    return comm_group(w, ranks, comm_world_size(w));
}

#endif
