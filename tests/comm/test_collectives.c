/* Every collective on every number format, against plain loops: the same bits on all ranks, on
 * threads and on processes, in place and not, whatever the size. */
#include "comm_test.h"
#include "comm/world.h"
#include "dev/dev_int.h"

/* Deterministic values: small integers and fractions of many magnitudes, so that the order of a sum
 * shows in its bits. */
static double value_of(int rank, int64_t i) {
    uint32_t h = ((uint32_t)rank * 7919u + (uint32_t)i) * 2654435761u;
    h ^= h >> 15;
    double mantissa = 1.0 + (double)(h & 0xffff) / 65536.0;
    double scale = (double)(1u << (h >> 16 & 15)) / 256.0;
    return (h >> 31 ? -1 : 1) * mantissa * scale;
}

static void put(void *data, dtype dt, int64_t i, double x) {
    switch (dt) {
        case DT_F32: ((float *)data)[i] = (float)x; break;
        case DT_F64: ((double *)data)[i] = x; break;
        case DT_BF16: ((uint16_t *)data)[i] = f32_to_bf16((float)x); break;
        case DT_F16: ((uint16_t *)data)[i] = f32_to_f16((float)x); break;
        case DT_I32: ((int32_t *)data)[i] = (int32_t)(x * 8e6); break;
        case DT_I64: ((int64_t *)data)[i] = (int64_t)(x * 1e15); break;
        default: ((uint8_t *)data)[i] = (uint8_t)(int64_t)(x * 256); break;
    }
}

static void fill(void *data, dtype dt, int rank, int64_t from, int64_t n) {
    for (int64_t i = 0; i < n; i++) put(data, dt, i, value_of(rank, from + i));
}

/* ---- what is expected ---- */

static float through_bf16(float x) {
    return bf16_to_f32(f32_to_bf16(x));
}
static float through_f16(float x) {
    return f16_to_f32(f32_to_f16(x));
}

typedef struct sums {
    comm_sum op;
    bool narrow, narrow_result;
    const void *add; /* NULL, or what out held */
} sums;

#define JOIN(a, b) (s->op == COMM_MAX ? ((b) > (a) ? (b) : (a)) : (a) + (b))

static float sum_f32(const int *ranks, int n, int64_t i, const sums *s, dtype dt) {
    float acc = 0;
    for (int r = 0; r < n; r++) {
        float x = (float)value_of(ranks[r], i);
        if (s->narrow || dt == DT_BF16) x = through_bf16(x);
        if (dt == DT_F16) x = through_f16(x);
        acc = r == 0 ? x : JOIN(acc, x);
    }
    return s->narrow_result ? through_bf16(acc) : acc;
}

static double sum_f64(const int *ranks, int n, int64_t i, const sums *s) {
    double acc = value_of(ranks[0], i);
    for (int r = 1; r < n; r++) acc = JOIN(acc, value_of(ranks[r], i));
    return acc;
}

static int64_t sum_int(const int *ranks, int n, int64_t i, const sums *s, double scale) {
    int64_t acc = (int64_t)(value_of(ranks[0], i) * scale);
    for (int r = 1; r < n; r++) acc = JOIN(acc, (int64_t)(value_of(ranks[r], i) * scale));
    return acc;
}

