/* Looks ahead before a run trains: what would only be found hours later. Checks of single values and of
 * pairs of keys are those of run/config, of layouts those of setup.c; here is what needs the length of
 * the run, the plan, the disk or the job around it.
 *
 * What cannot go well is the error; what may be meant so is a warning, with what to change. */
#ifndef TRAIN_LINT_H
#define TRAIN_LINT_H

#include "plan/plan.h"
#include "train/course/course.h"

typedef struct lint_run {
    const config *c;
    const course *course;
    const plan *plan;
    int ranks;
    dev_kind kind;
    uint64_t sequences; /* in one pass over the data of the first stage; 0: not known */
    bool fresh;         /* --fresh */
    int64_t forked_at;  /* steps of the run that this one is a fork of; 0: none */
} lint_run;

status lint_check(const lint_run *k, err *e) ATH_MUST_USE;

#endif
