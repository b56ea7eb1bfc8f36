/* The samples of one step of a run, done or still to come: for `data show --run RUN --step N`.
 * Opens the run's tokenizer and the sources of the step's stage, but no model and no weights. */
#ifndef TRAIN_STEP_DATA_H
#define TRAIN_STEP_DATA_H

#include "data/order/loader.h"
#include "tok/tok.h"

typedef struct step_data {
    loader *loader;        /* of the stage */
    tok *tok;              /* of the run */
    uint64_t first_sample; /* of the step, in the loader's numbering */
    int64_t n_samples;     /* sequences of the step */
    int T;
    bool document_mask;
    int stage;              /* number, from 0 */
    const char *stage_name; /* "" without stages */
    int64_t total_steps;
} step_data;

/* Steps count from 1. ST_USAGE: a step outside the run; ST_FORMAT: no run, or its data changed
 * since (naming the source). */
status step_data_open(step_data **out, const char *run, int64_t step, err *e) ATH_MUST_USE;
void step_data_close(step_data *d);

#endif