/* Elements [from, from + n) of the sum over `ranks`. */
static void expect_sum(void *out, dtype dt, const int *ranks, int n_ranks, int64_t from, int64_t n,
                       const sums *s) {
    for (int64_t j = 0; j < n; j++) {
        int64_t i = from + j;
        bool in_f32 = dt == DT_F32 || dt == DT_BF16 || dt == DT_F16;
        float x = in_f32 ? sum_f32(ranks, n_ranks, i, s, dt) : 0;
        switch (dt) {
            case DT_F32:
                ((float *)out)[j] = s->add ? JOIN(((const float *)s->add)[j], x) : x;
                break;
            case DT_BF16:
                if (s->add) x = JOIN(x, bf16_to_f32(((const uint16_t *)s->add)[j]));
                ((uint16_t *)out)[j] = f32_to_bf16(x);
                break;
            case DT_F16:
                if (s->add) x = JOIN(x, f16_to_f32(((const uint16_t *)s->add)[j]));
                ((uint16_t *)out)[j] = f32_to_f16(x);
                break;
            case DT_F64: {
                double y = sum_f64(ranks, n_ranks, i, s);
                ((double *)out)[j] = s->add ? JOIN(((const double *)s->add)[j], y) : y;
                break;
            }
            case DT_I32: {
                int32_t y = (int32_t)sum_int(ranks, n_ranks, i, s, 8e6);
                ((int32_t *)out)[j] =
                    s->add ? (int32_t)JOIN((int64_t)((const int32_t *)s->add)[j], y) : y;
                break;
            }
            default: {
                int64_t y = sum_int(ranks, n_ranks, i, s, 1e15);
                ((int64_t *)out)[j] = s->add ? JOIN(((const int64_t *)s->add)[j], y) : y;
            }
        }
    }
}

/* ---- one collective on one rank ---- */

/* What is tried: a group, a format, a size, and where buffers lie. */
typedef struct trial {
    const int *ranks; /* of the world */
    comm *c;
    dtype dt;
    int64_t n;
    bool in_place, side;
} trial;

static void launch(const trial *t, const comm_call *call) {
    if (t->side)
        comm_wait(t->c->world, comm_start(t->c, call));
    else
        comm_run(t->c, call);
}

static void check_same(const trial *t, const void *got, const void *want, int64_t n,
                       const char *what) {
    size_t bytes = dtype_bytes(t->dt);
    for (int64_t i = 0; i < n; i++)
        CHECK(memcmp((const char *)got + (size_t)i * bytes, (const char *)want + (size_t)i * bytes,
                     bytes) == 0,
              "%s of %lld %s on rank %d of %d: element %lld differs", what, (long long)t->n,
              dtype_name(t->dt), comm_rank(t->c), comm_size(t->c), (long long)i);
}

static int my_rank(const trial *t) {
    return t->ranks[comm_rank(t->c)];
}

static void *room(const trial *t, int64_t n) {
    return xcalloc((size_t)n, dtype_bytes(t->dt));
}

static void try_all_reduce(const trial *t, comm_sum op, bool narrow) {
    void *in = room(t, t->n), *out = t->in_place ? in : room(t, t->n), *want = room(t, t->n);
    fill(in, t->dt, my_rank(t), 0, t->n);
    launch(t, &(comm_call){.kind = COMM_ALL_REDUCE,
                           .sum = op,
                           .in = in,
                           .out = out,
                           .n = t->n,
                           .dt = t->dt,
                           .narrow = narrow,
                           .what = "all"});
    sums s = {.op = op, .narrow = narrow, .narrow_result = narrow};
    if (comm_size(t->c) == 1) s.narrow = s.narrow_result = false;
    expect_sum(want, t->dt, t->ranks, comm_size(t->c), 0, t->n, &s);
    check_same(t, out, want, t->n, "all-reduce");
    if (out != in) free(out);
    free(in);
    free(want);
}

static void try_reduce_scatter(const trial *t, comm_sum op, bool narrow, bool add) {
    int64_t total = t->n * comm_size(t->c), mine = t->n * comm_rank(t->c);
    size_t bytes = dtype_bytes(t->dt);
    char *in = room(t, total), *apart = room(t, t->n), *before = room(t, t->n);
    char *out = t->in_place && !add ? in + (size_t)mine * bytes : apart, *want = room(t, t->n);
    fill(in, t->dt, my_rank(t), 0, total);
    fill(apart, t->dt, 99, 0, t->n);
    fill(before, t->dt, 99, 0, t->n);
    launch(t, &(comm_call){.kind = COMM_REDUCE_SCATTER,
                           .sum = op,
                           .in = in,
                           .out = out,
                           .n = t->n,
                           .dt = t->dt,
                           .narrow = narrow,
                           .add = add,
                           .what = "scatter"});
    sums s = {.op = op, .narrow = narrow && comm_size(t->c) > 1, .add = add ? before : NULL};
    expect_sum(want, t->dt, t->ranks, comm_size(t->c), mine, t->n, &s);
    check_same(t, out, want, t->n, "reduce-scatter");
    free(in);
    free(apart);
    free(before);
    free(want);
}

