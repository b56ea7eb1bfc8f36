/* The dynamic loss scale of fp16 (Micikevicius et al. 2018, section 3.2; PyTorch's GradScaler).
 *
 * The gradients of activations are stored in fp16, which ends at 65504 and has nothing below 6e-8.
 * The loss is multiplied by a scale, so that they lie between these; the norm and the update divide
 * by it again. When a gradient overflows all the same, the norm is not finite, on all ranks: the
 * step is left out and the scale becomes smaller. After growth_interval steps without an overflow
 * it grows.
 *
 * A step that is left out changes neither weights nor optimizer state, and the optimizer does not
 * count it. The run counts it: its samples are used, and learning rates follow the run's steps.
 *
 * The state is part of each checkpoint (state/cursor.json): a resumed run goes on as one that was
 * not interrupted. Other precisions have a scale of 1, which never changes. */
#ifndef TRAIN_LOSS_SCALE_H
#define TRAIN_LOSS_SCALE_H

#include <jansson.h>
#include <stdbool.h>

#include "run/config/config.h"

typedef struct loss_scale {
    double scale;  /* of the coming step */
    int64_t since; /* steps without overflow, since the scale changed */
} loss_scale;

void loss_scale_init(loss_scale *l, const config *c);
/* Whether the run goes on with a smaller scale after a step that is not finite. False when the
 * scale is at its least, and in other precisions. */
bool loss_scale_may_shrink(const loss_scale *l, const config *c);
/* After each step. overflow: it was not finite, and the scale may shrink. */
void loss_scale_step(loss_scale *l, const config *c, bool overflow);

/* {"scale", "since"} */
json_t *loss_scale_to_json(const loss_scale *l);
/* False: it is no such object. NULL, in the checkpoint of another precision: a scale of 0. */
bool loss_scale_from_json(loss_scale *l, const json_t *o);
/* Goes on with the state of a checkpoint. One of another precision has none: the scale begins
 * anew. */
void loss_scale_resume(loss_scale *l, const config *c, const loss_scale *stored);

#endif
