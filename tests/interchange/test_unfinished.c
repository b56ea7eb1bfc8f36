/* What a signal that ends the program takes away with it. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        IO_TEST(test_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
