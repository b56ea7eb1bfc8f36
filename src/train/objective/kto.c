/* Kahneman-Tversky optimisation (Ethayarajh et al. 2024, equations 7 and 8). A sample is a prompt with
 * an answer that is desirable or not; its second sequence is the prompt with the answer of another
 * sample, which is not learned. With r = log p - log p_reference of the first sequence, and z the
 * mean of that over the second sequences of the whole step, or 0 if that is negative,
 *
 *   loss = w_desirable   (1 - sigmoid(beta (r - z)))   or
 *          w_undesirable (1 - sigmoid(beta (z - r)))
 *
 * z has no gradient. TRL takes the mean over a micro-batch of all ranks; here it is over the step, so
 * that it does not depend on how a step is cut. */
#include "train/objective/objective.h"

static double loss(const config *c, const objective_row *rows, double kl, double *d_logp) {
    bool good = rows[0].desirable;
    double weight =
        good ? c->train.preference.desirable_weight : c->train.preference.undesirable_weight;
    double beta = good ? c->train.beta : -c->train.beta;
    double x = beta * (objective_ratio(&rows[0]) - kl);
    d_logp[0] = -weight * beta * objective_sigmoid(x) * objective_sigmoid(-x);
    return weight * objective_sigmoid(-x);
}

const objective objective_kto = {.name = "kto",
                                 .sequences = 2,
                                 .learned = 1,
                                 .marks = true,
                                 .labels = true,
                                 .reference = true,
                                 .kl = true,
                                 .loss = loss,
                                 .reward = objective_implicit_reward};
