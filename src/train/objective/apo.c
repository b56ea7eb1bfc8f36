/* Anchored preference optimisation (D'Oosterlinck et al. 2024, equations 7 and 8). A sample is a
 * pair: the chosen answer, then the rejected one. With r = beta (log p - log p_reference),
 *
 *   apo-zero:  loss = 1 - sigmoid(r_chosen) + sigmoid(r_rejected)
 *   apo-down:  loss = sigmoid(r_chosen) + 1 - sigmoid(r_chosen - r_rejected)
 *
 * apo-zero is for data whose chosen answers are better than the model's own: they become likelier,
 * the rejected ones less likely. apo-down is for data whose chosen answers are worse than the model's
 * own: both become less likely, the rejected ones more so. */
#include "train/objective/objective.h"

/* d sigmoid(x) / dx */
static double slope(double x) {
    return objective_sigmoid(x) * objective_sigmoid(-x);
}

static double loss_zero(const config *c, const objective_row *rows, double kl, double *d_logp) {
    (void)kl;
    double chosen = objective_implicit_reward(c, &rows[0]);
    double rejected = objective_implicit_reward(c, &rows[1]);
    d_logp[0] = -c->train.beta * slope(chosen);
    d_logp[1] = c->train.beta * slope(rejected);
    return objective_sigmoid(-chosen) + objective_sigmoid(rejected);
}

static double loss_down(const config *c, const objective_row *rows, double kl, double *d_logp) {
    (void)kl;
    double chosen = objective_implicit_reward(c, &rows[0]);
    double margin = chosen - objective_implicit_reward(c, &rows[1]);
    d_logp[0] = c->train.beta * (slope(chosen) - slope(margin));
    d_logp[1] = c->train.beta * slope(margin);
    return objective_sigmoid(chosen) + objective_sigmoid(-margin);
}

const objective objective_apo_zero = {.name = "apo-zero",
                                      .sequences = 2,
                                      .learned = 2,
                                      .marks = true,
                                      .reference = true,
                                      .loss = loss_zero,
                                      .reward = objective_implicit_reward};
const objective objective_apo_down = {.name = "apo-down",
                                      .sequences = 2,
                                      .learned = 2,
                                      .marks = true,
                                      .reference = true,
                                      .lowers_chosen = true,
                                      .loss = loss_down,
                                      .reward = objective_implicit_reward};
