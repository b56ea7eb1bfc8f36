/* Choosing the next token from logits. Who calls checks the ranges (the command line, the settings of a model). */
#ifndef INFER_SAMPLE_H
#define INFER_SAMPLE_H

#include <stdint.h>

#include "base/rng.h"
#include "op/pick.h"

typedef struct sample_options {
    /* 0 to 100. 0: the most likely token, whatever else is asked for. */
    double temperature;
    /* Keep the k most likely tokens. 0: all. */
    int top_k;
    /* 0 to 1: keep the fewest of the most likely tokens that sum to p, one at least (Holtzman et al. 2020).
     * 1: all. 0: the most likely one, as any small number. */
    double top_p;
    /* 0 to 1: drop tokens less likely than min_p times the most likely (Nguyen et al. 2024). 0: none. */
    double min_p;
    /* 0.01 to 100: logits of seen tokens are divided by it where they are positive, multiplied where they are not
     * (Keskar et al. 2019). 1: unchanged. */
    double repetition_penalty;
    /* -2 to 2: taken from the logit of a token once if it is in the answer, and once for each time it
     * is there (OpenAI's API, "frequency and presence penalties"). 0: unchanged. */
    double presence_penalty, frequency_penalty;
    /* No n tokens in a row come twice, prompt included (Paulus et al. 2017, section 2.5). 0: off. */
    int no_repeat_ngram;
    uint64_t seed;
} sample_options;

/* The seed of line 1, 2, ... of a batch: line 1 draws as a prompt alone does with that seed; others differ, so that
 * equal prompts have different continuations, and depend on nothing but the seed and the line. */
uint64_t sample_seed(uint64_t seed, int64_t line);

/* One per sequence: it holds scratch memory for `vocab` logits, and nothing that a pick leaves behind. */
typedef struct sampler sampler;
sampler *sampler_new(const sample_options *opt, int32_t vocab);
void sampler_free(sampler *s); /* NULL is fine */
/* Picks the token at position `index` of a sequence from logits[V], which are overwritten; seen[n_seen] are the
 * tokens so far, of which the first n_prompt are not the answer's. Filters act in the order of transformers: repetition
 * penalty, repeated n-grams, then the other two penalties, temperature, top-k, top-p, min-p. A logit of -infinity never comes. The random
 * number depends on the seed and `index` alone, so a text does not depend on how it came about (threads, cache,
 * streaming). -1: the logits are no distribution (none is a finite number, or one is +infinity). */
int32_t sampler_pick(sampler *s, float *logits, uint64_t index, const int32_t *seen, int64_t n_seen,
                     int64_t n_prompt);

/* The rule by which sampler_pick picks at that position; false: it looks at the tokens so far, too. */
bool sampler_rule(const sampler *s, uint64_t index, pick_rule *rule);

/* The first two of these alone, of logits or log-probabilities [V]. */
void sampler_penalise(sampler *s, float *logits, const int32_t *seen, int64_t n_seen);

#endif
