/* Direct preference optimisation (Rafailov et al. 2023, equation 7), with the label smoothing of
 * Mitchell 2023 ("A note on DPO with noisy preferences", equation 3). A sample is a pair: the chosen
 * answer, then the rejected one. With r = log p - log p_reference of an answer, m = beta (r_chosen -
 * r_rejected), and s the share of pairs that are the wrong way round,
 *
 *   loss = -(1 - s) log sigmoid(m) - s log sigmoid(-m),   d loss / d m = s sigmoid(m) - (1 - s) sigmoid(-m) */
#include "train/objective/objective.h"

static double loss(const config *c, const objective_row *rows, double kl, double *d_logp) {
    (void)kl;
    double beta = c->train.beta, s = c->train.preference.label_smoothing;
    double m = beta * (objective_ratio(&rows[0]) - objective_ratio(&rows[1]));
    double slope = beta * (s * objective_sigmoid(m) - (1 - s) * objective_sigmoid(-m));
    d_logp[0] = slope;
    d_logp[1] = -slope;
    return -(1 - s) * objective_log_sigmoid(m) - s * objective_log_sigmoid(-m);
}

const objective objective_dpo = {.name = "dpo",
                                 .sequences = 2,
                                 .learned = 2,
                                 .marks = true,
                                 .reference = true,
                                 .loss = loss,
                                 .reward = objective_implicit_reward};
