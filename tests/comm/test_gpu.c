/* Collectives on the memory of emulated GPUs: through the host's memory where ranks share one, and by
 * NCCL where each has its own. They come after what the device was given before them and before what it
 * is given later, on both streams; an event that is missing shows; and a rank that is gone or late, or
 * an error of NCCL, ends the wait of all with a sentence that names it. */
#include "comm_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/nccl.h"
#include "dev/cuda.h"
#include "gpu/nccl.h"

enum { N = 3001, LONG = 1 << 20, CALLS = 20 };

typedef struct way {
    bool nccl;
    int ranks;
} way;

typedef struct lab {
    comm_world *w;
    comm *c;
    dev *d;
    char *at;
    size_t bytes;
} lab;

static void choose(const way *how) {
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_CUDA_COUNT", how->nccl ? "8" : "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
}

static lab lab_open(comm_world *w, const way *how, size_t bytes) {
    lab l = {.w = w, .c = everyone(w), .bytes = bytes};
    void *p;
    err e = {0};
    CHECK(dev_open_of_rank(&l.d, DEV_CUDA, comm_rank_here(w), 1, &e) == ST_OK, "%s", e.message);
    CHECK(comm_use_device(w, l.d, &e) == ST_OK, "%s", e.message);
    CHECK(comm_by_nccl(w) == how->nccl, "goes by %s", comm_transport(w));
    CHECK(dev_reserve(l.d, &p, bytes, "a vector", &e) == ST_OK, "%s", e.message);
    l.at = p;
    return l;
}

static void lab_close(lab *l) {
    comm_leave_device(l->w, l->d);
    dev_release(l->d, l->at, l->bytes);
    dev_close(l->d);
}

static void lab_check(const lab *l) {
    err e = {0};
    CHECK(dev_check(l->d, &e) == ST_OK, "%s", e.message);
    CHECK(comm_check(l->w, &e) == ST_OK, "%s", e.message);
}

/* ---- every kind ---- */

/* Element i that a rank has for rank `to`: whole numbers that every type holds, and sums of them. */
static int value(int rank, int to, int64_t i) {
    return 1 + (rank * 3 + to * 2 + (int)(i % 7)) % 11;
}

static void give(const lab *l, char *at, int to, int64_t n, dtype dt) {
    size_t bytes = dtype_bytes(dt);
    char *x = xmalloc((size_t)n * bytes);
    for (int64_t i = 0; i < n; i++) {
        int v = value(comm_rank(l->c), to, i);
        float f = (float)v;
        int64_t whole = v;
        if (dt == DT_I32 || dt == DT_I64 || dt == DT_U8)
            memcpy(x + (size_t)i * bytes, &whole, bytes);
        else
            dtype_convert(x + (size_t)i * bytes, dt, &f, DT_F32, 1);
    }
    dev_write(l->d, at, x, (size_t)n * bytes);
    free(x);
}

static double number(const char *x, dtype dt) {
    float f = 0;
    int64_t whole = 0;
    if (dt == DT_F64) return *(const double *)(const void *)x;
    if (dt == DT_I32) return *(const int32_t *)(const void *)x;
    if (dt == DT_I64 || dt == DT_U8) {
        memcpy(&whole, x, dtype_bytes(dt));
        return (double)whole;
    }
    dtype_convert(&f, DT_F32, x, dt, 1);
    return (double)f;
}

/* What is there is the sum over ranks [from, to) of what they had for rank `mine`. */
static void expect(const lab *l, const char *at, int64_t n, dtype dt, int from, int to, int mine) {
    size_t bytes = dtype_bytes(dt);
    char *got = xmalloc((size_t)n * bytes);
    dev_read(l->d, got, at, (size_t)n * bytes);
    for (int64_t i = 0; i < n; i++) {
        double want = 0, is = number(got + (size_t)i * bytes, dt);
        for (int r = from; r < to; r++) want += value(r, mine, i);
        CHECK(is == want, "element %lld is %g, not %g", (long long)i, is, want);
    }
    free(got);
}

static void call(const lab *l, bool side, comm_call k) {
    k.dev = l->d;
    k.what = "a test";
    if (side)
        comm_wait(l->w, comm_start(l->c, &k));
    else
        comm_run(l->c, &k);
}

