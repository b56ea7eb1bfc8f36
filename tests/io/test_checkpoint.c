/* Checkpoints: layout, verification of damaged ones, the newest good one. */
#include "test.h"

#include "io/checkpoint_test.h"

static void test_layout(void **state) {
    test_dir *d = *state;
    assert_int_equal(test_newest(d->mem, d->path), -1);
    test_save_step(d, 200);
    assert_int_equal(test_leftovers(d->mem, d->path), 0);
    static const char *const files[] = {"config.json", "model.safetensors", "state/cursor.json",
                                        "state/manifest.json", "state/optimizer.safetensors"};
    for (int i = 0; i < ARRAY_LEN(files); i++)
        assert_true(file_exists(test_path_in(d, 200, files[i])));
    checkpoint_kind kind;
    err e;
    assert_ok(checkpoint_verify(test_path_in(d, 200, ""), &kind, &e), e);
    assert_int_equal(kind, CHECKPOINT_RESUMABLE);
    assert_int_equal(test_newest(d->mem, d->path), 200);
    test_save_step(d, 1000); /* newer as a number, not as text */
    assert_int_equal(test_newest(d->mem, d->path), 1000);
    test_write(d, "checkpoints/step-1000/README.md", "my best model");
    assert_ok(checkpoint_verify(test_path_in(d, 1000, ""), &kind, &e), e);
}

static void test_a_step_is_replaced(void **state) {
    test_dir *d = *state;
    test_save_step(d, 5);
    test_damage(test_path_in(d, 5, "model.safetensors"), 10, -1);
    test_save_step(d, 5);
    assert_int_equal(test_newest(d->mem, d->path), 5);
    assert_int_equal(test_leftovers(d->mem, d->path), 0);
}

typedef struct skipped {
    int n;
    err last;
} skipped;

static void note_skip(void *ctx, const char *dir, const err *why) {
    skipped *s = ctx;
    assert_non_null(strstr(dir, "step-400"));
    s->n++;
    s->last = *why;
}

/* Damages step 400 in one way, and expects verify to name it and the search to pass it over. */
static void expect_damage(test_dir *d, const char *name, size_t n, long at, const char *message) {
    test_save_step(d, 200);
    test_save_step(d, 400);
    test_damage(test_path_in(d, 400, name), n, at);
    checkpoint_kind kind;
    err e = {0};
    assert_int_equal(checkpoint_verify(test_path_in(d, 400, ""), &kind, &e), ST_FORMAT);
    if (!strstr(e.message, message)) fail_msg("\"%s\" does not say \"%s\"", e.message, message);
    assert_non_null(strstr(e.message, name));
    assert_non_null(strstr(e.where, name));
    assert_string_equal(e.hint, "use step-200, the newest good one of this run");
    skipped s = {0};
    char *dir;
    int64_t step;
    assert_ok(checkpoint_find_newest(d->mem, d->path, &dir, &step, note_skip, &s, &e), e);
    assert_int_equal(step, 200);
    assert_int_equal(s.n, 1);
    assert_non_null(strstr(s.last.message, message));
}

static void test_damaged_files_are_named(void **state) {
    test_dir *d = *state;
    static const char *const files[] = {"config.json", "model.safetensors", "state/cursor.json",
                                        "state/optimizer.safetensors"};
    for (int i = 0; i < ARRAY_LEN(files); i++) {
        test_save_step(d, 400);
        long len = (long)file_size(test_path_in(d, 400, files[i]));
        expect_damage(d, files[i], SIZE_MAX, 0, "checksum differs (file damaged)");
        expect_damage(d, files[i], SIZE_MAX, len - 1, "checksum differs (file damaged)");
        expect_damage(d, files[i], (size_t)len - 1, -1, "(file truncated)");
        expect_damage(d, files[i], 0, -1, "0 bytes instead of");
        test_save_step(d, 400);
        assert_int_equal(unlink(test_path_in(d, 400, files[i])), 0);
        checkpoint_kind kind;
        err e;
        assert_int_equal(checkpoint_verify(test_path_in(d, 400, ""), &kind, &e), ST_FORMAT);
        assert_non_null(strstr(e.message, files[i]));
        assert_non_null(strstr(e.message, "the file is missing"));
    }
}

/* A flipped bit anywhere in the manifest is found, except in the space between its words. */
static void test_every_bit_of_the_manifest_counts(void **state) {
    test_dir *d = *state;
    test_save_step(d, 400);
    char *path = test_path_in(d, 400, "state/manifest.json"), *text;
    size_t len;
    err e;
    assert_ok(file_read_all(path, &text, &len, &e), e);
    for (size_t bit = 0; bit < len * 8; bit++) {
        if (text[bit / 8] == ' ' || text[bit / 8] == '\n') continue;
        text[bit / 8] ^= (char)(1 << (bit % 8));
        FILE *f = fopen(path, "wb");
        fwrite(text, 1, len, f);
        fclose(f);
        checkpoint_kind kind;
        e = (err){0};
        assert_int_equal(checkpoint_verify(test_path_in(d, 400, ""), &kind, &e), ST_FORMAT);
        assert_non_null(strstr(e.message, "state/manifest.json"));
        text[bit / 8] ^= (char)(1 << (bit % 8));
    }
    free(text);
    assert_int_equal(unlink(path), 0);
    checkpoint_kind kind;
    assert_int_equal(checkpoint_verify(test_path_in(d, 400, ""), &kind, &e), ST_FORMAT);
    assert_string_equal(e.message, "state/manifest.json: the file is missing");
}

