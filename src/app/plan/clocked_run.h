/* The main run of a config by the clock. Each part of its course has steps of its own: stages may have other sequences, and the
 * batch may grow (train.batch_ramp). What is beside steps (validation, tasks, saves that are waited for) is not reckoned. */
#ifndef APP_CLOCKED_RUN_H
#define APP_CLOCKED_RUN_H

#include "plan/clock/clock.h"
#include "train/course/course.h"

typedef struct clocked_run {
    double seconds;    /* of all steps */
    double mfu;        /* as clock_mfu, of all steps */
    double peak_flops; /* of a device */
    int devices;
} clocked_run;

/* p: planned for that course, whose length is known. */
clocked_run clocked_run_of(plan *p, const course *k, const cluster *on);

#endif
