/* What the model thought of a token: its log-probability, and the most likely ones in its place.
 * Of the logits as the model gave them, before temperature, bias, penalties, constraints and filters. */
#ifndef INFER_TOKEN_REPORT_H
#define INFER_TOKEN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct token_report {
    int32_t id;
    double logprob; /* natural logarithm */
    /* [n_top] the most likely ids, falling, of equal ones the smallest first */
    const int32_t *top_ids;
    const double *top_logprobs;
    int n_top;
    bool ends; /* an id that ends the text and is no part of it */
} token_report;

/* log of the sum of e^logit: log p of a token is its logit less this. To a few units in the last place
 * of fp32. Not finite: one of them is NaN or infinity, or all are -infinity. */
double logits_log_sum(const float *logits, int32_t vocab);
/* ST_NONFINITE: the logits after so many tokens of a text are no finite numbers. */
status logits_not_finite(int64_t tokens, err *e);
/* The same of the first of n rows [vocab] in which a number is not finite, the rows being those after
 * `tokens` tokens, one more, ... */
status logits_check(const float *logits, int64_t n, int64_t vocab, int64_t tokens,
                    err *e) ATH_MUST_USE;
/* Fills ids[n] and logprobs[n] with the most likely of the ids below n_ids; returns how many there
 * are, at most n. A NaN is none. log_sum: of all logits. */
int most_likely(const float *logits, int32_t n_ids, double log_sum, int n, int32_t *ids,
                double *logprobs);

#endif
