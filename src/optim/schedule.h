/* Learning-rate schedules. Steps count from 1; all begin with a linear warm-up: lr * step /
 * warmup_steps. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stdint.h>

#include "base/status.h"

/* linear      to min_lr at total_steps
 * cosine      to min_lr at total_steps (Loshchilov & Hutter 2017, one cycle)
 * wsd         warm-up, stable, decay over the last decay_steps (Hu et al. 2024, MiniCPM)
 * multistep   times gamma at each milestone */
#define SCHEDULE_KINDS(W)                                                                          \
    W(SCHEDULE_CONSTANT, "constant")                                                               \
    W(SCHEDULE_LINEAR, "linear")                                                                   \
    W(SCHEDULE_COSINE, "cosine")                                                                   \
    W(SCHEDULE_WSD, "wsd")                                                                         \
    W(SCHEDULE_MULTISTEP, "multistep")
typedef enum schedule_kind { SCHEDULE_KINDS(LIST_ENUMERATOR) } schedule_kind;

#define DECAY_KINDS(W)                                                                             \
    W(DECAY_LINEAR, "linear")                                                                      \
    W(DECAY_1_SQRT, "1-sqrt")                                                                      \
    W(DECAY_EXPONENTIAL, "exponential")                                                            \
    W(DECAY_COSINE, "cosine")
typedef enum decay_kind { DECAY_KINDS(LIST_ENUMERATOR) } decay_kind;

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
