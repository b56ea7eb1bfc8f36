/* The emulated device finds mistakes: kernels with one each (planted.cu) are run, and the fault must
 * name the kernel and the line, with every order of threads; what is right must pass. */
#include "test.h"

#include "gpu/driver.h"
#include "gpu/planted.h"

enum { BLOCKS = 3, N = BLOCKS * PLANTED_THREADS, SEEDS = 8 };

typedef struct mistake {
    const char *name;
    const gpu_kernel *const *kernel;
    const char *says; /* NULL: nothing is wrong */
} mistake;

static const mistake MISTAKES[] = {
    {"good", &planted_good, NULL},
    {"missing_barrier", &planted_missing_barrier, "since the last barrier"},
    {"missing_second_barrier", &planted_missing_second_barrier, "since the last barrier"},
    {"divergent_barrier", &planted_divergent_barrier, "has ended"},
    {"other_barrier", &planted_other_barrier, "waits at line"},
    {"divergent_shuffle", &planted_divergent_shuffle, "has ended"},
    {"one_too_far", &planted_one_too_far, "of x, which has"},
    {"one_too_early", &planted_one_too_early, "of y, which"},
    {"shared_too_small", &planted_shared_too_small, "the shared array tile, which has 252"},
    {"shared_unwritten", &planted_shared_unwritten, "which nobody has written"},
    {"shared_atomics", &planted_shared_atomics, NULL},
    {"shared_atomic_too_far", &planted_shared_atomic_too_far, "byte 32 of the shared array sums"},
    {"atomic_beside_plain", &planted_atomic_beside_plain, "since the last barrier"},
    {"atomic_on_unwritten", &planted_atomic_on_unwritten, "which nobody has written"},
    {"unwritten_output", &planted_unwritten_output, "row 0, number 70 of y was never written"},
    {"reads_output", &planted_reads_output, "which nobody has written"},
    {"writes_input", &planted_writes_input, "only to be read"},
    {"misaligned", &planted_misaligned, "no multiple of 16"},
    {"blocks_collide", &planted_blocks_collide, "in the same launch"},
    {"copy_not_waited_for", &planted_copy_not_waited_for, "before its copies have arrived"},
    {"warp_meets", &planted_warp_meets, NULL},
    {"missing_sync_warp", &planted_missing_sync_warp, "since the last barrier"},
    {"shuffle_for_sync_warp", &planted_shuffle_for_sync_warp, "since the last barrier"},
    {"sync_warp_for_a_block", &planted_sync_warp_for_a_block, "since the last barrier"},
};

/* Whether the fault names a line of planted.cu that ends with "fault: NAME"; -1: there is none. Which of
 * two accesses that collide is the second depends on the order of threads. */
static int names_line(const char *fault, const char *name) {
    FILE *f = fopen(TEST_DIR "/gpu/planted.cu", "r");
    char text[256], mark[64], at[64];
    int line = 0, named = -1;
    assert_non_null(f);
    snprintf(mark, sizeof mark, "fault: %s */", name);
    while (fgets(text, sizeof text, f)) {
        line++;
        if (!strstr(text, mark)) continue;
        snprintf(at, sizeof at, "planted.cu:%d:", line);
        if (named < 1) named = strstr(fault, at) != NULL;
    }
    fclose(f);
    return named;
}

static void check_fault(const mistake *m, const char *fault) {
    char kernel[64];
    if (!m->says) {
        if (fault) fail_msg("%s: %s", m->name, fault);
        return;
    }
    if (!fault) fail_msg("%s was not found", m->name);
    if (!strstr(fault, m->says)) fail_msg("%s: %s", m->name, fault);
    int named = names_line(fault, m->name);
    if (named < 0) return; /* nobody did it: there is no line */
    snprintf(kernel, sizeof kernel, "kernel %s_", m->name);
    if (!named || !strstr(fault, kernel)) fail_msg("%s, at another line: %s", m->name, fault);
}

static void run(const mistake *m, uint64_t seed) {
    float x[N + 4], y[N + 4];
    for (int i = 0; i < N + 4; i++) x[i] = (float)i;
    emu_device *d = emu_device_new(seed, 1 + (int)(seed % 2));
    const gpu_range ranges[] = {
        {"x", x + 2, 1, N * 4, N * 4, GPU_READ, 4},
        {"y", y + 2, 1, N * 4, N * 4, GPU_WRITE, 4},
    };
    planted_args a = {x + 2, y + 2, N};
    emu_scope_begin(d, m->name, ranges, 2);
    emu_launch(d, *m->kernel, &(gpu_grid){BLOCKS, 1, 1, PLANTED_THREADS, 0}, &a);
    emu_scope_end(d);
    check_fault(m, emu_fault(d));
    emu_device_free(d);
}

