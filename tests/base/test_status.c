/* The error chain: codes, context, truncation without overrun, and CHECK. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/status.h"

static status inner(err *e) {
    err_set(e, ST_FORMAT, "bad header of %d bytes", 7);
    err_where(e, "%s:%d", "a.bin", 3);
    return err_hint(e, "make it %s", "longer");
}

static status outer(err *e) {
    if (inner(e) != ST_OK) return err_context(e, "loading %s", "weights");
    return ST_OK;
}

static void test_chain(void **state) {
    (void)state;
    err e = {0};
    assert_int_equal(outer(&e), ST_FORMAT);
    assert_string_equal(e.message, "loading weights: bad header of 7 bytes");
    assert_string_equal(e.hint, "make it longer");
    assert_string_equal(e.where, "a.bin:3");
}

static void test_set_forgets_older_details(void **state) {
    (void)state;
    err e = {0};
    inner(&e);
    assert_int_equal(err_set(&e, ST_USAGE, "other"), ST_USAGE);
    assert_string_equal(e.hint, "");
    assert_string_equal(e.where, "");
    inner(&e);
    assert_int_equal(err_at(&e, ST_USAGE, "50%", "%d%%", 50), ST_USAGE);
    assert_string_equal(e.message, "50%");
    assert_string_equal(e.hint, "");
    assert_string_equal(e.where, "50%");
}

static void test_no_err_drops_details(void **state) {
    (void)state;
    assert_int_equal(err_set(NULL, ST_MEMORY, "x"), ST_MEMORY);
    assert_int_equal(err_at(NULL, ST_MEMORY, "p", "x"), ST_MEMORY);
    assert_int_equal(err_errno(NULL, "p", "x"), ST_FAILED);
    assert_int_not_equal(outer(NULL), ST_OK);
}

static void test_rename(void **state) {
    (void)state;
    err e = {0};
    err_set(&e, ST_FORMAT, "cannot write a.tmp-7: a.tmp-7 is full");
    err_where(&e, "a.tmp-7");
    err_hint(&e, "make room");
    assert_int_equal(err_rename(&e, "a.tmp-7", "a"), ST_FORMAT);
    assert_string_equal(e.message, "cannot write a: a is full");
    assert_string_equal(e.where, "a");
    assert_string_equal(e.hint, "make room");
    memset(e.message, 't', sizeof e.message - 1);
    assert_int_equal(err_rename(&e, "t", "longer"), ST_FORMAT);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
}

/* What adds to an error that it cannot see knows no code. */
static void test_no_err_knows_no_code(void **state) {
    (void)state;
    assert_int_equal(err_hint(NULL, "x"), ST_FAILED);
    assert_int_equal(err_where(NULL, "x"), ST_FAILED);
    assert_int_equal(err_context(NULL, "x"), ST_FAILED);
    assert_int_equal(err_rename(NULL, "x", "y"), ST_FAILED);
}

static void test_errno(void **state) {
    (void)state;
    err e = {0};
    errno = ENOENT;
    assert_int_equal(err_errno(&e, "/no/file", "cannot open %s", "/no/file"), ST_FAILED);
    assert_string_equal(e.message, "cannot open /no/file: No such file or directory");
    assert_string_equal(e.where, "/no/file");
}

/* A canary behind the err shows an overrun. */
static void test_truncation(void **state) {
    (void)state;
    struct {
        err e;
        char canary[16];
    } s;
    memset(&s, 0x5a, sizeof s);
    char *lots = malloc(5000);
    memset(lots, 'x', 4999);
    lots[4999] = '\0';
    err_set(&s.e, ST_FAILED, "%s", lots);
    err_hint(&s.e, "%s", lots);
    err_where(&s.e, "%s", lots);
    for (int i = 0; i < 3; i++) err_context(&s.e, "%s", lots);
    assert_int_equal(strlen(s.e.hint), sizeof s.e.hint - 1);
    assert_int_equal(strlen(s.e.where), sizeof s.e.where - 1);
    assert_true(strlen(s.e.message) < sizeof s.e.message);
    for (int i = 0; i < 16; i++) assert_int_equal(s.canary[i], 0x5a);
    free(lots);
}

static void test_kinds(void **state) {
    (void)state;
    assert_string_equal(status_kind(ST_FAILED), "failed");
    assert_string_equal(status_kind(ST_USAGE), "usage");
    assert_string_equal(status_kind(ST_FORMAT), "format");
    assert_string_equal(status_kind(ST_MEMORY), "memory");
    assert_string_equal(status_kind(ST_NONFINITE), "nonfinite");
    assert_string_equal(status_kind(ST_RANK), "rank");
    assert_string_equal(status_kind(ST_STOPPED), "stopped");
}

static void test_check_aborts(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        CHECK(pid != 0, "child %d", 1);
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_set_forgets_older_details),
        cmocka_unit_test(test_no_err_drops_details),
        cmocka_unit_test(test_no_err_knows_no_code),
        cmocka_unit_test(test_rename),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_check_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
