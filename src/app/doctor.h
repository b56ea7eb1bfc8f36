/* The list of checks that doctor prints, and its burn-in. */
#ifndef APP_DOCTOR_H
#define APP_DOCTOR_H

#include <jansson.h>

#include "app/frame/cli.h"

typedef struct doctor_checks {
    json_t *list; /* of objects with name, ok and detail */
    int failed;
} doctor_checks;

ATH_PRINTF(4, 5)
void doctor_check(doctor_checks *c, const char *name, bool ok, const char *fmt, ...);
void doctor_print(const doctor_checks *c);
/* ST_FAILED if a check has failed. */
status doctor_result(const doctor_checks *c, bool json, err *e) ATH_MUST_USE;

/* athanor doctor burnin. */
status doctor_burnin(double seconds, doctor_checks *c, err *e) ATH_MUST_USE;

/* The part of athanor doctor calibrate that measures ops and collectives for the planner's clock. */
status doctor_calibrate(const cli_args *args, doctor_checks *c, err *e) ATH_MUST_USE;

#endif
