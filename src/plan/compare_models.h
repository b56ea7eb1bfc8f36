/* Whether a model that was written computes what the model that it was made from computes: logits
 * and token ids of the same prompts. */
#ifndef PLAN_COMPARE_MODELS_H
#define PLAN_COMPARE_MODELS_H

#include "io/model_source.h"

/* How far numbers may be apart. KL is the divergence of the distributions over the vocabulary, in
 * nats, mean over positions; relative is to the largest logit. */
typedef struct compare_limits {
    double relative, kl;
} compare_limits;

/* What is usual for weights in a format, where they were stored with more bits: limits that a right
 * conversion keeps and a wrong one does not. DT_F32: sums in another order. */
compare_limits compare_limits_of(dtype dt);

typedef struct model_comparison {
    int64_t positions;                                /* 0: nothing was computed */
    double max_abs_diff, max_relative, mean_kl, top1; /* top1: share of equal most likely tokens */
    int64_t texts; /* encoded by both tokenizers; 0: there is none */
    bool ids_equal;
    compare_limits limits;
    bool verified;
} model_comparison;

/* `result`: what was written, a folder or file. ST_MEMORY: the model does not fit. ST_NONFINITE:
 * the source gives no numbers. A model that is read but computes something else is no failure:
 * verified tells. */
status compare_models(const model_source *source, const char *result, compare_limits limits,
                      model_comparison *out, err *e) ATH_MUST_USE;

#endif
