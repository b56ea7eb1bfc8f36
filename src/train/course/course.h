/* The course of a run is a table of its stages. A stage consists of parts, in which batch and
 * sequence length are constant. For any step the table gives its stage, its first sample, the
 * tokens so far and the learning rate, so starting, resuming and replaying cost the same at any
 * step.
 *
 * A run without `stages` in its config has one stage, whose name is "". Steps count from 1. Samples
 * (sequences) are numbered from 0 in each stage, because each has a mixture of its own. */
#ifndef TRAIN_COURSE_H
#define TRAIN_COURSE_H

#include "optim/lr_schedule.h"
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
    config *c;        /* the run's, with the stage's changes */
    int64_t first_step, last_step;
    int64_t max_batch;
    int T, B;              /* sequence length, micro-batch */
    lr_schedule schedule;  /* counts steps from schedule_base */
    int64_t schedule_base; /* number of steps of the run before step 1 of the schedule */
    int64_t optim_base; /* steps of the run before the optimizer's state began (bias correction) */
} course_stage;

/* Where a forked run began. The steps before it belong to the course of another run. All zero: the
 * run is no fork. */
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
    bool knows_length; /* false: config and data do not say how long the run is */
    int n_configs;     /* how many configs of stages it owns */
} course;

/* Makes the course that a config describes. epoch_sequences: sequences in one pass over the data,
 * for train.epochs; 0: not known. A run whose length is not known gets one step, which is enough to
 * plan its memory. Without stages the course keeps `c`. ST_USAGE: a stage would have no step, or
 * the last stage ends before the run. */
status course_new(course **out, const config *c, uint64_t epoch_sequences,
                  const course_origin *origin, err *e) ATH_MUST_USE;
void course_free(course *c); /* NULL is fine */
/* Warns if the warm-up and the decay of a schedule together are longer than its steps. */
void course_warn(const course *c);

const course_part *course_part_of(const course *c, int64_t step);
const course_stage *course_stage_of(const course *c, int64_t step);
/* The stage of the last of `step` finished steps; 0 before the first. */
int course_last_stage(const course *c, int64_t step);
/* First sample of a step, in its stage's numbering; tokens of the run after a step. */
uint64_t course_first_sample(const course *c, int64_t step);
uint64_t course_tokens_after(const course *c, int64_t step);
/* Number of samples of a stage. */
uint64_t course_stage_samples(const course *c, int stage);
double course_lr(const course *c, int64_t step);
/* Decay rate of the first moment. */
double course_beta1(const course *c, int64_t step);

#endif
