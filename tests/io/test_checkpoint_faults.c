/* Fails or kills every single file operation of saving, replacing and pruning checkpoints: whatever
 * was good before stays loadable. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/file_fault.h"
#include "io/checkpoint_test.h"

static bool arm(const char *kind, int n) {
    char spec[32];
    snprintf(spec, sizeof(spec), "%s:%d", kind, n);
    return file_fault_arm(spec);
}

/* The cursor and the tensors are written by the caller, whose own errors name those files. */
static void expect_clear(const err *e, const char *kind) {
    bool space = !strcmp(kind, "write") || !strcmp(kind, "create") || !strcmp(kind, "mkdir");
    assert_non_null(strstr(e->message, space ? "No space left on device" : "Input/output error"));
    if (strstr(e->message, "was not written: ") == NULL) {
        assert_true(strstr(e->message, "state/cursor.json") || strstr(e->message, ".safetensors"));
        return;
    }
    assert_non_null(strstr(e->message, "checkpoints/step-2 was not written: "));
    assert_non_null(strstr(e->where, "checkpoints/step-2"));
    assert_non_null(strstr(e->hint, "bytes and"));
}

/* Fails the n-th operation of a kind for n = 1, 2, ... until a save comes through without the fault
 * having struck. Returns the number of failures. */
static int fail_each(test_dir *d, const char *kind) {
    int n = 1;
    for (;; n++) {
        assert_true(arm(kind, n));
        err e = {0};
        status st = test_save(d->path, 2, &e);
        bool struck = file_fault_struck();
        file_fault_arm(NULL);
        if (st == ST_OK) {
            assert_int_equal(test_newest(d->mem, d->path), 2);
        } else {
            assert_true(struck);
            expect_clear(&e, kind);
            assert_int_equal(test_leftovers(d->mem, d->path), 0);
            int64_t newest = test_newest(d->mem, d->path); /* 2: only its last fsync failed */
            assert_true(newest == 1 || (newest == 2 && !strcmp(kind, "fsync")));
        }
        err clean = {0};
        assert_ok(checkpoint_clean(d->path, &clean), clean);
        assert_ok(file_remove_tree(checkpoint_path(d->mem, d->path, 2), &clean), clean);
        if (st == ST_OK && !struck) return n - 1;
    }
}

static void test_each_failing_operation(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    assert_true(fail_each(d, "create") == 7); /* the five files, those of tensors twice */
    assert_true(fail_each(d, "write") == 9);  /* these three times: header, length, data */
    assert_true(fail_each(d, "fsync") >= 10); /* and the folders state, step-2, checkpoints, run */
    assert_true(fail_each(d, "rename") >= 1);
    assert_true(fail_each(d, "mkdir") >= 2);
}

/* Replacing the only checkpoint: at every failure an intact step 1 is there, at the latest after
 * the cleaning that every start of a run begins with. */
static void test_each_failure_while_replacing(void **state) {
    test_dir *d = *state;
    static const char *const kinds[] = {"create", "write", "fsync", "rename", "remove", "mkdir"};
    test_save_step(d, 1);
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int n = 1;; n++) {
            assert_true(arm(kinds[k], n));
            err e = {0};
            status st = test_save(d->path, 1, &e);
            bool struck = file_fault_struck();
            file_fault_arm(NULL);
            assert_ok(checkpoint_clean(d->path, &e), e);
            assert_int_equal(test_leftovers(d->mem, d->path), 0);
            assert_int_equal(test_newest(d->mem, d->path), 1);
            if (st == ST_OK && !struck) break;
        }
}

typedef void (*child_fn)(const char *run);

static void child_saves(const char *run) {
    err e;
    _exit(test_save(run, 2, &e) == ST_OK ? 0 : 1);
}

static void child_replaces(const char *run) {
    err e;
    _exit(test_save(run, 1, &e) == ST_OK ? 0 : 1);
}

static void child_prunes(const char *run) {
    err e;
    _exit(checkpoint_prune(run, &(checkpoint_keep){.newest = 1, .best = 1}, 4, &e) == ST_OK ? 0
                                                                                            : 1);
}

/* True when the child died at its n-th file operation, false when it came through. */
static bool killed_at(test_dir *d, child_fn child, int n) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!arm("kill", n)) _exit(2);
        child(d->path);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (WIFSIGNALED(how)) {
        assert_int_equal(WTERMSIG(how), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(how), 0);
    return false;
}

static void start_again(test_dir *d) {
    err e;
    assert_ok(checkpoint_clean(d->path, &e), e);
    assert_int_equal(test_leftovers(d->mem, d->path), 0);
}

static void test_killed_while_saving(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    int n = 1, complete = 0;
    while (killed_at(d, child_saves, n)) {
        assert_in_range(test_newest(d->mem, d->path), 1, 2); /* also before the cleaning */
        start_again(d);
        int64_t newest = test_newest(d->mem, d->path);
        complete += newest == 2;
        err e;
        assert_ok(file_remove_tree(checkpoint_path(d->mem, d->path, 2), &e), e);
        n++;
    }
    assert_true(n > 20); /* files, folders, manifest, rename: it was killed at each of them */
    assert_int_equal(complete, 1); /* between the rename and the last fsync */
    assert_int_equal(test_newest(d->mem, d->path), 2);
}

static void test_killed_while_replacing(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    int n = 1;
    for (; killed_at(d, child_replaces, n); n++) {
        start_again(d);
        assert_int_equal(test_newest(d->mem, d->path), 1);
    }
    assert_true(n > 25);
    assert_int_equal(test_newest(d->mem, d->path), 1);
}

/* 1 is the best of four, 4 the newest. */
static void test_killed_while_pruning(void **state) {
    test_dir *d = *state;
    int n = 1;
    bool killed = true;
    for (; killed; n++) {
        err e;
        for (int64_t step = 1; step <= 4; step++)
            assert_ok(test_save_scored(d->path, step, (double)step, &e), e);
        killed = killed_at(d, child_prunes, n);
        /* What is left of 2 and 3 is whole or has no name of a checkpoint. */
        int64_t *steps;
        int count;
        assert_ok(checkpoint_list(d->mem, d->path, &steps, &count, &e), e);
        for (int i = 0; i < count; i++)
            test_content(d->mem, checkpoint_path(d->mem, d->path, steps[i]), steps[i]);
        assert_int_equal(steps[0], 1);
        assert_int_equal(steps[count - 1], 4);
        start_again(d);
    }
    assert_true(n > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_each_failing_operation), IO_TEST(test_each_failure_while_replacing),
        IO_TEST(test_killed_while_saving),    IO_TEST(test_killed_while_replacing),
        IO_TEST(test_killed_while_pruning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
