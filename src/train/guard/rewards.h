/* Two ways in which learning from preferences goes wrong while its loss looks well. The answers of the
 * data become less likely, chosen ones too, only less so than rejected ones: the model unlearns both
 * (Pal et al. 2024; Razin et al. 2024). And the margin grows until no pair teaches anything any more:
 * the pairs are known by heart. Both are seen in running means of the last ten steps or so, and told
 * once in a run. */
#ifndef TRAIN_REWARDS_H
#define TRAIN_REWARDS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

/* Rewards are beta times log ratios (objective.h). A chosen answer of -1 is e^(-1 / beta) times as
 * likely as by the reference; at a margin of 10 the loss of DPO is 0.00005. */
static const double REWARDS_LEAST_CHOSEN = -1, REWARDS_MOST_MARGIN = 10;

typedef enum rewards_alarm { REWARDS_FINE, REWARDS_FALL, REWARDS_MARGIN } rewards_alarm;

typedef struct rewards_guard {
    double chosen, margin, weight; /* sums with weights that decay, and the sum of these weights */
    bool told_fall, told_margin;
} rewards_guard;

/* Takes a step's means; NaN: it had none. */
rewards_alarm rewards_take(rewards_guard *g, double chosen, double margin);
double rewards_mean_chosen(const rewards_guard *g);
double rewards_mean_margin(const rewards_guard *g);

json_t *rewards_to_json(const rewards_guard *g);
/* NULL: a checkpoint from before this guard was there. */
status rewards_from_json(rewards_guard *g, const json_t *o, err *e) ATH_MUST_USE;

#endif
