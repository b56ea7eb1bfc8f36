/* Time from the system's clocks; durations never use wall time, which can jump. */
#include "base/clock.h"

#include <string.h>
#include <time.h>

int64_t clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double clock_since_s(int64_t start_ns) {
    return (double)(clock_now_ns() - start_ns) * 1e-9;
}

int64_t clock_wall_s(void) {
    return (int64_t)time(NULL);
}

void clock_format_utc(int64_t wall_s, char out[32]) {
    time_t t = (time_t)wall_s;
    struct tm tm;
    out[0] = '\0';
    if (!gmtime_r(&t, &tm) || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        memcpy(out, "invalid time", sizeof "invalid time"); /* a year that does not fit */
}
