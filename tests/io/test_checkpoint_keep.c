/* Which checkpoints are kept: the newest, multiples, the best, those that are not uploaded. */
#include "test.h"

#include "io/checkpoint_test.h"

static void save_scored(test_dir *d, int64_t step, double score) {
    err e;
    assert_ok(test_save_scored(d->path, step, score, &e), e);
}

static void expect_steps(test_dir *d, const int64_t *expect, int n_expect) {
    int64_t *steps;
    int n;
    err e;
    assert_ok(checkpoint_list(d->mem, d->path, &steps, &n, &e), e);
    assert_int_equal(n, n_expect);
    for (int i = 0; i < n; i++) assert_int_equal(steps[i], expect[i]);
    if (n) assert_int_equal(test_leftovers(d->mem, d->path), 0);
}

#define EXPECT_STEPS(d, ...)                                                                       \
    expect_steps(d, (int64_t[]){__VA_ARGS__}, ARRAY_LEN(((int64_t[]){__VA_ARGS__})))

static status prune(test_dir *d, int newest, int64_t every, int64_t good_step, err *e) {
    return checkpoint_prune(d->path, &(checkpoint_keep){.newest = newest, .every = every},
                            good_step, e);
}

static void test_prune(void **state) {
    test_dir *d = *state;
    err e;
    assert_ok(prune(d, 3, 0, -1, &e), e);
    for (int64_t step = 1; step <= 10; step++) test_save_step(d, step * 100);
    assert_ok(prune(d, 0, 0, -1, &e), e);
    EXPECT_STEPS(d, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000);
    assert_ok(prune(d, 20, 0, -1, &e), e);
    EXPECT_STEPS(d, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000);
    assert_ok(prune(d, 3, 300, 1000, &e), e);
    EXPECT_STEPS(d, 300, 600, 800, 900, 1000);
    assert_ok(prune(d, 1, 0, -1, &e), e);
    EXPECT_STEPS(d, 1000);
}

static void test_prune_never_deletes_the_newest_good_one(void **state) {
    test_dir *d = *state;
    err e;
    for (int64_t step = 1; step <= 4; step++) test_save_step(d, step);
    test_damage(test_path_in(d, 3, "model.safetensors"), SIZE_MAX, 100);
    test_damage(test_path_in(d, 4, "model.safetensors"), SIZE_MAX, 100);
    assert_ok(prune(d, 1, 0, -1, &e), e);
    EXPECT_STEPS(d, 2, 3, 4);
    test_damage(test_path_in(d, 2, "config.json"), 3, -1);
    assert_ok(prune(d, 1, 0, -1, &e), e);
    EXPECT_STEPS(d, 2, 3, 4);
}

static void keep(test_dir *d, const checkpoint_keep *k, int64_t good_step) {
    err e;
    assert_ok(checkpoint_prune(d->path, k, good_step, &e), e);
}

static void test_the_best_are_kept(void **state) {
    test_dir *d = *state;
    static const double scores[] = {NAN, 3.0, 2.0, 2.5, NAN, 2.25, 2.0, 4.0};
    for (int i = 0; i < ARRAY_LEN(scores); i++) save_scored(d, i + 1, scores[i]);
    keep(d, &(checkpoint_keep){.newest = 2, .best = 3}, 8);
    EXPECT_STEPS(d, 3, 6, 7, 8); /* 7, 3, 6 are the best; 7 and 8 the newest */
    save_scored(d, 9, 1.0);
    save_scored(d, 10, NAN);
    keep(d, &(checkpoint_keep){.newest = 1, .best = 2}, 10);
    EXPECT_STEPS(d, 7, 9, 10);     /* of 3 and 7, equally good, the newer */
    save_scored(d, 11, -INFINITY); /* no score either */
    keep(d, &(checkpoint_keep){.newest = 1, .best = 1}, 11);
    EXPECT_STEPS(d, 9, 11);
}

static void test_damaged_ones_use_up_no_place(void **state) {
    test_dir *d = *state;
    for (int i = 1; i <= 6; i++) save_scored(d, i, i);
    test_damage(test_path_in(d, 5, "model.safetensors"), 100, -1);
    test_damage(test_path_in(d, 1, "state/manifest.json"), 9, -1);
    assert_int_equal(unlink(test_path_in(d, 2, "config.json")), 0);
    keep(d, &(checkpoint_keep){.newest = 2, .best = 1}, 6);
    EXPECT_STEPS(d, 3, 4, 5, 6); /* 6 and 4 are whole, 3 is the best of the whole ones */
}

static void test_what_is_not_uploaded_stays(void **state) {
    test_dir *d = *state;
    for (int i = 1; i <= 5; i++) test_save_step(d, i);
    test_write(d, "checkpoints/step-2/state/uploaded", "");
    test_write(d, "checkpoints/step-5/state/uploaded", "");
    checkpoint_kind kind;
    err e;
    assert_ok(checkpoint_verify(test_path_in(d, 2, ""), &kind, &e), e);
    keep(d, &(checkpoint_keep){.newest = 1, .only_uploaded = true}, 5);
    EXPECT_STEPS(d, 1, 3, 4, 5);
    test_write(d, "checkpoints/step-3/state/uploaded", "");
    keep(d, &(checkpoint_keep){.newest = 1, .only_uploaded = true}, 5);
    EXPECT_STEPS(d, 1, 4, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_prune),
        IO_TEST(test_prune_never_deletes_the_newest_good_one),
        IO_TEST(test_the_best_are_kept),
        IO_TEST(test_damaged_ones_use_up_no_place),
        IO_TEST(test_what_is_not_uploaded_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
