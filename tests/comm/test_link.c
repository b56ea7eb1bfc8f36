/* A slow link on a fast machine: the delay is there, the side stream hides it behind computation,
 * and observers are told what passed. */
#include "comm_test.h"

#include <time.h>

#include "base/clock.h"

static const comm_link SLOW = {.latency_s = 0.02, .bytes_per_s = 1e6};

enum { N = 20000 }; /* floats: two ranks send 80,000 bytes each, 80 ms */

static const double TAKES_S = 0.1;

/* What stands for computation must take time, not the core of the other rank. */
static void compute(double seconds) {
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* A machine that does other things is tried until it has a moment for both ranks. */
enum { TRIES = 100 };

/* Seconds of a collective on the side stream and as much computation, which one after the other
 * would take twice TAKES_S. The slowest rank's, so that all ranks know the same. */
static double run_beside(comm_world *w, comm *c, const comm_call *call) {
    comm_barrier(c);
    int64_t begin = clock_now_ns();
    comm_ticket t = comm_start(c, call);
    compute(TAKES_S);
    comm_wait(w, t);
    double took = clock_since_s(begin);
    comm_run(c, &(comm_call){.kind = COMM_ALL_REDUCE,
                             .sum = COMM_MAX,
                             .in = &took,
                             .out = &took,
                             .n = 1,
                             .dt = DT_F64});
    return took;
}

static void rank_is_delayed(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    float *x = xcalloc(N, sizeof *x);
    comm_call call = {.kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = N, .dt = DT_F32};
    comm_set_link(w, SLOW);
    int64_t begin = clock_now_ns();
    comm_run(c, &call);
    double blocking = clock_since_s(begin);
    CHECK(blocking >= TAKES_S, "it took %g s", blocking);
    double beside = 1e9;
    for (int i = 0; i < TRIES && beside > 1.5 * TAKES_S; i++) beside = run_beside(w, c, &call);
    CHECK(beside >= TAKES_S && beside < 1.8 * TAKES_S, "not hidden: %g s", beside);
    comm_set_link(w, (comm_link){0});
    free(x);
}

static void test_delay(void **state) {
    (void)state;
    run_threads(2, rank_is_delayed, NULL);
    run_processes(2, rank_is_delayed, NULL);
}

/* ---- observers ---- */

typedef struct seen {
    int n, side;
    comm_event last;
    const char *what;
} seen;

static void see(void *ctx, const comm_event *ev) {
    seen *s = ctx;
    s->n++;
    s->side += ev->side;
    s->last = *ev;
    s->what = ev->call->what;
}

static void rank_is_observed(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    seen s = {0};
    float x[6] = {0}, all[24];
    comm_observe(w, see, &s);
    comm_run(c, &(comm_call){.kind = COMM_ALL_GATHER,
                             .in = x,
                             .out = all,
                             .n = 6,
                             .dt = DT_F32,
                             .what = "weights of layers.0"});
    CHECK(s.n == 1 && s.side == 0 && strcmp(s.what, "weights of layers.0") == 0, "seen");
    CHECK(s.last.sent_bytes == 3 * 24 && s.last.end_ns >= s.last.begin_ns, "sent");
    comm_wait(
        w, comm_start(
               c, &(comm_call){.kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = 6, .dt = DT_F32}));
    CHECK(s.n == 2 && s.side == 1, "seen on the side");
    comm_observe(w, NULL, NULL);
    comm_barrier(c);
    CHECK(s.n == 2, "no longer");
    CHECK(comm_counted(w).sent_bytes[COMM_ALL_GATHER] == 72, "counted");
}

static void test_observer(void **state) {
    (void)state;
    run_threads(4, rank_is_observed, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delay),
        cmocka_unit_test(test_observer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
