/* Where a run is; the current stage, and its current part (course.h): what the coming step computes
 * with. Another stage has other data, programs, masks and rates. Another part of a stage, in a batch
 * ramp, has another number of micro-batches only.
 *
 * stage_enter is called before every step, and returns at once if stage and part stay the same.
 * Trials have their own samples, and call only stage_enter_shape. */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include <math.h>

#include "data/order/loader.h"
#include "data/order/prefetch.h"
#include "step/step.h"
#include "train/batch.h"
#include "train/context.h"
#include "train/course/resample.h"
#include "train/course/stage_data.h"
#include "train/lessons.h"
#include "train/reference.h"
#include "train/routers.h"
#include "train/setup.h"
#include "train/teaching.h"

/* Where a run is: how many steps are finished, and what they took. Which samples come next follows
 * from the step (course/course.h). execute_advance moves it; loading a checkpoint sets it
 * (save/state.c). */
typedef struct cursor {
    int64_t step; /* finished optimizer steps */
    int64_t
        updates; /* that were made since the optimizer's state was last cleared: what it counts */
    uint64_t tokens;  /* of these steps */
    uint64_t trained; /* of these, the targets; counted where data have marks */
    double seconds;   /* spent in steps, over all parts of the run */
    double val_loss;  /* validation after this step; NaN: there was none. Not in cursor.json */
} cursor;

static inline cursor cursor_start(void) {
    return (cursor){.val_loss = NAN};
}

/* A program without backward (validation, prefill, decode), with the step table by which it is run:
 * if weights are sharded, each unit is gathered before the ops that read it. */
typedef struct pass_table {
    const prog *p;
    step_table table;
} pass_table;

/* Losses that the device copies while it goes on (losses.h). */
typedef struct late_losses {
    float *nll;     /* pinned: [micro_batches][1 + modules][B,T] */
    dev *dev;       /* whose memory it is */
    int modules, n; /* of multi-token prediction; micro-batches that were taken and not added */
} late_losses;

typedef struct stage {
    int number;        /* in the course, from 0; -1: there is no current stage */
    bool begins;       /* the coming step is its first: loop.c calls begin_stage */
    const config *now; /* the run's config with the stage's changes */
    bool *decay;       /* [parameters] whether weight decay acts on each */
    int B, T;          /* sequences of a micro-batch, tokens of a sequence */

    /* Its data; NULL in trials, where samples come from elsewhere. */
    loader *train, *valid;
    teaching chat; /* what checkpoints say of conversations; stays until another stage is entered */
    prefetch *ahead;
    const reference_set *train_reference, *valid_reference; /* NULL: not known (reference.h) */
    resample_losses noted;     /* losses of `train`, for a later round */
    const lesson_set *lessons; /* what a teacher says of `train`, when that is stored; NULL */
    int64_t vocab;             /* of the model */
    float *nll; /* [batch,T] losses of the step's tokens: they show which documents make a spike */

    /* The current part. */
    int64_t batch;            /* sequences of a step, over all ranks */
    int64_t share;            /* of these, the sequences on this rank: successive ones */
    step_parts parts;         /* the programs of a step */
    step_table table;         /* what a step does, made of them */
    batch_ports *chunks;      /* [parts.chunks] of the programs that are trained */
    batch_ports *looks;       /* [parts.looks] of other models; the first is the reference */
    batch_ports validation;   /* of the validation program */
    batch_ports *validations; /* [parts.chunks] in a pipeline: of each chunk of this stage */
    comm_ticket *transfer;    /* [table.n] in a pipeline: of entries that began one */
    routing_ports routing;    /* of the programs that are trained */
    batch_rows rows;          /* the micro-batch that was filled last */
    late_losses late;         /* of the step under way */
    batch_rows own;           /* of it what this rank's programs get: all, but with parallel.cp */
    context context;          /* how context-parallel ranks share it */
    objective_row *learned;   /* its sequences, as a loss sees them; memory for [B] */
    double *d_logp;           /* their gradients; memory for [B] */
    double kl;                /* of objectives that need it: of the step under way */
    pass_table *passes;       /* [n_passes] programs that run between steps */
    int n_passes;
    uint8_t *marks;    /* [T] memory for suspects_count_repeated */
    float *heap;       /* [distill.top_k] memory for distill_give */
    int32_t *best;     /* the same */
    float fixed_limit; /* deterministic mode: largest contribution to a gradient (op/fixed.h) */
    arena *mem;        /* holds tables, ports and rows; emptied when the part changes */
} stage;

void stage_init(stage *g);
void stage_close(stage *g);
/* Makes the stage and part of the step after at->step the current ones: data, programs, batch. If
 * it fails, the weights are untouched and can be saved. */
status stage_enter(stage *g, const setup *u, stage_data *d, const cursor *at, err *e) ATH_MUST_USE;
/* Opens the data of a stage: train, valid. */
status stage_open_data(stage *g, const setup *u, stage_data *d, int number, err *e) ATH_MUST_USE;
/* Enters a stage without data: programs and tables only. */
void stage_enter_shape(stage *g, const setup *u, int number, int64_t batch);
/* Leaves the current stage: the next stage_enter opens everything again. */
void stage_leave(stage *g);

/* First sample of a step in the numbering of its stage's loader. */
uint64_t stage_first_sample(const setup *u, const watch *w, int64_t step);
/* The first sample of the step that is this rank's. */
uint64_t stage_own_sample(const setup *u, const watch *w, int64_t step);

#endif
