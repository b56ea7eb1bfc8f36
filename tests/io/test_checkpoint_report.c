/* What a damaged checkpoint is told to lack, and passing over those that cannot be read. */
#include "test.h"

#include <sys/stat.h>

#include "base/file_fault.h"
#include "io/checkpoint_test.h"

static void test_a_good_one(void **state) {
    test_dir *d = *state;
    err e;
    assert_ok(test_save_scored(d->path, 7, 3.0, &e), e);
    checkpoint_report r;
    checkpoint_inspect(d->mem, test_path_in(d, 7, ""), &r);
    assert_int_equal(r.n_faults, 0);
    assert_int_equal(r.kind, CHECKPOINT_RESUMABLE);
    assert_int_equal(r.step, 7);
    assert_true(r.score == 3.0);
    assert_false(r.uploaded);
    int64_t bytes = 0;
    static const char *const files[] = {"config.json", "model.safetensors", "state/cursor.json",
                                        "state/optimizer.safetensors"};
    for (int i = 0; i < ARRAY_LEN(files); i++) bytes += file_size(test_path_in(d, 7, files[i]));
    assert_int_equal(r.bytes, bytes);
    static const double scores[] = {0.1, 1e300, -2.0, 1.0 / 3, 5e-324};
    for (int i = 0; i < ARRAY_LEN(scores); i++) {
        assert_ok(test_save_scored(d->path, 7, scores[i], &e), e);
        checkpoint_inspect(d->mem, test_path_in(d, 7, ""), &r);
        assert_int_equal(r.n_faults, 0);
        assert_true(r.score == scores[i]);
    }
    assert_ok(test_save_scored(d->path, 7, NAN, &e), e);
    checkpoint_inspect(d->mem, test_path_in(d, 7, ""), &r);
    assert_true(isnan(r.score));
}

static void test_damaged_tensors_are_named(void **state) {
    test_dir *d = *state;
    test_save_step(d, 7);
    long len = (long)file_size(test_path_in(d, 7, "state/optimizer.safetensors"));
    test_damage(test_path_in(d, 7, "state/optimizer.safetensors"), SIZE_MAX, len - 1); /* in v */
    test_damage(test_path_in(d, 7, "state/cursor.json"), 1, -1);
    checkpoint_report r;
    checkpoint_inspect(d->mem, test_path_in(d, 7, ""), &r);
    assert_int_equal(r.n_faults, 2);
    assert_string_equal(r.faults[0].file, "state/optimizer.safetensors");
    assert_string_equal(r.faults[0].what, "checksum differs (file damaged)");
    assert_int_equal(r.faults[0].n_tensors, 1);
    assert_string_equal(r.faults[0].tensors[0], "v");
    assert_string_equal(r.faults[1].file, "state/cursor.json");
    assert_int_equal(r.faults[1].n_tensors, 0);
    test_damage(test_path_in(d, 7, "state/optimizer.safetensors"), SIZE_MAX, len - 129); /* in m */
    checkpoint_kind kind;
    err e = {0};
    assert_int_equal(checkpoint_verify(test_path_in(d, 7, ""), &kind, &e), ST_FORMAT);
    assert_string_equal(e.message, "state/optimizer.safetensors: checksum differs (file damaged); "
                                   "damaged: m, v");
    assert_string_equal(
        checkpoint_fault_text(d->mem,
                              &(checkpoint_fault){.file = ".",
                                                  .what = "odd",
                                                  .tensors = (const char *[]){"a", "b", "c"},
                                                  .n_tensors = 3},
                              1),
        "odd; damaged: a and 2 more tensors");
    test_save_step(d, 8);
    test_damage(test_path_in(d, 8, "model.safetensors"), SIZE_MAX,
                8); /* the header's first brace */
    checkpoint_inspect(d->mem, test_path_in(d, 8, ""), &r);
    assert_int_equal(r.n_faults, 1);
    assert_int_equal(r.faults[0].n_tensors, 0);
    assert_non_null(strstr(r.faults[0].what, "header can no longer be read"));
}

static void test_a_renamed_folder_is_found_out(void **state) {
    test_dir *d = *state;
    test_save_step(d, 7);
    test_save_step(d, 6);
    assert_int_equal(
        rename(checkpoint_path(d->mem, d->path, 7), checkpoint_path(d->mem, d->path, 9)), 0);
    checkpoint_report r;
    checkpoint_inspect(d->mem, checkpoint_path(d->mem, d->path, 9), &r);
    assert_int_equal(r.n_faults, 1);
    assert_non_null(strstr(r.faults[0].what, "it is of step 7"));
}