static void try_all_gather(const trial *t) {
    int64_t total = t->n * comm_size(t->c);
    size_t part = (size_t)t->n * dtype_bytes(t->dt);
    char *out = room(t, total), *apart = room(t, t->n), *want = room(t, total);
    char *in = t->in_place ? out + (size_t)comm_rank(t->c) * part : apart;
    fill(in, t->dt, my_rank(t), 0, t->n);
    for (int r = 0; r < comm_size(t->c); r++)
        fill(want + (size_t)r * part, t->dt, t->ranks[r], 0, t->n);
    launch(t,
           &(comm_call){
               .kind = COMM_ALL_GATHER, .in = in, .out = out, .n = t->n, .dt = t->dt, .what = "g"});
    check_same(t, out, want, total, "all-gather");
    free(out);
    free(apart);
    free(want);
}

static void try_broadcast(const trial *t, int root) {
    char *out = room(t, t->n), *want = room(t, t->n);
    fill(want, t->dt, t->ranks[root], 0, t->n);
    if (comm_rank(t->c) == root) fill(out, t->dt, my_rank(t), 0, t->n);
    launch(t,
           &(comm_call){.kind = COMM_BROADCAST, .out = out, .n = t->n, .dt = t->dt, .root = root});
    check_same(t, out, want, t->n, "broadcast");
    free(out);
    free(want);
}

/* Part p of what rank r sends begins at element p * n of its numbers. */
static void try_all_to_all(const trial *t) {
    int64_t total = t->n * comm_size(t->c);
    size_t part = (size_t)t->n * dtype_bytes(t->dt);
    char *in = room(t, total), *out = room(t, total), *want = room(t, total);
    fill(in, t->dt, my_rank(t), 0, total);
    for (int r = 0; r < comm_size(t->c); r++)
        fill(want + (size_t)r * part, t->dt, t->ranks[r], comm_rank(t->c) * t->n, t->n);
    launch(t, &(comm_call){.kind = COMM_ALL_TO_ALL, .in = in, .out = out, .n = t->n, .dt = t->dt});
    check_same(t, out, want, total, "all-to-all");
    free(in);
    free(out);
    free(want);
}

static void try_shift(const trial *t) {
    int n = comm_size(t->c), before = (comm_rank(t->c) + n - 1) % n;
    void *in = room(t, t->n), *out = room(t, t->n), *want = room(t, t->n);
    fill(in, t->dt, my_rank(t), 0, t->n);
    fill(want, t->dt, t->ranks[before], 0, t->n);
    launch(t, &(comm_call){.kind = COMM_SHIFT, .in = in, .out = out, .n = t->n, .dt = t->dt});
    check_same(t, out, want, t->n, "shift");
    free(in);
    free(out);
    free(want);
}

static void try_everything(const trial *t) {
    if (t->dt != DT_U8) {
        for (comm_sum op = COMM_SUM; op <= COMM_MAX; op++) {
            try_all_reduce(t, op, false);
            try_reduce_scatter(t, op, false, false);
            try_reduce_scatter(t, op, false, true);
        }
    }
    if (t->dt == DT_F32) {
        try_all_reduce(t, COMM_SUM, true);
        try_reduce_scatter(t, COMM_SUM, true, false);
        try_reduce_scatter(t, COMM_SUM, true, true);
    }
    try_all_gather(t);
    try_broadcast(t, comm_size(t->c) - 1);
    if (t->in_place) return;
    try_all_to_all(t);
    try_shift(t);
}

/* ---- on worlds ---- */

