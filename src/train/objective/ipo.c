/* Identity preference optimisation (Azar et al. 2023, equation 17; tau is train.beta). A sample is a
 * pair: the chosen answer, then the rejected one. The log ratios are means over the tokens of an
 * answer, as in TRL, whose authors took that from the paper's; sums would make the loss grow with
 * the square of the length. With h their difference,
 *
 *   loss = (h - 1 / (2 tau))^2 */
#include "train/objective/objective.h"

static double loss(const config *c, const objective_row *rows, double kl, double *d_logp) {
    (void)kl;
    double h = objective_mean(objective_ratio(&rows[0]), &rows[0]) -
               objective_mean(objective_ratio(&rows[1]), &rows[1]);
    double off = h - 1 / (2 * c->train.beta);
    d_logp[0] = objective_mean(2 * off, &rows[0]);
    d_logp[1] = -objective_mean(2 * off, &rows[1]);
    return off * off;
}

const objective objective_ipo = {.name = "ipo",
                                 .sequences = 2,
                                 .learned = 2,
                                 .marks = true,
                                 .reference = true,
                                 .loss = loss,
                                 .reward = objective_implicit_reward};
