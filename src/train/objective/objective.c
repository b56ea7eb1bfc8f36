#include "train/objective/objective.h"

extern const objective objective_dpo;

/* Language modelling: the mean negative log-likelihood of all targets. */
static const objective lm = {.name = "lm", .sequences = 1};

static const objective *const objectives[] = {
    [CONFIG_OBJECTIVE_LM] = &lm, [CONFIG_OBJECTIVE_DPO] = &objective_dpo};

const objective *objective_of(const config *c) {
    return objectives[c->train.objective];
}
