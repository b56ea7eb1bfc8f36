#include "train/objective/objective.h"

extern const objective objective_dpo, objective_ipo, objective_apo_zero, objective_apo_down,
    objective_kto, objective_orpo, objective_classify, objective_reward;

/* Language modelling: the mean negative log-likelihood of all targets. Teaching is the same on data
 * that say which tokens are targets. */
static const objective lm = {.name = "lm", .sequences = 1, .learned = 1};
static const objective sft = {.name = "sft", .sequences = 1, .learned = 1, .marks = true};

static const objective *const objectives[] = {[CONFIG_OBJECTIVE_LM] = &lm,
                                              [CONFIG_OBJECTIVE_SFT] = &sft,
                                              [CONFIG_OBJECTIVE_DPO] = &objective_dpo,
                                              [CONFIG_OBJECTIVE_IPO] = &objective_ipo,
                                              [CONFIG_OBJECTIVE_APO_ZERO] = &objective_apo_zero,
                                              [CONFIG_OBJECTIVE_APO_DOWN] = &objective_apo_down,
                                              [CONFIG_OBJECTIVE_KTO] = &objective_kto,
                                              [CONFIG_OBJECTIVE_ORPO] = &objective_orpo,
                                              [CONFIG_OBJECTIVE_CLASSIFY] = &objective_classify,
                                              [CONFIG_OBJECTIVE_REWARD] = &objective_reward};

const objective *objective_of(const config *c) {
    CHECK(c->train.objective < ARRAY_LEN(objectives) && objectives[c->train.objective],
          "objective %d is an option but has no row", c->train.objective);
    return objectives[c->train.objective];
}

double objective_implicit_reward(const config *c, const objective_row *r) {
    return c->train.beta * objective_ratio(r);
}

int64_t objective_fixed(double x) {
    return isfinite(x) ? llrint(x * OBJECTIVE_ONE) : 0;
}

double objective_average(int64_t sum, int64_t count) {
    return count > 0 ? (double)sum / OBJECTIVE_ONE / (double)count : NAN;
}

/* Of row k of a sample: in pairs the first answer is the chosen one. */
static bool is_chosen(const objective *o, const objective_row *rows, int k) {
    return o->labels ? rows[k].desirable : k == 0;
}

static void add_rewards(const objective *o, const config *c, const objective_row *rows,
                        int64_t sums[SUM_COUNT]) {
    for (int k = 0; k < o->learned; k++) {
        bool chosen = is_chosen(o, rows, k);
        sums[SUM_TARGETS] += rows[k].targets;
        sums[chosen ? SUM_CHOSEN : SUM_REJECTED]++;
        sums[chosen ? SUM_REWARD_CHOSEN : SUM_REWARD_REJECTED] +=
            objective_fixed(o->reward(c, &rows[k]));
        sums[chosen ? SUM_LOGP_CHOSEN : SUM_LOGP_REJECTED] += objective_fixed(rows[k].logp);
    }
    if (o->learned == 2) sums[SUM_WINS] += o->reward(c, &rows[0]) > o->reward(c, &rows[1]);
}

double objective_loss(const objective *o, const config *c, const objective_row *rows, int n,
                      double kl, double *d_logp, int64_t sums[SUM_COUNT]) {
    double all = 0;
    for (int i = 0; i < n; i++) {
        const objective_row *sample = rows + i * o->learned;
        double loss = o->loss(c, sample, kl, d_logp + i * o->learned);
        sums[SUM_LOSS] += objective_fixed(loss);
        if (o->values) {
            sums[SUM_CHOSEN]++;
            sums[SUM_WINS] += o->is_right(sample);
        } else
            add_rewards(o, c, sample, sums);
        all += loss;
    }
    return all;
}
