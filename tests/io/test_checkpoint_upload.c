/* Upload commands: their environment, order, marks, failures and retries. */
#include "test.h"

#include <signal.h>
#include <time.h>

#include "base/file_fault.h"
#include "io/checkpoint_test.h"
#include "io/checkpoint/checkpoint_upload.h"

static bool marked(test_dir *d, int64_t step) {
    const char *dir = checkpoint_path(d->mem, d->path, step);
    return file_exists(path_join(d->mem, dir, "state/uploaded"));
}

static char *read_text(test_dir *d, const char *name) {
    char *text;
    size_t len;
    err e;
    assert_ok(file_read_all(path_join(d->mem, d->path, name), &text, &len, &e), e);
    char *kept = arena_strndup(d->mem, text, len);
    free(text);
    return kept;
}

/* Beginning of a command that goes on when the test says so. */
#define AWAIT_GO "until test -e \"$ATHANOR_RUN/go\"; do sleep 0.01; done; "

static void expect_end(upload *u, int64_t step, int exit_status) {
    upload_event ev;
    assert_true(upload_wait(u, &ev, NULL));
    if (ev.ok != (exit_status == 0)) fail_msg("step %d: %s", (int)ev.step, ev.why.message);
    assert_int_equal(ev.step, step);
    assert_int_equal(ev.exit_status, exit_status);
}

static void test_environment_and_mark(void **state) {
    test_dir *d = *state;
    test_save_step(d, 4);
    setenv("ATHANOR_STEP", "99", 1); /* not what the command may see */
    upload *u =
        upload_new(d->path, "echo \"$ATHANOR_RUN|$ATHANOR_CHECKPOINT|$ATHANOR_STEP\"; "
                            "test -e \"$ATHANOR_CHECKPOINT/config.json\" && echo whole >&2");
    expect_end(u, 4, 0); /* taken in by upload_new */
    assert_true(marked(d, 4));
    upload_event ev;
    assert_false(upload_wait(u, &ev, NULL));
    assert_false(upload_poll(u, &ev));
    upload_free(u);
    assert_string_equal(
        read_text(d, "upload.log"),
        arena_printf(d->mem, "%s|%s|4\nwhole\n", d->path, checkpoint_path(d->mem, d->path, 4)));
    u = upload_new(d->path, "exit 1"); /* what has its mark is not taken in again */
    assert_false(upload_poll(u, &ev));
    upload_free(u);
}

static void test_one_at_a_time_oldest_first(void **state) {
    test_dir *d = *state;
    upload *u = upload_new(d->path, "echo \"begin $ATHANOR_STEP\"; sleep 0.02; echo end");
    for (int step = 1; step <= 3; step++) test_save_step(d, step);
    upload_add(u, 3);
    upload_add(u, 1);
    upload_add(u, 2);
    upload_add(u, 2);
    for (int step = 1; step <= 3; step++) expect_end(u, step, 0);
    upload_event ev;
    assert_false(upload_wait(u, &ev, NULL));
    upload_free(u);
    assert_string_equal(read_text(d, "upload.log"), "begin 1\nend\nbegin 2\nend\nbegin 3\nend\n");
}

static void test_polling_does_not_block(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    upload *u = upload_new(d->path, AWAIT_GO);
    upload_event ev;
    for (int polls = 0; polls < 3; polls++) assert_false(upload_poll(u, &ev));
    test_write(d, "go", "");
    while (!upload_poll(u, &ev)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(ev.ok);
    upload_free(u);
}

static void test_failures_are_told_and_tried_again(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    upload *u = upload_new(d->path, "test -e \"$ATHANOR_RUN/there\" || exit 7");
    upload_event ev;
    assert_true(upload_wait(u, &ev, NULL));
    assert_false(ev.ok);
    assert_int_equal(ev.exit_status, 7);
    assert_string_equal(ev.why.message, "the upload command of step 1 ended with status 7");
    assert_non_null(strstr(ev.why.hint, "upload.log"));
    assert_false(marked(d, 1));
    assert_false(upload_wait(u, &ev, NULL)); /* not before the next save */
    err why = {0};
    assert_int_equal(upload_result(u, &why), ST_FAILED);
    assert_string_equal(why.message, ev.why.message);
    assert_non_null(strstr(why.hint, "upload.log; starting the run again"));
    test_write(d, "there", "");
    test_save_step(d, 2);
    upload_add(u, 2);
    expect_end(u, 1, 0);
    expect_end(u, 2, 0);
    assert_true(marked(d, 1) && marked(d, 2));
    assert_ok(upload_result(u, &why), why);
    upload_free(u);

    test_save_step(d, 3);
    u = upload_new(d->path, "kill -9 $$");
    expect_end(u, 3, 128 + SIGKILL);
    assert_false(marked(d, 3));
    upload_free(u);
}

static void test_pruned_and_replaced_steps(void **state) {
    test_dir *d = *state;
    upload *u = upload_new(d->path, AWAIT_GO "echo $ATHANOR_STEP");
    test_save_step(d, 1);
    test_save_step(d, 2);
    upload_add(u, 1);
    upload_event ev;
    assert_false(upload_poll(u, &ev)); /* 1 runs now */
    test_save_step(d, 1);
    upload_add(u, 1);
    upload_add(u, 2);
    err e;
    assert_ok(file_remove_tree(checkpoint_path(d->mem, d->path, 2), &e), e);
    test_write(d, "go", "");
    expect_end(u, 1, 0);
    assert_false(marked(d, 1)); /* it was the step-1 of before */
    expect_end(u, 1, 0);
    assert_true(marked(d, 1));
    assert_false(upload_wait(u, &ev, NULL)); /* 2 is forgotten */
    upload_free(u);
}

static void test_a_mark_that_cannot_be_written(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    upload *u = upload_new(d->path, ":");
    assert_true(file_fault_arm("fsync:1"));
    upload_event ev;
    assert_true(upload_wait(u, &ev, NULL));
    file_fault_arm(NULL);
    assert_false(ev.ok);
    assert_int_equal(ev.exit_status, -1);
    assert_non_null(strstr(ev.why.message, "could not be marked"));
    assert_false(marked(d, 1));
    upload_free(u);
}

static void test_waiting_can_be_stopped(void **state) {
    test_dir *d = *state;
    test_save_step(d, 1);
    upload *u = upload_new(d->path, AWAIT_GO);
    volatile sig_atomic_t stop = 0;
    upload_event ev;
    assert_false(upload_poll(u, &ev));
    stop = 1;
    assert_false(upload_wait(u, &ev, &stop));
    stop = 0;
    test_write(d, "go", "");
    assert_true(upload_wait(u, &ev, &stop));
    assert_true(ev.ok);
    upload_free(u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_environment_and_mark),      IO_TEST(test_one_at_a_time_oldest_first),
        IO_TEST(test_polling_does_not_block),    IO_TEST(test_failures_are_told_and_tried_again),
        IO_TEST(test_pruned_and_replaced_steps), IO_TEST(test_a_mark_that_cannot_be_written),
        IO_TEST(test_waiting_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
