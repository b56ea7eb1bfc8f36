/* Choosing the next token from logits. */
#ifndef INFER_SAMPLE_H
#define INFER_SAMPLE_H

#include <stdint.h>

#include "base/rng.h"

typedef struct sample_options {
    double temperature; /* 0: the most likely token */
    int top_k;          /* keep the k most likely; 0: all */
    double top_p; /* keep the most likely tokens that sum to p (Holtzman et al. 2020); 1: all */
    double min_p; /* drop tokens below min_p times the most likely (Nguyen et al. 2024); 0: none */
    double repetition_penalty; /* logits of seen tokens are divided (positive) or multiplied; 1: off
                                  (Keskar et al. 2019) */
    uint64_t seed;
} sample_options;

typedef struct sampler sampler;
sampler *sampler_new(const sample_options *opt, int32_t vocab);
void sampler_free(sampler *s);
/* Picks the token at position `index` of a sequence: the draw depends on (seed, index) only.
 * `logits` [V] is overwritten; seen[n_seen] are the tokens so far. Order of filters: penalty,
 * temperature, top-k, top-p, min-p (as in transformers). -1: no logit is a finite number, or one is
 * infinite. */
int32_t sampler_pick(sampler *s, float *logits, uint64_t index, const int32_t *seen,
                     int64_t n_seen);

#endif
