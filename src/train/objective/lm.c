/* Language modelling: the mean negative log-likelihood of all targets. */
#include "train/objective/objective.h"

const objective objective_lm = {.name = "lm", .sequences = 1};
