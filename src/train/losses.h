/* What a step says of its tokens: their losses, and how many of them repeat themselves.
 *
 * The host waits for no micro-batch: losses_take has them copied while the device goes on, and
 * losses_settle adds them up behind the whole step, in the order of micro-batches and tokens. Where
 * something wants the losses of a micro-batch at once, they are read at once: objectives whose
 * backward begins with what the host makes of them, tokens that ranks share (context.h), losses that
 * are noted for a later round. */
#ifndef TRAIN_LOSSES_H
#define TRAIN_LOSSES_H

#include "train/execute.h"

/* STEP_LOSS. */
void losses_take(session *s, const step_entry *t, step_result *r);
/* When the host has waited for the device: all losses of the step are in r and in stage.nll. */
void losses_settle(session *s, step_result *r);

#endif
