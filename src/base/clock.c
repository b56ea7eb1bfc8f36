/* Time from the system's clocks; durations never use wall time, which can jump. */
#include "base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_now_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_thread_ns(void) {
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

double clock_since_s(int64_t start_ns) {
    return (double)(clock_now_ns() - start_ns) * 1e-9;
}

int64_t clock_process_ns(void) {
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t clock_wall_s(void) {
    return (int64_t)time(NULL);
}

/* Who looks again later than that has not run. */
static const int64_t STOPPED_NS = 1000000000;

clock_wait clock_begin_wait(void) {
    int64_t now = clock_now_ns();
    return (clock_wait){.begin_ns = now, .look_ns = now};
}

double clock_waited_s(clock_wait *w) {
    int64_t now = clock_now_ns(), gap = now - w->look_ns;
    w->look_ns = now;
    if (gap > STOPPED_NS) w->begin_ns += gap;
    return (double)(now - w->begin_ns) * 1e-9;
}
