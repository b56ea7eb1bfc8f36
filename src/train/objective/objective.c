#include "train/objective/objective.h"

extern const objective objective_lm, objective_dpo;

static const objective *const objectives[] = {
    [CONFIG_OBJECTIVE_LM] = &objective_lm, [CONFIG_OBJECTIVE_DPO] = &objective_dpo};

const objective *objective_of(const config *c) {
    CHECK(c->train.objective < ARRAY_LEN(objectives) && objectives[c->train.objective],
          "objective %d is an option but has no row", c->train.objective);
    return objectives[c->train.objective];
}
