/* Clocks run forward, and stamps have the promised form. */
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

static void test_format(void **state) {
    (void)state;
    char out[32];
    clock_format_utc(0, out);
    assert_string_equal(out, "1970-01-01T00:00:00Z");
    clock_format_utc(1769862896, out);
    assert_string_equal(out, "2026-01-31T12:34:56Z");
    clock_format_utc(951782400, out); /* a leap day */
    assert_string_equal(out, "2000-02-29T00:00:00Z");
    clock_format_utc(INT64_MAX, out);
    assert_string_equal(out, "invalid time");
}

static void test_wall(void **state) {
    (void)state;
    int64_t now = clock_wall_s();
    assert_true(now > 1700000000 && now - (int64_t)time(NULL) <= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotonic),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_wall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
