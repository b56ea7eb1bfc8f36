/* What is learned: one row of a table for each value of train.objective.
 *
 * An objective says what a sample is, whether other models look at it, and what the loss is. The
 * head makes the gradients of a language-model loss in the forward pass. Any other loss is a
 * function of the log-probabilities of all targets of a micro-batch: it is computed on the host
 * after the forward, and gives the gradient of each, with which the backward begins. */
#ifndef TRAIN_OBJECTIVE_H
#define TRAIN_OBJECTIVE_H

#include "run/config/config.h"

/* A micro-batch after its forward passes. */
typedef struct objective_batch {
    const config *c;
    int B, T;               /* sequences of tokens; whole samples */
    const int32_t *targets; /* [B,T]; negative: not counted, its nll is 0 */
    const float *nll;       /* [B,T] -log p of each target */
    const float *ref_nll;   /* [B,T] by the reference, where there is one */
    float scale;            /* 1 / samples of the whole step: the step's loss is their mean */
} objective_batch;

typedef struct objective {
    const char *name; /* of train.objective */
    int sequences;    /* of one sample: they follow each other in a micro-batch */
    bool reference;   /* a frozen model looks at each micro-batch first (train.reference) */
    /* Returns the sum of the samples' losses, and puts d loss / d nll times b->scale into d_nll
     * [B,T]. NULL: the loss is the mean nll of all targets, whose gradients the head makes. */
    double (*loss)(const objective_batch *b, float *d_nll);
} objective;

/* Of train.objective. */
const objective *objective_of(const config *c);

#endif