static void try_sums(const lab *l, bool side, int64_t n, dtype dt) {
    int ranks = comm_size(l->c), rank = comm_rank(l->c);
    size_t part = (size_t)n * dtype_bytes(dt);
    give(l, l->at, 0, n, dt);
    call(l, side,
         (comm_call){.kind = COMM_ALL_REDUCE, .in = l->at, .out = l->at, .n = n, .dt = dt});
    expect(l, l->at, n, dt, 0, ranks, 0);
    for (int p = 0; p < ranks; p++) give(l, l->at + (size_t)p * part, p, n, dt);
    char *own = l->at + (size_t)rank * part;
    call(l, side,
         (comm_call){.kind = COMM_REDUCE_SCATTER, .in = l->at, .out = own, .n = n, .dt = dt});
    expect(l, own, n, dt, 0, ranks, rank);
}

static void try_moves(const lab *l, bool side, int64_t n, dtype dt) {
    int ranks = comm_size(l->c), rank = comm_rank(l->c), before = (rank + ranks - 1) % ranks;
    size_t part = (size_t)n * dtype_bytes(dt);
    char *out = l->at + (size_t)ranks * part, *own = l->at + (size_t)rank * part;
    for (int p = 0; p < ranks; p++) give(l, l->at + (size_t)p * part, p, n, dt);
    call(l, side, (comm_call){.kind = COMM_ALL_TO_ALL, .in = l->at, .out = out, .n = n, .dt = dt});
    for (int p = 0; p < ranks; p++) expect(l, out + (size_t)p * part, n, dt, p, p + 1, rank);
    call(l, side, (comm_call){.kind = COMM_SHIFT, .in = l->at, .out = out, .n = n, .dt = dt});
    expect(l, out, n, dt, before, before + 1, 0);
    give(l, own, 5, n, dt);
    call(l, side, (comm_call){.kind = COMM_ALL_GATHER, .in = own, .out = l->at, .n = n, .dt = dt});
    for (int p = 0; p < ranks; p++) expect(l, l->at + (size_t)p * part, n, dt, p, p + 1, 5);
    give(l, out, 6, n, dt);
    comm_kind to_one = ranks == 2 ? COMM_SEND : COMM_BROADCAST;
    call(l, side, (comm_call){.kind = to_one, .out = out, .n = n, .dt = dt, .root = 1});
    expect(l, out, n, dt, 1, 2, 6);
}

static void rank_tries_kinds(comm_world *w, void *ctx) {
    static const dtype types[] = {DT_F32, DT_F64, DT_BF16, DT_F16, DT_I32, DT_I64, DT_U8};
    lab l = lab_open(w, ctx, (size_t)2 * MOST_RANKS * N * sizeof(double));
    for (int i = 0; i < ARRAY_LEN(types); i++)
        for (int side = 0; side < 2; side++) {
            if (types[i] != DT_U8) try_sums(&l, side, N, types[i]);
            try_moves(&l, side, N, types[i]);
        }
    lab_check(&l);
    lab_close(&l);
}

static void test_every_kind(void **state) {
    (void)state;
    for (int nccl = 0; nccl < 2; nccl++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            way how = {nccl, ranks};
            choose(&how);
            run_threads(ranks, rank_tries_kinds, &how);
            if (ranks == 2) run_processes(ranks, rank_tries_kinds, &how);
        }
}

/* ---- longer than the staging memory ---- */

static void rank_sends_much(comm_world *w, void *ctx) {
    int64_t n = LONG + 77;
    lab l = lab_open(w, ctx, (size_t)4 * LONG * 3 * sizeof(float));
    try_sums(&l, true, n, DT_F32);
    try_moves(&l, false, n, DT_F32);
    lab_check(&l);
    lab_close(&l);
}

static void test_long_ones(void **state) {
    (void)state;
    way how = {false, 2};
    choose(&how);
    run_threads(2, rank_sends_much, &how);
}

/* ---- order ---- */

