/* Where a run is, and the stage in force there, and within it the part: what the coming step computes with. A stage changes
 * data, programs, masks and rates; a part of a ramp only the number of micro-batches.
 *
 * stage_enter is called before every step and does nothing where nothing changes. Trials, which
 * bring their own samples, call stage_enter_shape alone. */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include <math.h>

#include "data/order/loader.h"
#include "data/order/prefetch.h"
#include "step/step.h"
#include "train/batch.h"
#include "train/course/stage_data.h"
#include "train/setup.h"

/* Where a run is: how many steps are finished, and what they took. Which samples come next follows
 * from the step (course/course.h). execute_advance moves it; loading a checkpoint sets it
 * (save/state.c). */
typedef struct cursor {
    int64_t step;    /* finished optimizer steps */
    uint64_t tokens; /* of these steps */
    double seconds;  /* spent in steps, over all parts of the run */
    double val_loss; /* validation after this step; NaN: there was none. Not in cursor.json */
} cursor;

static inline cursor cursor_start(void) {
    return (cursor){.val_loss = NAN};
}

/* A program without backward (validation, prefill, decode), with the step table by which it is run:
 * where weights are sharded, each unit is gathered before the ops that read it. */
typedef struct pass_table {
    const prog *p;
    step_table table;
} pass_table;

typedef struct stage {
    int number;        /* in the course, from 0; -1: none is in force */
    bool begins;       /* the coming step is its first: begin_stage in loop.c has work to do */
    const config *now; /* the run's config with the stage's changes */
    bool *decay;       /* [parameters] whether weight decay acts on each */
    int B, T;          /* sequences of a micro-batch, tokens of a sequence */

    /* Its data; NULL in trials, where samples come from elsewhere. */
    loader *train, *valid;
    prefetch *ahead;
    float
        *nll; /* [batch,T] losses of the step's tokens, from which a spike's documents are found */

    /* The part in force. */
    int64_t batch;          /* sequences of a step, over all ranks */
    int64_t share;          /* sequences of a step on this rank; they follow each other */
    step_parts parts;       /* the programs of a step */
    step_table table;       /* what a step does, made of them */
    batch_ports *chunks;    /* [parts.chunks] of the programs that are trained */
    batch_ports *looks;     /* [parts.looks] of other models; the first is the reference */
    batch_ports validation; /* of the validation program */
    batch_rows rows;        /* the micro-batch that was filled last */
    pass_table *passes;     /* [n_passes] programs that run between steps */
    int n_passes;
    uint8_t *marks;    /* [T] memory for suspects_count_repeated */
    float fixed_limit; /* deterministic mode: largest contribution to a gradient (op/fixed.h) */
    arena *mem;        /* holds tables, ports and rows; emptied when the part changes */
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
