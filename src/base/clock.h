/* Monotonic time for durations, wall time for stamps. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_now_ns(void); /* CLOCK_MONOTONIC */
double clock_since_s(int64_t start_ns);
int64_t clock_thread_ns(void);  /* processor time of this thread: not that of others on its core */
int64_t clock_process_ns(void); /* the same of all threads of this process together */
int64_t clock_wall_s(void);     /* seconds since 1970 */

/* A wait that is looked at all the time. A process that does not run (SIGSTOP, a suspended job, a frozen container) does not
 * look, and that time does not count. */
typedef struct clock_wait {
    int64_t begin_ns, look_ns; /* begin_ns: later by what does not count */
} clock_wait;
clock_wait clock_begin_wait(void);
double clock_waited_s(clock_wait *w);

#endif
