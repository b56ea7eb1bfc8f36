/* Child processes: their lines, whatever comes between the pieces of one. */
#include "test.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "app/frame/child.h"

static void tick(int signal_number) {
    (void)signal_number; /* it only ends a read */
}

static void set_ticks(suseconds_t every_us) {
    struct sigaction action = {.sa_handler = tick};
    struct itimerval often = {{0, every_us}, {0, every_us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void next_line(child *c, json_t **line, int *stops) {
    err e = {0};
    status st;
    while ((st = child_read(c, line, &e)) == ST_STOPPED) ++*stops;
    assert_int_equal(st, ST_OK);
}

/* What of a line has come before a signal is not lost. */
static void a_signal_within_a_line(void **state) {
    static const char *const words[] = {"test_app_child", "speak", NULL};
    child *c;
    json_t *line;
    int stops = 0;
    err e = {0};
    (void)state;
    assert_int_equal(child_start(&c, words, NULL, "/dev/null", &e), ST_OK);
    set_ticks(20000);
    for (int i = 1; i <= 2; i++) {
        next_line(c, &line, &stops);
        assert_non_null(line);
        assert_int_equal(json_integer_value(json_object_get(line, "line")), i);
        json_decref(line);
    }
    next_line(c, &line, &stops);
    set_ticks(0);
    assert_null(line);
    assert_true(stops > 0);
    assert_int_equal(child_end(c), 7);
}

/* In the child: a line in two pieces with a pause between, one more at once, and the beginning of one. */
static int speak(void) {
    static const char *const pieces[] = {"{\"line\"", ": 1}\n{\"line\": 2}\n{\"li"};
    for (int i = 0; i < 2; i++) {
        if (write(STDOUT_FILENO, pieces[i], strlen(pieces[i])) < 0) return 1;
        nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    }
    return 7;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_signal_within_a_line)};
    if (argc > 1 && strcmp(argv[1], "speak") == 0) return speak();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