/* Two halves of the memory, one for each stream; what was sent is overwritten behind it. */
static void rank_mixes(comm_world *w, void *ctx) {
    size_t bytes = N * sizeof(float);
    lab l = lab_open(w, ctx, 3 * bytes);
    int ranks = comm_size(l.c);
    for (int k = 0; k < CALLS; k++) {
        comm_call all = {
            .kind = COMM_ALL_REDUCE, .dev = l.d, .n = N, .dt = DT_F32, .what = "beside"};
        all.in = all.out = l.at;
        give(&l, l.at, k, N, DT_F32);
        comm_ticket t = comm_start(l.c, &all);
        give(&l, l.at + bytes, k + 1, N, DT_F32);
        all.in = all.out = l.at + bytes, all.what = "among kernels";
        comm_run(l.c, &all);
        dev_copy(l.d, l.at + 2 * bytes, l.at + bytes, bytes);
        dev_fill(l.d, l.at + bytes, 0xff, bytes);
        comm_wait(w, t);
        expect(&l, l.at + 2 * bytes, N, DT_F32, 0, ranks, k + 1);
        dev_copy(l.d, l.at + bytes, l.at, bytes);
        dev_fill(l.d, l.at, 0xff, bytes);
        expect(&l, l.at + bytes, N, DT_F32, 0, ranks, k);
    }
    lab_check(&l);
    lab_close(&l);
}

static void test_order(void **state) {
    (void)state;
    for (int nccl = 0; nccl < 2; nccl++)
        for (int seed = 0; seed < 3; seed++) {
            char text[8];
            way how = {nccl, 2};
            snprintf(text, sizeof text, "%d", seed);
            setenv("ATHANOR_CUDA_SEED", text, 1);
            choose(&how);
            run_threads(2, rank_mixes, &how);
        }
}

/* A collective on a stream of its own: with an event behind what the kernels' stream writes, or, as a
 * mistake, without. Tells whether the sum is right. */
static bool sums_on_other_stream(const lab *l, bool with_event) {
    nccl_library api;
    nccl_id id = {{0}};
    nccl_config config = {.size = sizeof config, .magic = NCCL_CONFIG_MAGIC};
    nccl_comm c;
    cu_stream s;
    cu_event written;
    err e = {0};
    float got = 0, one = 1;
    const cu_driver *gpu = cuda_driver(l->d);
    CHECK(nccl_open(&api, true, &e) == ST_OK, "%s", e.message);
    if (comm_rank(l->c) == 0) CHECK(api.get_id(&id) == 0, "no id");
    comm_broadcast(l->c, &id, sizeof id, 0);
    nccl_result r = api.init(&c, comm_size(l->c), id, comm_rank(l->c), &config);
    while (r == NCCL_IN_PROGRESS) api.async_error(c, &r);
    gpu->stream_create(&s, CU_STREAM_NON_BLOCKING);
    gpu->event_create(&written, CU_EVENT_NO_TIMING);
    dev_fill(l->d, l->at, 0, l->bytes);
    dev_sync(l->d);
    dev_write(l->d, l->at, &one, sizeof one);
    gpu->event_record(written, cuda_stream(l->d));
    if (with_event) gpu->stream_wait(s, written, 0);
    r = api.all_reduce(l->at, l->at + 64, 1, NCCL_F32, NCCL_SUM, c, s);
    CHECK(r == NCCL_IN_PROGRESS, "the first call of a communicator is not in progress");
    while (r == NCCL_IN_PROGRESS) api.async_error(c, &r);
    CHECK(r == 0, "no all-reduce");
    gpu->stream_sync(s);
    dev_read(l->d, &got, l->at + 64, sizeof got);
    comm_barrier(l->c);
    api.destroy(c);
    gpu->event_destroy(written);
    gpu->stream_destroy(s);
    return got == (float)comm_size(l->c);
}

static void rank_forgets_event(comm_world *w, void *ctx) {
    lab l = lab_open(w, ctx, 128);
    CHECK(sums_on_other_stream(&l, true), "a sum that waits is wrong");
    lab_check(&l);
    CHECK(!sums_on_other_stream(&l, false), "a missing event does not show");
    err e = {0};
    CHECK(dev_check(l.d, &e) == ST_RANK &&
              strstr(e.message, "which NCCL has read in another stream"),
          "a missing event is not named: %s", e.message);
    lab_close(&l);
}

static void test_missing_event(void **state) {
    (void)state;
    way how = {true, 2};
    choose(&how);
    run_threads(2, rank_forgets_event, &how);
}