static void note_skip(void *ctx, const char *dir, const err *why) {
    err *last = ctx;
    assert_non_null(strstr(dir, "step-2"));
    *last = *why;
}

/* Whatever is wrong with step 2, step 1 is taken and the reason told. */
static void expect_fallback(test_dir *d, const char *reason) {
    char *dir;
    int64_t step;
    err e = {0}, why = {0};
    assert_ok(checkpoint_find_newest(d->mem, d->path, &dir, &step, note_skip, &why, &e), e);
    assert_int_equal(step, 1);
    if (!strstr(why.message, reason)) fail_msg("\"%s\" does not say \"%s\"", why.message, reason);
}

/* A file that is there and cannot be opened, also by the superuser. */
static void make_unreadable(const char *path) {
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(path_base(path), path), 0);
}

static void test_fallback(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    test_save_step(d, 2);
    make_unreadable(test_path_in(d, 2, "state/manifest.json"));
    expect_fallback(d, "Too many levels of symbolic links");
    test_save_step(d, 2);
    make_unreadable(test_path_in(d, 2, "model.safetensors"));
    expect_fallback(d, "model.safetensors: cannot be read: Too many levels");
    test_save_step(d, 2);
    assert_int_equal(unlink(test_path_in(d, 2, "state/manifest.json")), 0);
    assert_int_equal(mkdir(test_path_in(d, 2, "state/manifest.json"), 0777), 0);
    expect_fallback(d, "Is a directory");
    test_save_step(d, 2);
    err e;
    assert_ok(file_remove_tree(test_path_in(d, 2, ""), &e), e);
    assert_int_equal(symlink("nowhere", checkpoint_path(d->mem, d->path, 2)), 0);
    char *dir;
    int64_t step;
    assert_ok(checkpoint_find_newest(d->mem, d->path, &dir, &step, NULL, NULL, &e), e);
    assert_int_equal(step, 1); /* a link to nowhere is no folder, so none is passed over */
}

/* Each read of the newest one fails in turn. */
static void test_fallback_from_read_errors(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    test_save_step(d, 2);
    int n = 0;
    for (bool struck = true; struck; n++) {
        char spec[32];
        snprintf(spec, sizeof spec, "read:%d", n + 1);
        assert_true(file_fault_arm(spec));
        char *dir;
        int64_t step;
        err e = {0}, why = {0};
        assert_ok(checkpoint_find_newest(d->mem, d->path, &dir, &step, note_skip, &why, &e), e);
        struck = file_fault_struck();
        file_fault_arm(NULL);
        assert_int_equal(step, struck ? 1 : 2);
        if (struck) assert_non_null(strstr(why.message, "Input/output error"));
    }
    assert_true(n > 5);
}

static void test_a_copy_is_the_same(void **state) {
    test_dir *d = *state;
    err e;
    assert_ok(test_save_scored(d->path, 7, 1.25, &e), e);
    char *other = path_join(d->mem, d->path, "other");
    assert_ok(checkpoint_copy(test_path_in(d, 7, ""), other, &e), e);
    assert_int_equal(test_newest(d->mem, other), 7);
    char *a, *b;
    size_t n_a, n_b;
    assert_ok(file_read_all(test_path_in(d, 7, "state/manifest.json"), &a, &n_a, &e), e);
    const char *copy = path_join(d->mem, checkpoint_path(d->mem, other, 7), "state/manifest.json");
    assert_ok(file_read_all(copy, &b, &n_b, &e), e);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
    test_damage(test_path_in(d, 7, "model.safetensors"), SIZE_MAX, 99);
    assert_int_equal(checkpoint_copy(test_path_in(d, 7, ""), other, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "model.safetensors: checksum differs"));
    assert_int_equal(test_leftovers(d->mem, other), 0);
    assert_int_equal(test_newest(d->mem, other), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_a_good_one),
        IO_TEST(test_damaged_tensors_are_named),
        IO_TEST(test_a_renamed_folder_is_found_out),
        IO_TEST(test_fallback),
        IO_TEST(test_fallback_from_read_errors),
        IO_TEST(test_a_copy_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