static void try_group(comm *c, const int *ranks, const int64_t *sizes, int n_sizes) {
    static const dtype DTYPES[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64, DT_U8};
    for (int d = 0; d < ARRAY_LEN(DTYPES); d++)
        for (int i = 0; i < n_sizes; i++)
            for (int how = 0; how < 4; how++)
                try_everything(&(trial){.ranks = ranks,
                                        .c = c,
                                        .dt = DTYPES[d],
                                        .n = sizes[i],
                                        .in_place = how & 1,
                                        .side = how >> 1});
}

static const int ALL[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};

static void rank_tries_small(comm_world *w, void *ctx) {
    static const int64_t SIZES[] = {0, 1, 1023, 4099};
    (void)ctx;
    try_group(everyone(w), ALL, SIZES, ARRAY_LEN(SIZES));
}

/* Four pieces per part, with a remainder. */
static void rank_tries_large(comm_world *w, void *ctx) {
    (void)ctx;
    comm *c = everyone(w);
    for (int how = 0; how < 2; how++) {
        trial t = {.ranks = ALL, .c = c, .dt = DT_F32, .in_place = how, .side = how};
        t.n = 200003 * comm_size(c);
        try_all_reduce(&t, COMM_SUM, how);
        t.n = 200003;
        try_reduce_scatter(&t, COMM_SUM, how, !how);
        try_all_gather(&t);
        try_broadcast(&t, 0);
        try_all_to_all(&t);
        try_shift(&t);
    }
}

static void test_threads(void **state) {
    (void)state;
    static const int RANKS[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < ARRAY_LEN(RANKS); i++) run_threads(RANKS[i], rank_tries_small, NULL);
    run_threads(3, rank_tries_large, NULL);
}

static void test_processes(void **state) {
    (void)state;
    static const int RANKS[] = {1, 2, 3, 8};
    for (int i = 0; i < ARRAY_LEN(RANKS); i++) run_processes(RANKS[i], rank_tries_small, NULL);
    run_processes(2, rank_tries_large, NULL);
    run_processes(3, rank_tries_large, NULL);
}

static void test_alone(void **state) {
    (void)state;
    comm_world *w = comm_open_self();
    rank_tries_small(w, NULL);
    assert_string_equal(comm_world_kind(w), "self");
    comm_close(w);
}

/* Groups {0,1,2} and {1,2,3}, one after the other and the other way round on the two streams. */
static void rank_overlaps(comm_world *w, void *ctx) {
    static const int64_t SIZES[] = {5, 3001};
    (void)ctx;
    int r = comm_world_rank(w);
    for (int from = 0; from <= 1; from++)
        if (r >= from && r < from + 3) {
            const int ranks[] = {from, from + 1, from + 2};
            try_group(comm_group(w, ranks, 3), ranks, SIZES, 2);
        }
    int odd[] = {r % 2, r % 2 + 2};
    try_group(comm_group(w, odd, 2), odd, SIZES, 2);
}

static void test_groups(void **state) {
    (void)state;
    run_threads(4, rank_overlaps, NULL);
    run_processes(4, rank_overlaps, NULL);
}

/* Many calls under way on the side stream while the caller's thread reduces, too. */
static void rank_mixes_streams(comm_world *w, void *ctx) {
    enum { CALLS = 300, N = 2000 };
    (void)ctx;
    comm *c = everyone(w);
    float *side = xcalloc(CALLS * N, sizeof *side);
    int64_t before = comm_counted(w).calls[COMM_ALL_REDUCE];
    comm_ticket last = 0;
    for (int i = 0; i < CALLS; i++) {
        float *x = side + i * N;
        for (int j = 0; j < N; j++) x[j] = (float)(comm_rank(c) + i + j);
        last = comm_start(
            c,
            &(comm_call){
                .kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = N, .dt = DT_F32, .what = "side"});
        int64_t sum[2] = {i, comm_rank(c)};
        comm_sum_i64(c, sum, 2);
        CHECK(sum[0] == (int64_t)i * comm_size(c), "call %d", i);
    }
    comm_wait(w, last);
    int n = comm_size(c);
    for (int i = 0; i < CALLS * N; i++) {
        float want = (float)(n * (i / N + i % N) + n * (n - 1) / 2);
        CHECK(side[i] == want, "element %d is %g, not %g", i, (double)side[i], (double)want);
    }
    CHECK(comm_counted(w).calls[COMM_ALL_REDUCE] - before == 2 * CALLS, "calls are counted");
    free(side);
}