/* ---- failures ---- */

enum { SOME = 32, SOME_BYTES = SOME * sizeof(float) };

static comm_call one_sum(const lab *l, const char *what) {
    return (comm_call){.kind = COMM_ALL_REDUCE,
                       .dev = l->d,
                       .in = l->at,
                       .out = l->at,
                       .n = SOME,
                       .dt = DT_F32,
                       .what = what};
}

static void sum_once(const lab *l) {
    comm_call k = one_sum(l, "a sum");
    comm_run(l->c, &k);
    dev_sync(l->d);
    lab_check(l);
    comm_barrier(l->c); /* nobody goes on to fail before */
}

static void expect_failure(const lab *l, const char *who, const char *why) {
    err e = {0};
    dev_sync(l->d);
    (void)comm_counted(l->w); /* who watches NCCL has seen it, too */
    CHECK(comm_check(l->w, &e) == ST_RANK, "the world has not failed");
    CHECK(strstr(e.message, who) && strstr(e.message, why), "%s", e.message);
}

/* Rank 1 comes too late to calls of both streams, be they the first ones, in which NCCL connects the ranks, or
 * not; nobody waits for it any longer. */
static void rank_is_late(comm_world *w, void *ctx) {
    const bool *first = ctx;
    lab l = lab_open(w, &(way){true, 2}, 2 * SOME_BYTES);
    comm_call side = one_sum(&l, "a late sum"), among = side;
    among.in = among.out = l.at + SOME_BYTES;
    if (!*first) {
        sum_once(&l);
        comm_wait(w, comm_start(l.c, &side));
        dev_sync(l.d);
    }
    comm_set_timeout(w, 0.2);
    if (comm_rank(l.c) == 1) usleep(1500000);
    comm_ticket t = comm_start(l.c, &side);
    comm_run(l.c, &among);
    comm_wait(w, t);
    expect_failure(&l, "rank 1 holds up the others", "of a late sum");
    lab_close(&l);
}

/* The host is many calls ahead of the GPU; the one at which it stands is named. */
static void rank_is_ahead(comm_world *w, void *ctx) {
    static const char *const names[] = {"sum 1", "sum 2", "sum 3", "sum 4", "sum 5"};
    lab l = lab_open(w, ctx, SOME_BYTES);
    sum_once(&l);
    comm_set_timeout(w, 0.2);
    if (comm_rank(l.c) == 1) usleep(1500000);
    for (int i = 0; i < ARRAY_LEN(names); i++) {
        comm_call k = one_sum(&l, names[i]);
        comm_run(l.c, &k);
    }
    expect_failure(&l, "rank 1 holds up the others", "of sum 1 (");
    lab_close(&l);
}

/* Rank 1 is late where communicators are made. */
static void rank_opens_late(comm_world *w, void *ctx) {
    (void)ctx;
    dev *d;
    err e = {0};
    comm_set_timeout(w, 1);
    CHECK(dev_open_of_rank(&d, DEV_CUDA, comm_rank_here(w), 1, &e) == ST_OK, "%s", e.message);
    CHECK(comm_use_device(w, d, &e) == ST_RANK, "the world has not failed");
    CHECK(strstr(e.message, "rank 1 holds up the others") &&
              strstr(e.message, "of NCCL's communicators"),
          "%s", e.message);
    comm_leave_device(w, d);
    dev_close(d);
}

static void test_late_ranks(void **state) {
    (void)state;
    way how = {true, 2};
    choose(&how);
    for (int first = 0; first < 2; first++) run_threads(2, rank_is_late, &(bool){first});
    run_threads(2, rank_is_ahead, &how);
    setenv("ATHANOR_NCCL_FAULT", "late:1:3000", 1);
    run_threads(2, rank_opens_late, NULL);
    unsetenv("ATHANOR_NCCL_FAULT");
}

/* Rank 1 ends in the middle, and leaves files of the emulated NCCL. */
static void rank_leaves(comm_world *w, void *ctx) {
    setenv("TMPDIR", ctx, 1);
    lab l = lab_open(w, &(way){true, 2}, SOME_BYTES);
    comm_call k = one_sum(&l, "a sum");
    sum_once(&l);
    if (comm_rank(l.c) == 1) {
        (void)comm_counted(w); /* nothing is under way */
        return;                /* and the process ends */
    }
    comm_run(l.c, &k);
    expect_failure(&l, "rank 1 has ended", "of a sum");
    lab_close(&l);
}

