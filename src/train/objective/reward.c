/* A reward model (Ouyang et al. 2022, equation 1): a head of one number that is larger for chosen answers, by the model of
 * Bradley and Terry. With the scores of a pair and c = train.preference.center,
 *
 *   loss = -log sigmoid(s_chosen - s_rejected) + c (s_chosen + s_rejected)^2
 *
 * The second term holds the scores near 0 (Eisenstein et al. 2023, section 2), which their difference leaves open. */
#include "train/objective/objective.h"

static double loss(const config *c, const objective_row *rows, double kl, double *d_logp) {
    (void)kl;
    d_logp[0] = d_logp[1] = 0;
    double good = (double)rows[0].score[0], bad = (double)rows[1].score[0];
    double slope = -objective_sigmoid(bad - good), center = c->train.preference.center;
    rows[0].d_score[0] = (float)(slope + 2 * center * (good + bad));
    rows[1].d_score[0] = (float)(-slope + 2 * center * (good + bad));
    return -objective_log_sigmoid(good - bad) + center * (good + bad) * (good + bad);
}

static double reward(const config *c, const objective_row *r) {
    (void)c;
    return (double)r->score[0];
}

const objective objective_reward = {.name = "reward",
                                    .sequences = 2,
                                    .learned = 2,
                                    .marks = true,
                                    .head = true,
                                    .loss = loss,
                                    .reward = reward};
