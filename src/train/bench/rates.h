/* From measured calls of ops to the rates of a cluster (plan/clock/cluster.h): which share of the limit calls of an op reach, by
 * size; of products also what their time is the sum of.
 *
 * A round measures the same calls in the same order as the one before. What others did on the machine disturbed one of them, so the
 * median of the rounds counts; the fastest would be faster than steps usually are. */
#ifndef TRAIN_RATES_H
#define TRAIN_RATES_H

#include "plan/clock/cluster.h"

enum { RATES_ROUNDS = 3 };

typedef struct rate_sample {
    op_kind kind; /* OP_COUNT: the optimizer */
    int pass;
    dtype format;
    double ideal;   /* seconds at the roofline (plan/clock/roofline.h) */
    double seconds; /* measured: the median of the rounds */
    bool has_terms; /* then count says how many of each */
    double count[CLUSTER_TERMS];
    double round[RATES_ROUNDS];
    int rounds;
} rate_sample;

typedef struct rate_samples {
    rate_sample *item;
    int n, cap, next; /* next: of a later round, the sample that the next one is compared with */
} rate_samples;

void rates_begin_round(rate_samples *s);
void rates_add_sample(rate_samples *s, rate_sample x, double seconds);
void rates_add_to(cluster *c, const rate_samples *s);
void rates_free(rate_samples *s);

#endif