/* Rank 1 has its sum and ends before rank 0 has the same one: nothing is wrong. */
static void rank_is_done_first(comm_world *w, void *ctx) {
    setenv("TMPDIR", ctx, 1);
    lab l = lab_open(w, &(way){true, 2}, SOME_BYTES);
    comm_call k = one_sum(&l, "a sum");
    comm_run(l.c, &k);
    dev_sync(l.d);
    (void)comm_counted(w);
    lab_check(&l);
}

/* Rank 1 fails, while rank 0 waits for it: in a first call, or in one of which NCCL says that a peer is gone. Rank 0
 * finds nothing wrong with its own GPU. */
static void rank_tells(comm_world *w, void *ctx) {
    const bool *first = ctx;
    err why = {0}, e = {0};
    lab l = lab_open(w, &(way){true, 2}, SOME_BYTES);
    comm_call k = one_sum(&l, "a sum");
    if (!*first) sum_once(&l);
    if (comm_rank(l.c) == 1) {
        usleep(100000);
        err_set(&why, ST_RANK, "its disk is full");
        comm_fail(w, &why);
    } else
        comm_run(l.c, &k);
    expect_failure(&l, "rank 1 failed", "its disk is full");
    CHECK(dev_check(l.d, &e) == ST_OK, "%s", e.message);
    lab_close(&l);
}

/* NCCL has an error of its own on rank 0, or says of a peer that it is gone which nobody else misses. */
static void rank_has_error(comm_world *w, void *ctx) {
    err e = {0};
    lab l = lab_open(w, &(way){true, 2}, SOME_BYTES);
    comm_call k = one_sum(&l, "a sum");
    sum_once(&l);
    comm_run(l.c, &k);
    expect_failure(&l, "rank 0 failed: NCCL's all-reduce: ", ctx);
    if (comm_rank(l.c) == 0)
        CHECK(dev_check(l.d, &e) == ST_RANK && strstr(e.message, ctx), "%s", e.message);
    lab_close(&l);
}

/* What the emulated NCCL finds wrong is in the sentence. */
static void rank_sums_less(comm_world *w, void *ctx) {
    lab l = lab_open(w, ctx, SOME_BYTES);
    comm_call k = one_sum(&l, "a sum");
    if (comm_rank(l.c) == 1) k.n /= 2;
    comm_run(l.c, &k);
    expect_failure(&l, "failed: NCCL's stream", "ranks make different calls on one communicator");
    lab_close(&l);
}

static void test_failures(void **state) {
    (void)state;
    int ended[2];
    char folder[] = "/tmp/athanor-gpu-XXXXXX";
    way how = {true, 2};
    choose(&how);
    assert_non_null(mkdtemp(folder));
    run_processes_status(2, rank_leaves, folder, ended);
    assert_int_equal(ended[0], 0);
    setenv("ATHANOR_NCCL_FAULT", "slow:0:500", 1);
    run_processes(2, rank_is_done_first, folder);
    unsetenv("ATHANOR_NCCL_FAULT");
    assert_int_equal(file_remove_tree(folder, NULL), ST_OK);
    run_threads(2, rank_sums_less, &how);
    run_threads(2, rank_tells, &(bool){true});
    setenv("ATHANOR_NCCL_FAULT", "remote:0:2", 1);
    run_threads(2, rank_tells, &(bool){false});
    run_threads(2, rank_has_error, "a peer is gone");
    setenv("ATHANOR_NCCL_FAULT", "internal:0:2", 1);
    run_threads(2, rank_has_error, "an error that was planted");
    unsetenv("ATHANOR_NCCL_FAULT");
}

/* The host waits for a peer when a call of the GPU ends: it still waits. */
static void rank_waits_twice(comm_world *w, void *ctx) {
    lab l = lab_open(w, ctx, SOME_BYTES);
    comm_call k = one_sum(&l, "a sum");
    sum_once(&l);
    comm_run(l.c, &k);
    if (comm_rank(l.c) == 1) {
        usleep(500000);
        CHECK(w->wire->board->seats[0].waits_for[0] == 2, "rank 0 does not seem to wait");
    }
    comm_barrier(l.c);
    lab_check(&l);
    lab_close(&l);
}