static void test_mistakes_are_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof MISTAKES / sizeof *MISTAKES; i++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) run(&MISTAKES[i], seed);
}

/* x lies in a gap between the two rows of "around", which comes first: the fault must name x. */
static void test_rows_in_gaps_are_named(void **state) {
    (void)state;
    float x[N + 2] = {0}, y[N];
    emu_device *d = emu_device_new(0, 1);
    const gpu_range ranges[] = {
        {"around", x, 2, 4, (N + 1) * 4, GPU_READ, 4},
        {"x", x + 1, 1, N * 4, N * 4, GPU_READ, 4},
        {"y", y, 1, N * 4, N * 4, GPU_WRITE, 4},
    };
    planted_args a = {x + 1, y, N};
    emu_scope_begin(d, "rows in gaps", ranges, 3);
    emu_launch(d, planted_writes_input, &(gpu_grid){BLOCKS, 1, 1, PLANTED_THREADS, 0}, &a);
    emu_scope_end(d);
    assert_non_null(emu_fault(d));
    assert_non_null(strstr(emu_fault(d), "of x, which is only to be read"));
    emu_device_free(d);
}

/* An op that works in place, with numbers of another width, so that input and output are not one range. */
static void test_races_in_place_are_found(void **state) {
    (void)state;
    static const mistake kernels[] = {
        {"narrow_in_place", &planted_narrow_in_place, NULL},
        {"narrow_too_early", &planted_narrow_too_early, "since the last barrier"},
    };
    for (int i = 0; i < 2 * SEEDS; i++) {
        float x[N] = {0};
        const mistake *m = &kernels[i % 2];
        emu_device *d = emu_device_new((uint64_t)i, 1);
        const gpu_range ranges[] = {
            {"x", x, 1, N * 4, N * 4, GPU_READ, 4},
            {"y", x, BLOCKS, PLANTED_THREADS * 2, PLANTED_THREADS * 4, GPU_WRITE, 2},
        };
        planted_args a = {x, x, N};
        emu_scope_begin(d, m->name, ranges, 2);
        emu_launch(d, *m->kernel, &(gpu_grid){BLOCKS, 1, 1, PLANTED_THREADS, 0}, &a);
        emu_scope_end(d);
        check_fault(m, emu_fault(d));
        emu_device_free(d);
    }
}

/* Dynamic memory of 96 KB and arrays of 4 KB: not every GPU has so much. */
static void test_shared_memory_is_limited(void **state) {
    (void)state;
    float x[N] = {0}, y[N];
    planted_args a = {x, y, N};
    emu_device *d = emu_device_new(0, 1);
    emu_memory_add(d, x, sizeof x);
    emu_memory_add(d, y, sizeof y);
    emu_launch(d, planted_shared_and_dynamic, &(gpu_grid){BLOCKS, 1, 1, PLANTED_THREADS, 1024}, &a);
    assert_non_null(emu_fault(d));
    assert_non_null(strstr(emu_fault(d), "102400 bytes of shared memory, and there are 101376"));
    emu_device_free(d);
}

static void test_impossible_grids_are_refused(void **state) {
    (void)state;
    static const gpu_grid grids[] = {
        {1, 1, 1, 2 * PLANTED_THREADS, 0}, /* more threads than the kernel was compiled for */
        {1, 1, 1, 33, 0},                  /* no whole warps */
        {1, 70000, 1, 32, 0},
        {1, 1, 1, 32, GPU_MOST_DYNAMIC_BYTES + 4},
    };
    planted_args a = {0};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        emu_device *d = emu_device_new(0, 1);
        emu_launch(d, planted_good, &grids[i], &a);
        assert_non_null(emu_fault(d));
        assert_non_null(strstr(emu_fault(d), "cannot have a grid"));
        emu_device_free(d);
    }
}

/* ---- streams ---- */

typedef struct two_streams {
    cu_driver api;
    cu_context context;
    cu_stream a, b;
    cu_event copied;
    cu_ptr p, q;
    int32_t *word; /* pinned; has a 7 */
} two_streams;

static void open_streams(two_streams *t, const char *seed) {
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_CUDA_SEED", seed, 1);
    assert_int_equal(cu_driver_open(&t->api, NULL), ST_OK);
    t->api.context_retain(&t->context, 0);
    t->api.context_set(t->context);
    t->api.stream_create(&t->a, 0);
    t->api.stream_create(&t->b, 0);
    t->api.event_create(&t->copied, 0);
    t->api.mem_alloc(&t->p, N * 4);
    t->api.mem_alloc(&t->q, N * 4);
    t->api.mem_host_alloc((void **)&t->word, sizeof *t->word, 0);
    *t->word = 7;
}

