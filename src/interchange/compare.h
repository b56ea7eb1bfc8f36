/* Whether a model that was written is the model that it was made from.
 *
 * Two questions are asked, since each sees what the other misses. Numbers of the weights: rounding
 * moves them by a known bound at most, and a tensor that was lost, or a row that is in another
 * place, is far beyond it. Logits of the same prompts: whether config, tokenizer and weights
 * together still compute the same function.
 *
 * `result` is what was written: a folder or a GGUF file. */
#ifndef INTERCHANGE_COMPARE_H
#define INTERCHANGE_COMPARE_H

#include "io/model_source.h"

/* Reads the weights of both, piece by piece, by the names that a Hugging Face folder gives them.
 * `dt`: the format in which the result is stored, if weights were rounded to it, else DT_F32.
 * ST_FAILED names the tensor, and the row of it, that differs by more than rounding explains. */
status compare_weights(const model_source *source, const char *result, dtype dt,
                       err *e) ATH_MUST_USE;

/* How far logits may be apart. relative: the largest difference of two logits, as a share of the
 * largest logit. kl: the Kullback-Leibler divergence of the two distributions over the vocabulary,
 * in nats, mean over positions. */
typedef struct compare_limits {
    double relative, kl;
} compare_limits;

/* The limits for weights in a format that had more bits before: a right conversion keeps them, a
 * wrong one does not. DT_F32: nothing was rounded, only sums may be in another order. */
compare_limits compare_limits_of(dtype dt);

typedef struct model_comparison {
    int64_t positions; /* tokens whose logits were compared; 0: nothing was computed */
    double max_abs_diff, max_relative, mean_kl;
    double top1;   /* share of positions with the same most likely token */
    int64_t texts; /* encoded by both tokenizers; 0: the source has none */
    bool ids_equal;
    compare_limits limits;
    bool verified;    /* ids are equal, and the figures within the limits; or: */
    bool by_rounding; /* compare_rounding has said that it is right nevertheless */
} model_comparison;

/* Runs up to four prompts of 64 tokens through both. That the result computes something else is no
 * error: out->verified tells. ST_MEMORY: a model does not fit. ST_NONFINITE: the source itself
 * gives logits that are no numbers. */
status compare_models(const model_source *source, const char *result, compare_limits limits,
                      model_comparison *out, err *e) ATH_MUST_USE;

/* Where figures are beyond the limits though compare_weights found all weights as rounding leaves them: how much rounding
 * changes a model is up to the model, and may be more than the limits of a format, where logits are large, say. Whether
 * rounding alone has done it is seen by the source's config with the weights of the result: that computes what the result
 * computes, within the limits of DT_F32. Where it does, *c is verified. Nothing is seen of a result that lacks
 * parameters of the source, other than those of modules that predict further tokens. */
status compare_rounding(const model_source *source, const char *result, model_comparison *c,
                        err *e) ATH_MUST_USE;

#endif
