/* Prefetching: the rows are loader_fill's, whatever the steps, and reading happens while the owner
 * does something else. */
#include "data_test.h"

#include <time.h>

#include "data/order/prefetch.h"

enum { VOCAB = 60000, T = 24, B = 3, BATCH = 15 };

typedef struct rows {
    int32_t ids[B * T], targets[B * T], start[B * T], pos[B * T];
} rows;

static loader *open_loader(scene *s, bool mask, loader_packing packing) {
    loader_source src = {.path = counting_set(s, "a", 400, 90, VOCAB, 300), .weight = 1};
    loader_config cfg = {.sources = &src,
                         .n_sources = 1,
                         .seq_len = T,
                         .document_mask = mask,
                         .shuffle = true,
                         .packing = packing,
                         .seed = 3,
                         .eos = -1};
    loader *l;
    assert_ok(loader_open(&l, &cfg, e));
    return l;
}

/* Takes micro-batch m of a step and compares it with the loader's. */
static int64_t check_take(prefetch *p, loader *l, uint64_t first, int64_t n, int m, bool start) {
    rows got, want;
    int64_t at = (int64_t)m * B, live_rows = n - at < B ? n - at : B;
    size_t bytes = (size_t)live_rows * T * sizeof(int32_t);
    memset(&got, 0x7f, sizeof got);
    prefetch_take(p, m,
                  &(loader_rows){.ids = got.ids,
                                 .targets = got.targets,
                                 .start = start ? got.start : NULL,
                                 .pos = got.pos});
    int64_t targets = loader_fill(l, first + (uint64_t)at, (int)live_rows, want.ids, want.targets,
                                  start ? want.start : NULL, want.pos, NULL);
    assert_memory_equal(got.ids, want.ids, bytes);
    assert_memory_equal(got.targets, want.targets, bytes);
    if (start) assert_memory_equal(got.start, want.start, bytes);
    assert_memory_equal(got.pos, want.pos, bytes);
    for (int64_t i = live_rows * T; i < B * T; i++) assert_int_equal(got.ids[i], 0x7f7f7f7f);
    return targets;
}

static void check_step(prefetch *p, loader *l, uint64_t first, int64_t n, bool start) {
    int64_t targets = prefetch_begin(p, first, n), taken = 0;
    prefetch_expect(p, first + (uint64_t)n, n);
    for (int m = 0; (int64_t)m * B < n; m++) taken += check_take(p, l, first, n, m, start);
    assert_int_equal(targets, taken);
}

static void test_rows_are_the_loaders(void **state) {
    for (int mode = 0; mode < 3; mode++) {
        bool mask = mode > 0;
        loader *l = open_loader(*state, mask, mode == 2 ? PACKING_BESTFIT : PACKING_CONCAT);
        prefetch *p = prefetch_new(l, B, BATCH, mask);
        uint64_t first = 100;
        for (int step = 0; step < 200; step++, first += BATCH) check_step(p, l, first, BATCH, mask);
        prefetch_free(p);
        loader_close(l);
    }
}

/* Batches that grow, steps that were not expected, expectations that change, steps begun twice,
 * micro-batches passed over. */
static void test_any_steps(void **state) {
    loader *l = open_loader(*state, true, PACKING_CONCAT);
    prefetch *p = prefetch_new(l, B, BATCH, true);
    uint64_t r = 1, first = 0;
    for (int step = 0; step < 1500; step++) {
        r = mix64(r + 12345);
        int64_t n = 1 + (int64_t)(r % BATCH);
        if (r >> 8 & 1) first = r % 5000;
        if (r >> 9 & 1) prefetch_expect(p, first, n);
        if (r >> 10 & 1) prefetch_expect(p, first + 1, BATCH);
        if (r >> 11 & 1) prefetch_expect(p, first, n);
        check_step(p, l, first, n, true);
        int micro_batches = (int)((n + B - 1) / B);
        if (r >> 13 & 1) {
            prefetch_begin(p, first, n);
            check_take(p, l, first, n, micro_batches - 1, true);
        }
        if (r >> 14 & 1) { /* a step of which nothing is taken */
            prefetch_begin(p, first, n);
            prefetch_expect(p, first + (uint64_t)n, n);
        }
        first += (uint64_t)n;
    }
    prefetch_free(p);
    loader_close(l);
}

static void test_free_at_any_moment(void **state) {
    loader *l = open_loader(*state, true, PACKING_CONCAT);
    prefetch_free(NULL);
    for (int i = 0; i < 200; i++) {
        prefetch *p = prefetch_new(l, B, BATCH, true);
        if (i & 1) prefetch_expect(p, 5, BATCH);
        if (i & 2) prefetch_begin(p, 5, BATCH);
        if (i & 4) prefetch_expect(p, 7, BATCH);
        prefetch_free(p);
    }
    loader_close(l);
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* A step of many rows takes a while to make; when it was expected and the owner was busy for
 * longer, it is there. Compared with making it when it begins; the best of some, as others use the
 * machine. */
static void test_reading_overlaps(void **state) {
    enum { MANY = 9000 };
    loader *l = open_loader(*state, true, PACKING_CONCAT);
    prefetch *p = prefetch_new(l, B, MANY, true);
    double cold = 1e9, warm = 1e9;
    for (uint64_t i = 0; i < 2 || (i < 60 && warm >= cold / 4); i++) {
        double t = now_ms();
        prefetch_begin(p, i * 10 * MANY, MANY);
        cold = now_ms() - t < cold ? now_ms() - t : cold;
        rows r;
        for (int m = 0; m < MANY / B; m++)
            prefetch_take(
                p, m,
                &(loader_rows){.ids = r.ids, .targets = r.targets, .start = r.start, .pos = r.pos});
        prefetch_expect(p, (i * 10 + 1) * MANY, MANY);
        sleep_ms((long)(3 * cold));
        t = now_ms();
        prefetch_begin(p, (i * 10 + 1) * MANY, MANY);
        warm = now_ms() - t < warm ? now_ms() - t : warm;
    }
    assert_true(warm < cold / 4);
    prefetch_free(p);
    loader_close(l);
}

static void test_bytes(void **state) {
    (void)state;
    size_t one = prefetch_bytes(4, 100, 0, 16, false), more = prefetch_bytes(4, 100, 0, 32, false);
    assert_int_equal(more - one, 4 * (8 + 4 * sizeof(loader_row) + 2 * 4 * 100 * 4));
    assert_int_equal(prefetch_bytes(4, 100, 0, 32, true) - more, 8 * 4 * 100 * 4);
    assert_int_equal(prefetch_bytes(4, 100, 50, 32, false) - more, 8 * 4 * (2 * 100 + 4 * 50) * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_are_the_loaders, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_any_steps, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_free_at_any_moment, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_reading_overlaps, scene_open, scene_close),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
