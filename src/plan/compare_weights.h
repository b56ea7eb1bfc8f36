/* Whether the weights of a model that was written are those of the model that it was made from.
 *
 * Logits tell whether the function is the same, but what a format with few bits costs hides a
 * permuted or lost tensor. Rounding has a bound in each row, and a wrong row is far beyond it. */
#ifndef PLAN_COMPARE_WEIGHTS_H
#define PLAN_COMPARE_WEIGHTS_H

#include "io/model_source.h"

/* Reads both piece by piece as a Hugging Face folder holds them. `dt` is the format of the result
 * where that was rounded, else DT_F32. ST_FAILED names the tensor, and the row, that differs by
 * more than rounding explains. */
status compare_weights(const model_source *source, const char *result, dtype dt,
                       err *e) ATH_MUST_USE;

#endif