static void test_two_waits(void **state) {
    (void)state;
    way how = {true, 2};
    choose(&how);
    run_threads(2, rank_waits_twice, &how);
}

/* ---- which communicators, and whether ---- */

static int64_t broadcasts(const comm_world *w) {
    return comm_counted(w).calls[COMM_BROADCAST];
}

/* Communicators are made for all groups at once, but not again for those of an earlier device: such a group gets its own when it is
 * used. An id is broadcast for each. */
static void rank_opens_twice(comm_world *w, void *ctx) {
    int rank = comm_world_rank(w), others[2] = {rank == 0, rank == 2 ? 1 : 2};
    comm *pair[2];
    for (int i = 0; i < 2; i++) {
        int low = rank < others[i] ? rank : others[i];
        pair[i] = comm_group(w, (int[]){low, rank + others[i] - low}, 2);
    }
    lab l = lab_open(w, ctx, SOME_BYTES);
    CHECK(broadcasts(w) == 3 * 2, "%d communicators", (int)broadcasts(w));
    lab_close(&l);
    l = lab_open(w, ctx, SOME_BYTES);
    CHECK(broadcasts(w) == 4 * 2, "%d communicators", (int)broadcasts(w));
    for (int i = 0; i < 2; i++) {
        l.c = pair[i];
        sum_once(&l);
        sum_once(&l);
    }
    CHECK(broadcasts(w) == 6 * 2, "%d communicators", (int)broadcasts(w));
    lab_close(&l);
}

static void test_groups(void **state) {
    (void)state;
    way how = {true, 3};
    choose(&how);
    run_threads(3, rank_opens_twice, &how);
}

static void rank_wants_nccl(comm_world *w, void *ctx) {
    (void)ctx;
    dev *d;
    err e = {0};
    CHECK(dev_open_of_rank(&d, DEV_CUDA, comm_rank_here(w), 1, &e) == ST_OK, "%s", e.message);
    CHECK(comm_use_device(w, d, &e) == ST_USAGE, "one GPU serves two ranks by NCCL");
    CHECK(strstr(e.message, "ranks 0 and 1 share a GPU"), "%s", e.message);
    comm_leave_device(w, d);
    dev_close(d);
}

/* What each rank has in its environment; NULL: nothing. */
typedef struct words {
    const char *of[2];
    const char *why; /* NULL: the ranks go by the host's memory */
} words;

static void rank_has_word(comm_world *w, void *ctx) {
    const words *all = ctx;
    const char *own = all->of[comm_world_rank(w)];
    dev *d;
    err e = {0};
    comm_set_timeout(w, 10);
    if (own) setenv("ATHANOR_NCCL", own, 1);
    CHECK(dev_open_of_rank(&d, DEV_CUDA, comm_rank_here(w), 1, &e) == ST_OK, "%s", e.message);
    CHECK(comm_use_device(w, d, &e) == (all->why ? ST_USAGE : ST_OK), "%s", e.message);
    CHECK(!all->why || strstr(e.message, all->why), "%s", e.message);
    CHECK(!comm_by_nccl(w), "NCCL is used");
    comm_leave_device(w, d);
    dev_close(d);
}

static void test_choice(void **state) {
    (void)state;
    way how = {false, 2};
    choose(&how);
    setenv("ATHANOR_NCCL", "on", 1);
    run_threads(2, rank_wants_nccl, NULL);
    setenv("ATHANOR_NCCL", "off", 1);
    setenv("ATHANOR_CUDA_COUNT", "8", 1);
    run_threads(2, rank_mixes, &how);
    unsetenv("ATHANOR_NCCL");
    run_processes(2, rank_has_word, &(words){{NULL, "off"}, NULL});
    run_processes(2, rank_has_word, &(words){{"on", "off"}, "rank 1 has ATHANOR_NCCL=off"});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind), cmocka_unit_test(test_long_ones),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_missing_event),
        cmocka_unit_test(test_late_ranks), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_two_waits),  cmocka_unit_test(test_groups),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
