/* How the work of a scorer is ordered and cut into passes (scorer_cut.c), for scorer.c. */
#ifndef INFER_SCORER_INT_H
#define INFER_SCORER_INT_H

#include "infer/scorer.h"

enum {
    SCORER_MOST_ROWS = 1024, /* of a pass */
    SCORER_MOST_LANES = 128,
    SCORER_CUT_MOST = 256 /* lanes that are looked at in one cut */
};

/* Lanes by falling numbers of rows, to be cut into passes. */
typedef struct score_cut {
    int64_t rows[SCORER_CUT_MOST];
    int64_t targets[SCORER_CUT_MOST]; /* of each lane */
    int number;                       /* result: the shape of the first pass */
} score_cut;

/* How many of the n lanes, from the first on, the first pass of the cheapest way takes: one at
 * least. A lane with more rows than any shape has counts as one of the longest shape. */
int scorer_cut_first(const scorer_size *size, score_cut *cut, int n);
int scorer_longest_shape(const scorer_size *size);

/* Requests with the same trunk become neighbours, and so do trunks that have much in common. */
void scorer_sort(score_request **order, int64_t n);

#endif
