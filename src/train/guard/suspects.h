/* Which documents of a step made it spike: each document's own loss and how much of it repeats
 * itself, the most suspicious first.
 *
 * Repetition is measured as OLMo 2 (2025, Section 3.2) filters it: the share of tokens that lie in
 * runs of 32 or more repeats of a span of 1 to 13 tokens. */
#ifndef TRAIN_SUSPECTS_H
#define TRAIN_SUSPECTS_H

#include "data/order/loader.h"

/* One document (or the part of it that lies in one row). */
typedef struct suspect {
    uint64_t sample;  /* number of the row's sample in its stage */
    int row;          /* of the step, from 0 */
    loader_span span; /* where the document lies in the row and in the shards */
    double loss;      /* mean over its targets in the step; NaN without targets */
    int64_t n_targets;
    double repeated; /* share of its tokens in repeated runs, 0..1 */
    double score;    /* suspects_ranked orders by it */
} suspect;

/* Share of n ids that lie in runs of >= 32 repeats of a span of 1..13 ids. O(13 n). */
double suspects_repeated_share(const int32_t *ids, int64_t n);
/* The number of ids in such runs. marked: [n] bytes of scratch memory; nothing is allocated. */
int64_t suspects_count_repeated(const int32_t *ids, int64_t n, uint8_t *marked);

typedef struct suspects suspects;
suspects *suspects_new(void);
void suspects_free(suspects *s);
/* Adds the documents of one row of T positions. ids[T]; targets[T] (negative: no target); nll[T]
 * from the forward pass; spans: the documents of the row (loader_describe). Strings are copied. */
void suspects_add_row(suspects *s, uint64_t sample, int row, int T, const int32_t *ids,
                      const int32_t *targets, const float *nll, const loader_span *spans,
                      int n_spans);
/* All documents, the most suspicious first; valid until the next call. The score is 100 times the
 * repeated share, plus the distance of the document's loss above the median of all documents, in
 * units of their median absolute deviation. Of a document with few targets the distance counts
 * less. */
const suspect *suspects_ranked(suspects *s, int *n);

#endif
