/* Clocks run forward. */
#include "test.h"

#include <time.h>

#include "base/clock.h"

static void test_monotonic(void **state) {
    (void)state;
    int64_t start = clock_now_ns(), last = start;
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_now_ns();
        assert_true(now >= last);
        last = now;
    }
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    double waited_s = clock_since_s(start);
    assert_true(waited_s >= 0.005 && waited_s < 60);
}

static void test_wall(void **state) {
    (void)state;
    int64_t now = clock_wall_s();
    assert_true(now > 1700000000 && now - (int64_t)time(NULL) <= 1);
}

/* A process that does not look for a while has not run. */
static void test_wait(void **state) {
    (void)state;
    static const int64_t LONG_NS = 100000000000;
    clock_wait w = clock_begin_wait();
    w.begin_ns -= LONG_NS;
    double waited_s = clock_waited_s(&w);
    assert_true(waited_s >= 100 && waited_s < 160);
    w.begin_ns -= LONG_NS, w.look_ns -= LONG_NS;
    double later_s = clock_waited_s(&w);
    assert_true(later_s >= waited_s && later_s < waited_s + 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic),
        cmocka_unit_test(test_wall),
        cmocka_unit_test(test_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
