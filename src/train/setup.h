/* What a run is made of: config, ranks, device, tokenizer, course, models, plan, optimizer,
 * objective.
 *
 * It is opened in order of cost, so that every mistake that can be known without data is found
 * before data is opened: setup_open_tokenizer, setup_open_course (for which train.epochs needs to
 * know how much data there is), setup_make_plan, setup_commit. From then on it is only read. What
 * changes while the run trains is the memory that the plan laid out, and the other parts of a
 * session (session.h). */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H

#include "plan/plan.h"
#include "tok/tok.h"
#include "train/course/course.h"
#include "train/objective/objective.h"
#include "train/ranks/peers.h"

typedef struct setup {
    config *c; /* of the run; a stage has its own (course_stage) */
    arena *a;  /* as long as the run */
    peers peers;
    uint64_t attempt; /* of the ranks to train together: the same on all, another each time */
    dev *dev;
    tok *tok; /* NULL: none is named, and none is needed */
    course *course;
    model_config *models; /* one a stage: rotary bases differ */
    plan *plan;
    const optim_class *optim;
    const objective *objective;
    plan_other reference; /* where the objective has one */
    tok_ids *prompts;     /* of the samples */
    double peak_flops;    /* of this machine, for MFU */
} setup;

/* Needs c, a, peers and dev. Reads the model once, so that a mistake in it is told before data is
 * opened; *vocab_size is the model's. */
status setup_open_tokenizer(setup *u, int32_t *vocab_size, err *e) ATH_MUST_USE;
/* epoch_sequences and origin: as in course_new. */
status setup_open_course(setup *u, uint64_t epoch_sequences, const course_origin *origin,
                         err *e) ATH_MUST_USE;
/* Lays out memory, without taking any. ST_MEMORY: it does not fit. */
status setup_make_plan(setup *u, err *e) ATH_MUST_USE;
/* Takes the memory; its values are still to come. */
status setup_commit(setup *u, err *e) ATH_MUST_USE;
void setup_close(setup *u);

/* The weights that a model begins with: those of the folder `from`, or by its rules where that is
 * NULL. */
status setup_make_weights(const setup *u, param_store *store, const char *from,
                          err *e) ATH_MUST_USE;
/* Those of the reference, where the objective has one: without train.reference the ones that the
 * model begins with, which are `initial`'s. */
status setup_load_reference(const setup *u, const char *initial, err *e) ATH_MUST_USE;
/* The optimizer's state as before the first step. */
void setup_clear_optimizer(const setup *u);
/* The weights' digest, the same on all ranks. */
status setup_digest(setup *u, uint64_t *digest, err *e) ATH_MUST_USE;

/* Whether this rank speaks and writes for all. */
static inline bool setup_leads(const setup *u) {
    return peers_rank(&u->peers) == 0;
}
/* Whether checkpoints are written while training goes on, from a snapshot. */
bool setup_saves_on_the_way(const setup *u);
/* DT_BF16 or DT_F32, after `auto` was resolved. */
dtype setup_compute(const config *c);
/* Whether the model takes its vocabulary from the tokenizer: it says so, or nothing. */
bool setup_takes_vocab(const config *c);

#endif
