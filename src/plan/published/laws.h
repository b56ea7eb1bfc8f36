/* What published laws say of a run: how many tokens its model should see, its batch, its learning rate. Each law is told with its
 * source and with what it was fitted on; beyond that it is an extrapolation, and is called one. C = 6 N D.
 *
 *   compute-optimal   D for N of Hoffmann et al. 2022 (arXiv:2203.15556), table 3, linear in logarithms between its points
 *   batch and rate    B = 0.2920 C^0.3271, lr = 0.3118 C^-0.1250: DeepSeek LLM 2024 (arXiv:2401.02954)
 *                     (its C is tokens times the FLOPs of one, without embeddings and with attention; 6 N D is near that)
 *                     B = 0.58 D^0.571, lr = 1.79 N^-0.713 D^0.307: Step Law, Li et al. 2025 (arXiv:2503.04715); N without embeddings
 *   rate              lr = 0.003239 - 0.0001395 ln N: Kaplan et al. 2020 (arXiv:2001.08361); N without embeddings
 *   repetition        e epochs are worth 1 + R (1 - exp(-(e - 1) / R)) epochs of new tokens, R = 15.39: Muennighoff et al. 2023
 *                     (arXiv:2305.16264), which finds four epochs nearly as good as new tokens
 *   practice          where a law is beyond its fit, what a published run of that kind used is told beside it: SmolLM3 (2025), of 3B
 *                     on 11T tokens, took a fifth of the batch and half of the rate that DeepSeek's law says
 *
 * Batches are in tokens. */
#ifndef PLAN_LAWS_H
#define PLAN_LAWS_H

#include <jansson.h>

#include "base/strbuf.h"

typedef struct laws_run {
    double params, body; /* N, and without embeddings (0: the same) */
    double
        stored; /* of a mixture of experts: parameters with experts that a token does not pick; N are active ones. 0: N */
    double tokens;    /* D */
    double batch, lr; /* the run's own; 0: unknown */
} laws_run;

/* D for N parameters, and N for a compute C, of which D is C / 6 N. */
double laws_optimal_tokens(double params);
double laws_optimal_params(double flops);
/* Epochs of new tokens that so many epochs are worth. */
double laws_worth_of_epochs(double epochs);
/* Beyond so many epochs repeated tokens are worth clearly less. */
static const double LAWS_MOST_EPOCHS = 4;

json_t *laws_json(const laws_run *r);
void laws_describe(const laws_run *r, strbuf *out);

#endif
