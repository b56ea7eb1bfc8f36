/* The stage in force, and within it the part: what the coming step computes with. A stage changes
 * data, programs, masks and rates; a part of a ramp only the number of micro-batches.
 *
 * stage_enter is called before every step and does nothing where nothing changes. Trials, which
 * bring their own samples, call stage_enter_shape alone. */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include "data/order/loader.h"
#include "data/order/prefetch.h"
#include "step/step.h"
#include "train/batch.h"
#include "train/course/stage_data.h"
#include "train/cursor.h"
#include "train/setup.h"

/* A program that runs between steps, and what happens meanwhile. */
typedef struct pass_table {
    const prog *p;
    step_table table;
} pass_table;

typedef struct stage {
    int number;  /* -1: none is in force */
    bool begins; /* it does so with the coming step */
    const config *now;
    bool *decay; /* [parameters] whether weight decay acts on it */
    int B, T;    /* micro-batch, sequence length */

    /* its data; NULL where samples come from elsewhere */
    loader *train, *valid;
    prefetch *ahead;
    float *nll; /* [batch,T] of the step, for those who look for a spike's documents */

    /* of the part */
    int64_t batch; /* sequences per step, of all ranks */
    int64_t share; /* of those, this rank's: successive ones */
    step_parts parts;
    step_table table;            /* made of the parts */
    batch_ports *chunks, *looks; /* of the parts' programs; the first look is the reference's */
    batch_ports validation;
    batch_rows rows;    /* the micro-batch that was filled last */
    pass_table *passes; /* of programs without backward */
    int n_passes;
    uint8_t *marks;    /* [T] for suspects_count_repeated */
    float fixed_limit; /* deterministic mode: of a contribution to a gradient (op/fixed.h) */
    arena *mem;        /* of the tables, ports and rows */
} stage;

void stage_init(stage *g);
void stage_close(stage *g);
/* Brings the stage and part of the step after at->step into force: its data, its programs, its
 * batch. When it fails nothing is half entered: what was trained can be saved. */
status stage_enter(stage *g, const setup *u, stage_data *d, const cursor *at, err *e) ATH_MUST_USE;
/* Opens the data of a stage: train, valid. */
status stage_open_data(stage *g, const setup *u, stage_data *d, int number, err *e) ATH_MUST_USE;
/* Programs and tables alone. */
void stage_enter_shape(stage *g, const setup *u, int number, int64_t batch);
/* Puts the stage out of force: the next stage_enter begins anew. */
void stage_leave(stage *g);

/* First sample of a step in the numbering of its stage's loader. */
uint64_t stage_first_sample(const setup *u, const watch *w, int64_t step);
/* The first that is this rank's. */
uint64_t stage_own_sample(const setup *u, const watch *w, int64_t step);

#endif