static void test_streams(void **state) {
    (void)state;
    run_threads(2, rank_mixes_streams, NULL);
    run_threads(4, rank_mixes_streams, NULL);
    run_processes(3, rank_mixes_streams, NULL);
}

/* Traffic: 2(n-1)/n of the vector for an all-reduce, half of it when narrow. */
static void rank_counts_bytes(comm_world *w, void *ctx) {
    enum { N = 64000 };
    (void)ctx;
    comm *c = everyone(w);
    float *x = xcalloc(N, sizeof *x);
    int64_t n = comm_size(c), least = 2 * (n - 1) * N * 4 / n;
    comm_run(c, &(comm_call){.kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = N, .dt = DT_F32});
    CHECK(comm_counted(w).sent_bytes[COMM_ALL_REDUCE] == least, "%lld bytes",
          (long long)comm_counted(w).sent_bytes[COMM_ALL_REDUCE]);
    comm_run(c,
             &(comm_call){
                 .kind = COMM_ALL_REDUCE, .in = x, .out = x, .n = N, .dt = DT_F32, .narrow = true});
    CHECK(comm_counted(w).sent_bytes[COMM_ALL_REDUCE] == least * 3 / 2, "narrow is half");
    free(x);
}

static void test_traffic(void **state) {
    (void)state;
    run_threads(2, rank_counts_bytes, NULL);
    run_processes(4, rank_counts_bytes, NULL);
}

/* Rank 1 does not come any more. */
static int hang(comm_world *w) {
    err e = {0};
    comm *c = everyone(w);
    comm_barrier(c);
    comm_set_timeout(w, 2);
    for (int i = 0; comm_world_rank(w) == 1 && i < 60 && comm_check(w, NULL) == ST_OK; i++)
        sleep(1);
    comm_barrier(c);
    CHECK(comm_check(w, &e) == ST_RANK, "nobody has noticed");
    comm_close(w); /* ends all ranks */
    return 0;
}

/* What a rank has sent comes while that rank is in no collective: it waits for a file that the other one makes then. */
static int send_and_go_on(comm_world *w) {
    static const char RECEIVED[] = "received";
    static const int64_t BYTES = 4 << 20;
    comm *c = everyone(w);
    char *data = xcalloc(1, (size_t)BYTES);
    comm_barrier(c);
    comm_run(c, &(comm_call){.kind = COMM_SEND, .out = data, .n = BYTES, .dt = DT_U8});
    if (comm_world_rank(w) == 1) fclose(fopen(RECEIVED, "w"));
    for (int i = 0; i < 2000 && access(RECEIVED, F_OK) != 0; i++) usleep(10000);
    CHECK(access(RECEIVED, F_OK) == 0, "what was sent does not come");
    comm_barrier(c);
    comm_close(w);
    free(data);
    return 0;
}

static int tell_threads(comm_world *w) {
    printf("threads of a rank: %d\n", dev_default_threads());
    comm_close(w);
    return 0;
}

/* Started as a rank by somebody else: tests/cli/test_mpi.sh. */
static int run_as_rank(const char *scene) {
    comm_world *w;
    err e = {0};
    CHECK(comm_open_environment(&w, &e) == ST_OK, "%s", e.message);
    if (strcmp(scene, "hang") == 0) return hang(w);
    if (strcmp(scene, "send") == 0) return send_and_go_on(w);
    if (strcmp(scene, "threads") == 0) return tell_threads(w);
    rank_tries_small(w, NULL);
    rank_tries_large(w, NULL);
    rank_mixes_streams(w, NULL);
    if (comm_world_rank(w) == 0)
        printf("%d ranks (%s): all passed\n", comm_world_size(w), comm_world_kind(w));
    comm_close(w);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return run_as_rank(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_streams),   cmocka_unit_test(test_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
