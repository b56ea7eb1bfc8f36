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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic),
        cmocka_unit_test(test_wall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
