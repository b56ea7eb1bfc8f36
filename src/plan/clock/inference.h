/* What a model needs where it only generates: weights, the KV cache, and how long a prompt and a token take on a device.
 *
 * The programs are those that `generate` runs, planned and never run; each op takes what the roofline says (roofline.h). Matrices are
 * counted in the format in which they would be stored: a product reads fewer bytes then, and computes in 16 bits. Several texts at
 * a time read the weights once and their own caches. Of experts those are read that the tokens pick, each another one at worst. The
 * cache is this program's, which keeps all keys and values, also of layers with a window; a query reads those that it sees. */
#ifndef PLAN_INFERENCE_H
#define PLAN_INFERENCE_H

#include "base/quant.h"
#include "plan/clock/roofline.h"
#include "plan/plan.h"

typedef struct inference_wish {
    const model_config *model;
    int context;               /* tokens of a text, prompt included */
    int prompt;                /* of them, those that are read at once */
    int texts;                 /* at a time */
    const quant_format *store; /* of matrices and tables; others are fp32 */
} inference_wish;

typedef struct inference_sum {
    double params, weight_bytes, cache_bytes,
        work_bytes;       /* work: activations of the largest pass */
    double windows_bytes; /* of a cache that keeps no more of a layer than its window */
    double all_bytes;
    double prompt_s;       /* until the first token of one text */
    double token_s;        /* of all texts at the end of their context: each gets one */
    double cache_of_token; /* bytes that one token adds */
} inference_sum;

status inference_reckon(const inference_wish *w, dev *meta, const cluster *c, inference_sum *out,
                        err *e) ATH_MUST_USE;

#endif
