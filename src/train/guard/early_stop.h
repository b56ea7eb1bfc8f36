/* Early stop: how long the validation loss has not got better. Its state goes into each checkpoint
 * exactly, so that a resumed run stops where the uninterrupted one does. */
#ifndef TRAIN_EARLY_STOP_H
#define TRAIN_EARLY_STOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct early_stop {
    double best_loss;  /* infinite: none yet */
    int64_t best_step; /* -1: none yet */
    int64_t without;   /* validations since the best one */
} early_stop;

void early_stop_init(early_stop *s);
/* Takes a validation; true when it is the best so far. An equal loss is no improvement, one that is
 * not finite never is. */
bool early_stop_take(early_stop *s, int64_t step, double loss);
/* True after `patience` validations in a row without a lower loss; patience 0: never. */
bool early_stop_is_due(const early_stop *s, int64_t patience);

/* {"best_loss", "best_step", "without"}; null and -1 where there is none yet. */
json_t *early_stop_to_json(const early_stop *s);
status early_stop_from_json(early_stop *s, const json_t *o, err *e) ATH_MUST_USE;

#endif
