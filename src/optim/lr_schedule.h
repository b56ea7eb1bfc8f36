/* Learning-rate schedules. Steps count from 1; all but one_cycle begin with a linear warm-up: lr * step /
 * warmup_steps. */
#ifndef OPTIM_LR_SCHEDULE_H
#define OPTIM_LR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* linear      to min_lr at total_steps
 * cosine      to min_lr at total_steps (Loshchilov & Hutter 2017, one cycle)
 * wsd         warm-up, stable, decay over the last decay_steps (Hu et al. 2024, MiniCPM)
 * multistep   times gamma at each milestone
 * inverse_sqrt  lr until step K = timescale, then lr * sqrt(K / step). With lr 0.01 and K 10000 this is
 *             1 / sqrt(max(step, 10^4)) of T5 (Raffel et al. 2020, section 3.1.2)
 * one_cycle   from lr / div_factor up to lr and down to 1 / final_div_factor of the first rate (Smith &
 *             Topin 2018), as torch.optim.lr_scheduler.OneCycleLR counts */
#define SCHEDULE_KINDS(W)                                                                          \
    W(SCHEDULE_CONSTANT, "constant")                                                               \
    W(SCHEDULE_LINEAR, "linear")                                                                   \
    W(SCHEDULE_COSINE, "cosine")                                                                   \
    W(SCHEDULE_WSD, "wsd")                                                                         \
    W(SCHEDULE_MULTISTEP, "multistep")                                                             \
    W(SCHEDULE_INVERSE_SQRT, "inverse_sqrt")                                                       \
    W(SCHEDULE_ONE_CYCLE, "one_cycle")
typedef enum lr_schedule_kind { SCHEDULE_KINDS(LIST_ENUMERATOR) } lr_schedule_kind;

#define DECAY_KINDS(W)                                                                             \
    W(DECAY_LINEAR, "linear")                                                                      \
    W(DECAY_1_SQRT, "1-sqrt")                                                                      \
    W(DECAY_EXPONENTIAL, "exponential")                                                            \
    W(DECAY_COSINE, "cosine")
typedef enum decay_kind { DECAY_KINDS(LIST_ENUMERATOR) } decay_kind;

#define ANNEAL_KINDS(W)                                                                            \
    W(ANNEAL_COSINE, "cosine")                                                                     \
    W(ANNEAL_LINEAR, "linear")
typedef enum anneal_kind { ANNEAL_KINDS(LIST_ENUMERATOR) } anneal_kind;

typedef struct one_cycle {
    double pct_start, div_factor, final_div_factor;
    anneal_kind anneal;
    bool three_phase; /* falls to the first rate in as many steps as it rose, then to the last */
    double least_beta1,
        most_beta1; /* the cycle of beta1, which falls as the rate rises; both 0: none */
} one_cycle;

typedef struct lr_schedule {
    lr_schedule_kind kind;
    decay_kind decay; /* curve of WSD */
    double lr, min_lr, gamma;
    int64_t warmup_steps, total_steps;
    int64_t decay_steps; /* -1: a fifth of the run in WSD, all after the warm-up elsewhere */
    const int64_t *milestones;
    int n_milestones;
    int64_t timescale; /* -1: warmup_steps, or 10000 where these are 0 */
    one_cycle cycle;
} lr_schedule;

/* Rate of optimizer step `step`. In WSD the decay starts at s0 = total - decay_steps + 1 with the
 * full rate and would reach min_lr one step after the last, so that no step is wasted. Exponential
 * decay goes to min_lr, or to lr/100 where that is 0. */
double lr_schedule_at(const lr_schedule *s, int64_t step);
/* beta1 of that step, where the optimizer's is `usual`. */
double lr_schedule_beta1(const lr_schedule *s, int64_t step, double usual);

#endif
