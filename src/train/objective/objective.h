/* What is learned: one objective for each value of train.objective.
 *
 * An objective says how many sequences a sample has, whether a reference model computes the same
 * sequences, and what the loss is. The loss of a language model is the mean nll of all targets: the
 * model's head computes it and its gradient in the forward pass. Any other loss is a function of
 * the nll of all targets of a micro-batch. It is computed on the host after the forward pass
 * (execute_loss). So is its gradient by each nll, with which the backward pass begins. */
#ifndef TRAIN_OBJECTIVE_H
#define TRAIN_OBJECTIVE_H

#include "run/config/config.h"

/* A micro-batch after its forward passes. */
typedef struct objective_batch {
    const config *c;
    int B, T;               /* B sequences of T tokens; B is a multiple of objective.sequences */
    const int32_t *targets; /* [B,T]; negative: not counted, its nll is 0 */
    const float *nll;       /* [B,T] -log p of each target */
    const float *ref_nll;   /* [B,T] by the reference, where there is one */
    float scale;            /* 1 / samples of the whole step: the step's loss is their mean */
} objective_batch;

typedef struct objective {
    const char *name; /* of train.objective */
    int sequences;    /* of one sample: they follow each other in a micro-batch */
    bool labels;      /* a sample has a label: desirable or undesirable */
    bool reference;   /* a frozen model looks at each micro-batch first (train.reference) */
    /* Returns the sum of the samples' losses, and puts d loss / d nll times b->scale into d_nll
     * [B,T]. NULL: the loss is the mean nll of all targets, whose gradients the head makes. */
    double (*loss)(const objective_batch *b, float *d_nll);
} objective;

/* Of train.objective. */
const objective *objective_of(const config *c);

#endif
