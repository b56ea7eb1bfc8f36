/* Odds ratio preference optimisation (Hong et al. 2024, equations 4 to 7), which has no reference. A
 * sample is a pair: the chosen answer, then the rejected one. With l the mean log p of an answer's
 * tokens, and its odds p / (1 - p) those of p = exp(l),
 *
 *   loss = -l_chosen - lambda log sigmoid(log odds_chosen - log odds_rejected)
 *
 * and d log odds / d l = 1 / (1 - exp(l)). The likelihood is that of answers, as in the paper; TRL adds
 * the tokens of prompts to it, and takes its mean over the tokens of a micro-batch. */
#include "train/objective/objective.h"

/* Odds of 1 are infinite, and the loss says nothing of answers that are so likely. */
static const double LARGEST = -1e-9;

static double mean_logp(const objective_row *r) {
    return fmin(objective_mean(r->logp, r), LARGEST);
}

static double log_odds(double l) {
    return l - log(-expm1(l));
}

static double loss(const config *c, const objective_row *rows, double kl, double *d_logp) {
    (void)kl;
    double lambda = c->train.preference.lambda;
    double chosen = mean_logp(&rows[0]), rejected = mean_logp(&rows[1]);
    double x = log_odds(chosen) - log_odds(rejected), push = lambda * objective_sigmoid(-x);
    d_logp[0] = objective_mean(-1 - push / -expm1(chosen), &rows[0]);
    d_logp[1] = objective_mean(push / -expm1(rejected), &rows[1]);
    return -chosen - lambda * objective_log_sigmoid(x);
}

static double reward(const config *c, const objective_row *r) {
    return c->train.preference.lambda * mean_logp(r);
}

const objective objective_orpo = {
    .name = "orpo", .sequences = 2, .learned = 2, .marks = true, .loss = loss, .reward = reward};
