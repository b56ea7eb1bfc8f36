/* Learning-rate schedules. Steps count from 1; all begin with a linear warm-up: lr * step /
 * warmup_steps. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stdint.h>

typedef enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR, /* to min_lr at total_steps */
    SCHEDULE_COSINE, /* to min_lr at total_steps (Loshchilov & Hutter 2017, one cycle) */
    SCHEDULE_WSD, /* warm-up, stable, decay over the last decay_steps (Hu et al. 2024, MiniCPM) */
    SCHEDULE_MULTISTEP, /* times gamma at each milestone */
} schedule_kind;

typedef enum decay_kind { DECAY_LINEAR, DECAY_1_SQRT, DECAY_EXPONENTIAL, DECAY_COSINE } decay_kind;

typedef struct schedule {
    schedule_kind kind;
    decay_kind decay; /* curve of WSD */
    double lr, min_lr, gamma;
    int64_t warmup_steps, total_steps;
    int64_t decay_steps; /* -1: a fifth of the run in WSD, all after the warm-up elsewhere */
    const int64_t *milestones;
    int n_milestones;
} schedule;

/* Rate of optimizer step `step`. In WSD the decay starts at s0 = total - decay_steps + 1 with the
 * full rate and would reach min_lr one step after the last, so that no step is wasted. Exponential
 * decay goes to min_lr, or to lr/100 where that is 0. */
double schedule_lr(const schedule *s, int64_t step);

#endif