static void close_streams(two_streams *t) {
    t->api.mem_free(t->p);
    t->api.mem_free(t->q);
    t->api.mem_host_free(t->word);
    t->api.event_destroy(t->copied);
    t->api.stream_destroy(t->a);
    t->api.stream_destroy(t->b);
    emu_context_free(t->context);
    cu_driver_close(&t->api);
}

/* Stream a writes 7 to p; stream b copies p to q, after a's event or without. What q then has. */
static int32_t copied_over(const char *seed, bool with_event) {
    two_streams t;
    int32_t got = 0;
    open_streams(&t, seed);
    t.api.copy_in(t.p, t.word, 4, t.a);
    t.api.event_record(t.copied, t.a);
    if (with_event) t.api.stream_wait(t.b, t.copied, 0);
    t.api.copy(t.q, t.p, 4, t.b);
    t.api.copy_out(&got, t.q, 4, t.b);
    t.api.stream_sync(t.b);
    close_streams(&t);
    return got;
}

static void test_missing_event_shows(void **state) {
    (void)state;
    int right = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        char text[8];
        snprintf(text, sizeof text, "%d", seed);
        assert_int_equal(copied_over(text, true), 7);
        right += copied_over(text, false) == 7;
    }
    assert_true(right < SEEDS);
}

/* What waits for a stream's event, and the event, outlive the stream. */
static void test_streams_go_before_their_events(void **state) {
    (void)state;
    two_streams t;
    int32_t got = 0;
    open_streams(&t, "1");
    t.api.copy_in(t.p, t.word, 4, t.a);
    t.api.event_record(t.copied, t.a);
    t.api.stream_wait(t.b, t.copied, 0);
    t.api.copy_out(&got, t.p, 4, t.b);
    t.api.stream_destroy(t.a);
    t.api.stream_create(&t.a, 0);
    assert_int_equal(t.api.event_sync(t.copied), 0);
    assert_int_equal(t.api.stream_sync(t.b), 0);
    assert_int_equal(got, 7);
    close_streams(&t);
}

/* The kernel copies N numbers in a stream. */
static void give_kernel(two_streams *t, cu_stream s, cu_ptr to, cu_ptr from) {
    planted_args a = {(const float *)(uintptr_t)from, (float *)(uintptr_t)to, N};
    void *params[] = {&a};
    const gpu_range ranges[] = {
        {"x", a.x, 1, N * 4, N * 4, GPU_READ, 4},
        {"y", a.y, 1, N * 4, N * 4, GPU_WRITE, 4},
    };
    emu_stream_scope(s, "planted", ranges, 2);
    t->api.launch((cu_function)(uintptr_t)planted_missing_event, BLOCKS, 1, 1, PLANTED_THREADS, 1,
                  1, 0, s, params, NULL);
    emu_stream_scope_end(s);
}

typedef enum between { NOTHING, AN_EVENT, THE_HOST } between;

/* A kernel of stream a copies p to q; one of stream b, or a copy, brings q to p. The fault, in room. */
static const char *order_fault(int seed, between how, bool kernels, char room[EMU_FAULT_MAX]) {
    two_streams t;
    char text[8];
    snprintf(text, sizeof text, "%d", seed);
    open_streams(&t, text);
    t.api.fill(t.p, 0, N * 4, t.a);
    t.api.stream_sync(t.a);
    give_kernel(&t, t.a, t.q, t.p);
    t.api.event_record(t.copied, t.a);
    if (how == AN_EVENT) t.api.stream_wait(t.b, t.copied, 0);
    if (how == THE_HOST) t.api.event_sync(t.copied);
    if (kernels)
        give_kernel(&t, t.b, t.p, t.q);
    else
        t.api.copy(t.p + 4, t.q + 4, 8, t.b);
    t.api.stream_sync(t.b);
    t.api.stream_sync(t.a);
    const char *fault = emu_context_fault(t.context);
    if (fault) snprintf(room, EMU_FAULT_MAX, "%s", fault);
    close_streams(&t);
    return fault ? room : NULL;
}

/* Whichever stream went first, and whatever came out. */
static void test_missing_event_is_named(void **state) {
    (void)state;
    const mistake m = {"missing_event", &planted_missing_event, "and no event orders the two"};
    char room[EMU_FAULT_MAX];
    for (int seed = 0; seed < SEEDS; seed++) {
        check_fault(&m, order_fault(seed, NOTHING, true, room));
        const char *fault = order_fault(seed, NOTHING, false, room);
        assert_non_null(fault);
        assert_non_null(strstr(fault, m.says));
        for (int kernels = 0; kernels < 2; kernels++) {
            assert_null(order_fault(seed, AN_EVENT, kernels, room));
            assert_null(order_fault(seed, THE_HOST, kernels, room));
        }
    }
}

