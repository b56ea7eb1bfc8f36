/* Log-likelihoods by a model with an encoder: the encoder reads what stands before the scored tokens of a request, and
 * they are what its decoder writes, as lm-evaluation-harness asks such models. Requests with the same source one after
 * the other read it once.
 *
 * A score depends on its request and the model alone, to the bit: the decoder reads token by token. */
#ifndef INFER_SOURCE_SCORER_H
#define INFER_SOURCE_SCORER_H

#include "infer/generator.h"
#include "infer/scorer.h"

typedef struct source_scorer {
    generator *g;
    tok_ids source; /* that the encoder has read */
    tok_ids seq;    /* of the decoder: its first token, then the scored ones */
} source_scorer;

void source_scorer_free(source_scorer *s); /* what it holds itself */
/* The encoder reads the source of r: its ids but the scored ones, 0 < n <= Smax. */
void source_scorer_read(source_scorer *s, const score_request *r);
/* Logits [V] for the scored token number k of what was read; NULL: *interrupt is nonzero. */
float *source_scorer_logits(const source_scorer *s, int32_t k,
                            const volatile sig_atomic_t *interrupt);
/* As scorer_run; a request's ids are those of its source, then those that are scored. Of stats rows and passes are those of
 * the decoder. */
status source_scorer_run(source_scorer *s, score_request *requests, int64_t n,
                         const score_options *opt, score_stats *stats, err *e) ATH_MUST_USE;

#endif
