/* The course of a run: its stages and, within them, parts in which batch and sequence length are
 * constant. Where a step lies (stage, samples, tokens, learning rate) is arithmetic on it, so
 * starting, resuming and replaying cost the same at any step.
 *
 * A run without stages has one, without a name. Steps count from 1. Samples are counted anew in
 * each stage, because each has its own mixture. */
#ifndef TRAIN_COURSE_H
#define TRAIN_COURSE_H

#include "optim/schedule.h"
#include "run/config/config.h"

typedef struct course_part {
    int stage;
    int64_t first_step, last_step;
    int64_t batch;         /* sequences per step */
    uint64_t first_sample; /* of its first step, in the stage's numbering */
    uint64_t tokens;       /* of the run, before its first step */
} course_part;

typedef struct course_stage {
    const char *name; /* "" without stages */
    config *c;        /* that holds in it */
    int64_t first_step, last_step;
    int64_t max_batch;
    int T, B;              /* sequence length, micro-batch */
    schedule schedule;     /* counts steps from schedule_base */
    int64_t schedule_base; /* steps of the run before the schedule's first */
    int64_t optim_base;    /* the same of the optimizer's state */
} course_stage;

/* Where a forked run began: what came before was another course. All zero: nowhere. */
typedef struct course_origin {
    int64_t step;
    int stage;
    uint64_t samples; /* of that stage, before the next step */
    uint64_t tokens;
} course_origin;

typedef struct course {
    course_stage *stage;
    int n_stages;
    course_part *part;
    int n_parts, cap;
    int64_t total_steps;
    int n_configs; /* configs of stages that it owns */
} course;

/* The course that a config describes. epoch_sequences: sequences in a pass over the data, for
 * train.epochs; 0: unknown. Without a length the run has one step: its shapes are right. `c` is
 * kept by a run without stages. ST_USAGE: a stage that would be empty, or a run that goes on after
 * its last stage. */
status course_new(course **out, const config *c, uint64_t epoch_sequences,
                  const course_origin *origin, err *e) ATH_MUST_USE;
void course_free(course *c); /* NULL is fine */
/* Warns of a schedule whose warm-up and decay have no room in the steps it lasts. */
void course_warn(const course *c);

const course_part *course_part_of(const course *c, int64_t step);
const course_stage *course_stage_of(const course *c, int64_t step);
/* The stage of the last of `step` finished steps; 0 before the first. */
int course_last_stage(const course *c, int64_t step);
/* First sample of a step in its stage's numbering, and tokens of the run when it is done. */
uint64_t course_first_sample(const course *c, int64_t step);
uint64_t course_tokens_after(const course *c, int64_t step);
/* Samples of a stage. */
uint64_t course_stage_samples(const course *c, int stage);
double course_lr(const course *c, int64_t step);

#endif
