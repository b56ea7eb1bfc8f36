/* Direct preference optimisation (Rafailov et al. 2023, equation 7). A sample is a pair: the chosen
 * sequence, then the rejected one. With r = log p of a sequence's targets by the policy minus that
 * by the reference, and m = beta (r_chosen - r_rejected),
 *
 *   loss = -log sigmoid(m),   d loss / d nll = beta sigmoid(-m) in chosen targets, minus that in
 *                                              rejected ones. */
#include <math.h>

#include "train/objective/objective.h"

/* log p of one sequence's targets, relative to the reference. */
static double log_ratio(const objective_batch *b, int row) {
    double sum = 0;
    for (int64_t i = (int64_t)row * b->T; i < (int64_t)(row + 1) * b->T; i++)
        if (b->targets[i] >= 0) sum += (double)b->ref_nll[i] - (double)b->nll[i];
    return sum;
}

static void set_gradient(const objective_batch *b, int row, float value, float *d_nll) {
    for (int64_t i = (int64_t)row * b->T; i < (int64_t)(row + 1) * b->T; i++)
        d_nll[i] = b->targets[i] >= 0 ? value : 0.0f;
}

static double loss(const objective_batch *b, float *d_nll) {
    double sum = 0, beta = b->c->train.beta;
    for (int chosen = 0; chosen < b->B; chosen += 2) {
        double margin = beta * (log_ratio(b, chosen) - log_ratio(b, chosen + 1));
        /* log(1 + exp(-margin)), where neither side overflows */
        sum += margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
        double slope = beta / (1.0 + exp(margin)) * (double)b->scale;
        set_gradient(b, chosen, (float)slope, d_nll);
        set_gradient(b, chosen + 1, (float)-slope, d_nll);
    }
    return sum;
}

const objective objective_dpo = {.name = "dpo", .sequences = 2, .reference = true, .loss = loss};