/* When the driver has read memory that is not pinned it does not say. */
static void test_pageable_memory_is_refused(void **state) {
    (void)state;
    two_streams t;
    int32_t seven = 7;
    open_streams(&t, "1");
    assert_int_equal(t.api.copy_in(t.p, t.word, 4, t.a), 0);
    assert_int_not_equal(t.api.copy_in(t.p, &seven, 4, t.a), 0);
    assert_non_null(strstr(emu_context_fault(t.context), "not pinned"));
    close_streams(&t);
}

static void test_context_must_be_current(void **state) {
    (void)state;
    two_streams t;
    open_streams(&t, "1");
    t.api.context_set(NULL);
    t.api.fill(t.p, 0, 4, t.a);
    assert_non_null(emu_context_fault(t.context));
    assert_non_null(strstr(emu_context_fault(t.context), "context"));
    t.api.context_set(t.context);
    close_streams(&t);
}

static void test_copies_lie_apart(void **state) {
    (void)state;
    two_streams t;
    open_streams(&t, "1");
    t.api.copy(t.p + 8, t.p, 8, t.a);
    assert_int_equal(t.api.stream_sync(t.a), 0);
    t.api.copy(t.p + 4, t.p, 8, t.a);
    assert_int_not_equal(t.api.stream_sync(t.a), 0);
    close_streams(&t);
}

/* ---- graphs ---- */

static int32_t value_at(two_streams *t, cu_ptr p) {
    int32_t got = 0;
    t->api.copy_out(&got, p, 4, t->a);
    t->api.stream_sync(t->a);
    return got;
}

/* What is captured happens at each launch, in its place among other work, and not before. */
static void test_graphs_repeat(void **state) {
    (void)state;
    two_streams t;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    open_streams(&t, "1");
    t.api.fill(t.q, 0, 4, t.a);
    assert_int_equal(t.api.capture_begin(t.a, CU_CAPTURE_THREAD_LOCAL), 0);
    t.api.copy(t.q, t.p, 4, t.a);
    assert_int_equal(t.api.capture_end(t.a, &graph), 0);
    assert_int_equal(t.api.graph_make(&exec, graph, 0), 0);
    t.api.graph_destroy(graph);
    assert_int_equal(value_at(&t, t.q), 0);
    for (int32_t n = 5; n < 8; n++) {
        *t.word = n;
        t.api.copy_in(t.p, t.word, 4, t.a);
        assert_int_equal(t.api.graph_launch(exec, t.a), 0);
        t.api.fill(t.p, 0, 4, t.a);
        assert_int_equal(value_at(&t, t.q), n);
    }
    t.api.graph_exec_destroy(exec);
    close_streams(&t);
}

/* Waiting, and bytes from the host, are no part of a graph: the driver refuses them, and the graph. */
static void test_captures_refuse_the_host(void **state) {
    (void)state;
    two_streams t;
    open_streams(&t, "1");
    for (int what = 0; what < 4; what++) {
        cu_graph graph = NULL;
        assert_int_equal(t.api.capture_begin(t.a, CU_CAPTURE_THREAD_LOCAL), 0);
        cu_result r = what == 0   ? t.api.stream_sync(t.a)
                      : what == 1 ? t.api.copy_in(t.p, t.word, 4, t.a)
                      : what == 2 ? t.api.event_record(t.copied, t.a)
                                  : t.api.mem_free(t.p);
        assert_int_equal(r, CU_NOT_IN_CAPTURE);
        assert_int_not_equal(t.api.capture_end(t.a, &graph), 0);
        t.api.graph_destroy(graph);
    }
    close_streams(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_repeat),
        cmocka_unit_test(test_captures_refuse_the_host),
        cmocka_unit_test(test_mistakes_are_found),
        cmocka_unit_test(test_rows_in_gaps_are_named),
        cmocka_unit_test(test_races_in_place_are_found),
        cmocka_unit_test(test_shared_memory_is_limited),
        cmocka_unit_test(test_impossible_grids_are_refused),
        cmocka_unit_test(test_missing_event_shows),
        cmocka_unit_test(test_pageable_memory_is_refused),
        cmocka_unit_test(test_copies_lie_apart),
        cmocka_unit_test(test_context_must_be_current),
        cmocka_unit_test(test_streams_go_before_their_events),
        cmocka_unit_test(test_missing_event_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
