/* Which documents of a step made it spike: each document's own loss and how much of it repeats
 * itself, the most suspicious first.
 *
 * Repetition is measured as OLMo 2 (2025, Section 3.2) filters it: the share of tokens that lie in
 * runs of 32 or more repeats of a span of 1 to 13 tokens. */
#ifndef TRAIN_SUSPECTS_H
#define TRAIN_SUSPECTS_H

#include "data/order/loader.h"

typedef struct suspect {
    uint64_t sample; /* number of the sample, and of its row in the step */
    int row;
    loader_span span;
    double loss; /* mean of its targets in the step; NaN without targets */
    int64_t n_targets;
    double repeated; /* share of its tokens in repeated runs, 0..1 */
    double score;    /* what they are ordered by */
} suspect;

/* Share of n ids that lie in runs of >= 32 repeats of a span of 1..13 ids. O(13 n). */
double suspects_repeated_share(const int32_t *ids, int64_t n);
/* The ids of that share. marked: [n], memory to work in; nothing is allocated. */
int64_t suspects_count_repeated(const int32_t *ids, int64_t n, uint8_t *marked);

typedef struct suspects suspects;
suspects *suspects_new(void);
void suspects_free(suspects *s);
/* Adds one row of T positions: nll[T] as the forward pass gave it, targets[T] (negative: none), the
 * ids, and the documents of the row. */
void suspects_add_row(suspects *s, uint64_t sample, int row, int T, const int32_t *ids,
                      const int32_t *targets, const float *nll, const loader_span *spans,
                      int n_spans);
/* The most suspicious first. The score is 100 times the repeated share, plus how far the document's
 * loss lies above the median of all documents, in units of their median absolute deviation: the
 * mean of few targets counts less. */
const suspect *suspects_ranked(suspects *s, int *n);

#endif
