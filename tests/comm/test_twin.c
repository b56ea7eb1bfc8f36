/* Collectives on a device's memory, which on the twin nobody reaches but where it was entered: they
 * see what the device was given before them, on both streams, and leave the memory closed. */
#include "comm_test.h"
#include "comm/world.h"

#include <errno.h>
#include <string.h>

enum { N = 5000, CALLS = 40 };

typedef struct lab {
    comm *c;
    dev *d;
    float *at; /* on the device: N for every rank */
    size_t bytes;
} lab;

static lab lab_open(comm_world *w) {
    lab l = {.c = everyone(w)};
    void *p;
    err e = {0};
    l.bytes = (size_t)comm_size(l.c) * N * sizeof(float);
    CHECK(dev_open(&l.d, DEV_TWIN, 1, &e) == ST_OK, "%s", e.message);
    CHECK(dev_reserve(l.d, &p, l.bytes, "a vector", &e) == ST_OK, "%s", e.message);
    l.at = p;
    return l;
}

/* The kernel knows without a fault whether a page can be read. */
static bool is_closed(const lab *l) {
    int ends[2];
    CHECK(pipe(ends) == 0, "no pipe");
    bool closed = write(ends[1], l->at, 1) < 0 && errno == EFAULT;
    close(ends[0]);
    close(ends[1]);
    return closed;
}

static void lab_close(lab *l) {
    CHECK(is_closed(l), "the memory was left open");
    dev_release(l->d, l->at, l->bytes);
    dev_close(l->d);
}

/* Element i of the contribution of a rank to call k. */
static float value(int rank, int k, int i) {
    return (float)(rank + 3 * k + i % 101);
}

/* Given to the device only: it is not there yet when the collective is called. */
static void give(const lab *l, float *at, int rank, int k, int n) {
    float x[N];
    for (int i = 0; i < n; i++) x[i] = value(rank, k, i);
    dev_write(l->d, at, x, (size_t)n * sizeof *x);
}

static void run_call(const lab *l, bool side, comm_call call) {
    call.dev = l->d;
    call.dt = DT_F32;
    if (side)
        comm_wait(l->c->world, comm_start(l->c, &call));
    else
        comm_run(l->c, &call);
}

/* What is there, as the device says. */
static void expect(const lab *l, const float *at, int n, int from, int to, int k) {
    float got[N];
    dev_read(l->d, got, at, (size_t)n * sizeof *got);
    for (int i = 0; i < n; i++) {
        float want = 0;
        for (int r = from; r < to; r++) want += value(r, k, i);
        CHECK(got[i] == want, "element %d is %g, not %g", i, (double)got[i], (double)want);
    }
}

static void try_kinds(const lab *l, bool side) {
    int ranks = comm_size(l->c), rank = comm_rank(l->c);
    float *own = l->at + rank * N;
    for (int n = 7; n <= N; n += N - 7) { /* a short one, too */
        give(l, own, rank, 1, n);
        run_call(l, side, (comm_call){.kind = COMM_ALL_REDUCE, .in = own, .out = own, .n = n});
        expect(l, own, n, 0, ranks, 1);
        give(l, l->at, rank, 2, n);
        run_call(l, side, (comm_call){.kind = COMM_BROADCAST, .out = l->at, .n = n});
        expect(l, l->at, n, 0, 1, 2);
    }
    give(l, own, rank, 3, N);
    run_call(l, side, (comm_call){.kind = COMM_ALL_GATHER, .in = own, .out = l->at, .n = N});
    for (int r = 0; r < ranks; r++) expect(l, l->at + r * N, N, r, r + 1, 3);
    for (int r = 0; r < ranks; r++) give(l, l->at + r * N, rank, 4, N);
    run_call(l, side, (comm_call){.kind = COMM_REDUCE_SCATTER, .in = l->at, .out = own, .n = N});
    expect(l, own, N, 0, ranks, 4);
}

static void rank_tries_kinds(comm_world *w, void *ctx) {
    (void)ctx;
    lab l = lab_open(w);
    try_kinds(&l, false);
    try_kinds(&l, true);
    lab_close(&l);
}

static void test_every_kind(void **state) {
    (void)state;
    comm_world *alone = comm_open_self();
    rank_tries_kinds(alone, NULL);
    comm_close(alone);
    run_threads(1, rank_tries_kinds, NULL);
    run_threads(2, rank_tries_kinds, NULL);
    run_threads(5, rank_tries_kinds, NULL);
    run_processes(3, rank_tries_kinds, NULL);
}

typedef struct inner {
    comm *c;
    float *at;
} inner;

/* As the kernel of an op that communicates: it is on the device already. */
static void run_inner(dev *d, const void *args) {
    (void)d;
    const inner *x = args;
    comm_run(x->c, &(comm_call){.kind = COMM_ALL_REDUCE,
                                .in = x->at,
                                .out = x->at,
                                .n = N,
                                .dt = DT_F32,
                                .what = "inner"});
}

/* The side stream is under way while kernels that communicate run, in the other half of the
 * memory; one rank is late for each in turn. */
static void rank_mixes(comm_world *w, void *ctx) {
    (void)ctx;
    lab l = lab_open(w);
    int rank = comm_rank(l.c), ranks = comm_size(l.c);
    inner x = {l.c, l.at + N};
    for (int k = 0; k < CALLS; k++) {
        give(&l, l.at, rank, k, N);
        comm_ticket t = comm_start(l.c, &(comm_call){.kind = COMM_ALL_REDUCE,
                                                     .dev = l.d,
                                                     .in = l.at,
                                                     .out = l.at,
                                                     .n = N,
                                                     .dt = DT_F32,
                                                     .what = "beside"});
        give(&l, x.at, rank, k + 1, N);
        dev_launch(l.d, run_inner, &x, sizeof x);
        if (k % ranks == rank) usleep(500);
        if (k % 2) comm_wait(w, t); /* what was given runs before it, or after */
        dev_sync(l.d);
        comm_wait(w, t);
        expect(&l, l.at, N, 0, ranks, k);
        expect(&l, x.at, N, 0, ranks, k + 1);
    }
    lab_close(&l);
}

static void test_beside_kernels(void **state) {
    (void)state;
    run_threads(2, rank_mixes, NULL);
    run_threads(3, rank_mixes, NULL);
    run_processes(2, rank_mixes, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_beside_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
