/* How well a head of labels (model_config.num_labels) knows texts whose labels are known: accuracy and F1 of classes, the mean
 * squared and absolute error of numbers. Sums are integers, so that ranks and batches may be added in any order. */
#ifndef INFER_LABELS_H
#define INFER_LABELS_H

#include <jansson.h>

#include "base/arena.h"
#include "model/layer.h"

typedef struct label_tally {
    int labels;
    bool numbers;   /* a regression */
    int64_t *count; /* [n] */
    int n;
} label_tally;

label_tally label_tally_new(arena *a, const model_config *mc);
/* One text: what the head says of it, score [labels], and its label. */
void label_tally_add(label_tally *t, const float *score, float label);
/* The class with the largest score; of equal ones the first. */
int label_best(const float *score, int labels);
int64_t label_tally_texts(const label_tally *t);
double label_tally_accuracy(const label_tally *t);
/* Of two classes that of class 1; of more the mean over those that occur or are said. A class that is never found has 0. */
double label_tally_f1(const label_tally *t);
/* "accuracy" and "f1", or "mse" and "mae". The caller owns it. */
json_t *label_tally_json(const label_tally *t);
double label_tally_mse(const label_tally *t);
double label_tally_mae(const label_tally *t);

#endif
