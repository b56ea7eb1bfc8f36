/* What a signal that ends the program takes away with it. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "interchange/unfinished.h"
#include "io/io_test.h"

/* A program that is at work on a folder and a file beside it until a signal comes. */
static pid_t start(const char *dir, const char *beside, bool ends, int ready[2]) {
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid) return pid;
    signal(SIGHUP, SIG_IGN);
    unfinished_begin(&dir, &beside);
    if (ends) unfinished_end();
    kill(getpid(), SIGHUP);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
}

static int end_by(int signal_number, const char *dir, const char *beside, bool ends) {
    int ready[2], state;
    char byte;
    pid_t pid = start(dir, beside, ends, ready);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(pid, signal_number);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    close(ready[0]);
    close(ready[1]);
    return WIFSIGNALED(state) ? WTERMSIG(state) : 0;
}

static void test_signals(void **state) {
    test_dir *d = *state;
    err e;
    char *dir = path_join(d->mem, d->path, "dir"), *beside = path_join(d->mem, d->path, "beside");
    static const int signals[] = {SIGINT, SIGTERM, SIGINT};
    for (int i = 0; i < ARRAY_LEN(signals); i++) {
        bool ends = i == 2;
        assert_ok(file_make_dirs(path_join(d->mem, dir, "deep"), &e), e);
        assert_ok(file_write_atomic(path_join(d->mem, dir, "deep/file"), "x", 1, &e), e);
        assert_ok(file_write_atomic(beside, "x", 1, &e), e);
        assert_int_equal(end_by(signals[i], dir, beside, ends), signals[i]);
        assert_int_equal(file_exists(dir), ends);
        assert_int_equal(file_exists(beside), ends);
    }
}

/* In the child: gives the folder its name when a signal has come. */
static _Noreturn void name_late(const char *dir, const char *name, const char *other) {
    static const char *const none;
    err e;
    unfinished_begin(&dir, &none);
    unfinished_hold();
    kill(getpid(), SIGTERM);
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL); /* time to remove it */
    if (file_swap(dir, name, &e) != ST_OK || file_rename(dir, other, &e) != ST_OK) _exit(1);
    unfinished_release();
    for (;;) pause();
}

/* Half a folder gets no name, and what it replaces is not removed for it. */
static void test_naming(void **state) {
    test_dir *d = *state;
    err e;
    int how;
    char *dir = path_join(d->mem, d->path, "dir"), *name = path_join(d->mem, d->path, "name");
    char *other = path_join(d->mem, d->path, "other");
    assert_ok(file_make_dirs(dir, &e), e);
    assert_ok(file_make_dirs(name, &e), e);
    assert_ok(file_write_atomic(path_join(d->mem, dir, "new"), "x", 1, &e), e);
    assert_ok(file_write_atomic(path_join(d->mem, name, "old"), "x", 1, &e), e);
    pid_t pid = fork();
    if (pid == 0) name_late(dir, name, other);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM);
    assert_true(file_exists(path_join(d->mem, name, "new")));
    assert_true(file_exists(path_join(d->mem, other, "old")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_signals),
        IO_TEST(test_naming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