static void test_a_run_without_good_checkpoints(void **state) {
    test_dir *d = *state;
    test_save_step(d, 400);
    test_damage(test_path_in(d, 400, "model.safetensors"), SIZE_MAX, 100);
    skipped s = {0};
    char *dir;
    int64_t step;
    err e;
    assert_int_equal(checkpoint_find_newest(d->mem, d->path, &dir, &step, note_skip, &s, &e),
                     ST_FORMAT);
    assert_null(dir);
    assert_non_null(strstr(e.message, "none of the 1 checkpoints"));
    checkpoint_kind kind;
    assert_int_equal(checkpoint_verify(test_path_in(d, 400, "."), &kind, &e), ST_FORMAT);
    assert_string_equal(e.hint, "no other checkpoint of this run is good");
}

static void test_model_folder_is_not_resumable(void **state) {
    test_dir *d = *state;
    test_save_step(d, 200);
    test_save_step(d, 400);
    err e;
    assert_ok(file_remove_tree(test_path_in(d, 400, "state"), &e), e);
    checkpoint_kind kind;
    assert_ok(checkpoint_verify(test_path_in(d, 400, ""), &kind, &e), e);
    assert_int_equal(kind, CHECKPOINT_MODEL);
    skipped s = {0};
    char *dir;
    int64_t step;
    assert_ok(checkpoint_find_newest(d->mem, d->path, &dir, &step, note_skip, &s, &e), e);
    assert_int_equal(step, 200);
    assert_non_null(strstr(s.last.message, "cannot be resumed"));
    assert_ok(checkpoint_resolve(d->mem, d->path, &dir, &e), e);
    assert_string_equal(dir, checkpoint_path(d->mem, d->path, 400));
    assert_ok(checkpoint_resolve(d->mem, test_path_in(d, 200, ""), &dir, &e), e);
    assert_string_equal(dir, test_path_in(d, 200, ""));
    assert_int_equal(unlink(test_path_in(d, 400, "config.json")), 0);
    assert_int_equal(checkpoint_verify(test_path_in(d, 400, ""), &kind, &e), ST_FORMAT);
    assert_int_equal(checkpoint_resolve(d->mem, test_path_in(d, 400, ""), &dir, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "neither a model folder"));
    assert_ok(file_make_dirs(test_path_in(d, 200, "run"), &e),
              e); /* which has a config.json, too */
    assert_ok(file_write_atomic(test_path_in(d, 200, "run/config.json"), "{}", 2, &e), e);
    assert_ok(file_write_atomic(test_path_in(d, 200, "run/metrics.jsonl"), "", 0, &e), e);
    assert_int_equal(checkpoint_resolve(d->mem, test_path_in(d, 200, "run"), &dir, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "a run that has no checkpoint yet"));
    assert_int_equal(checkpoint_verify(test_path_in(d, 999, ""), &kind, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "is no folder"));
}

static void test_clean_removes_what_a_crash_left(void **state) {
    test_dir *d = *state;
    err e;
    assert_ok(checkpoint_clean(d->path, &e), e);
    test_save_step(d, 7);
    test_save_step(d, 9);
    char *parent = path_join(d->mem, d->path, "checkpoints");
    static const char *const made[] = {".tmp-step-8-123/state",
                                       ".trash-step-3-77/state",
                                       ".old-step-9",
                                       ".mine",
                                       "step-x",
                                       "step-007"};
    for (int i = 0; i < ARRAY_LEN(made); i++)
        assert_ok(file_make_dirs(path_join(d->mem, parent, made[i]), &e), e);
    assert_int_equal(
        rename(path_join(d->mem, parent, "step-7"), path_join(d->mem, parent, ".old-step-7")), 0);
    assert_int_equal(test_newest(d->mem, d->path), 9);
    assert_ok(checkpoint_clean(d->path, &e), e);
    assert_int_equal(test_leftovers(d->mem, d->path), 1); /* .mine is not ours */
    int64_t *steps;
    int n;
    assert_ok(checkpoint_list(d->mem, d->path, &steps, &n, &e), e);
    assert_int_equal(n, 2);
    test_content(d->mem, checkpoint_path(d->mem, d->path, 7), 7);
}

static void test_too_little_space_is_refused_before_writing(void **state) {
    test_dir *d = *state;
    checkpoint_writer *w;
    err e;
    test_save_step(d, 1);
    assert_int_equal(checkpoint_writer_begin(&w, d->path, 2, (uint64_t)1 << 60, &e), ST_FAILED);
    assert_null(w);
    assert_non_null(strstr(e.message, "1152921504606846976 bytes are needed, but only"));
    assert_non_null(strstr(e.message, "step-2"));
    assert_int_equal(test_leftovers(d->mem, d->path), 0);
    assert_int_equal(test_newest(d->mem, d->path), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_layout),
        IO_TEST(test_a_step_is_replaced),
        IO_TEST(test_damaged_files_are_named),
        IO_TEST(test_every_bit_of_the_manifest_counts),
        IO_TEST(test_a_run_without_good_checkpoints),
        IO_TEST(test_model_folder_is_not_resumable),
        IO_TEST(test_clean_removes_what_a_crash_left),
        IO_TEST(test_too_little_space_is_refused_before_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
