/* One optimizer step: the walk of the step table, the same for training and for measuring it. The
 * source of samples and the wish for times differ; what is computed does not. */
#ifndef TRAIN_EXECUTE_H
#define TRAIN_EXECUTE_H

#include "train/session.h"

/* Where the samples of the coming step come from. */
typedef struct step_source {
    /* Unmasked targets of the whole step: gradients are divided by them, so they are known before
     * the first micro-batch. */
    int64_t (*count_targets)(session *s);
    /* Fills s->stage.rows with a micro-batch. */
    status (*fill)(session *s, int micro_batch, err *e);
    /* Told when the gradients are those of the whole step, before the update; may be NULL. */
    void (*reduced)(session *s, void *ctx);
    void *ctx;
} step_source;

typedef struct step_result {
    double loss_sum;    /* over targets, or over samples (objective.h) */
    int64_t loss_fixed; /* deterministic mode: the same in fixed point (op/fixed.h) */
    int64_t targets;
    int64_t count; /* of what loss_sum is over */
    float grad_scale;
    double norm, lr;
    int64_t wait_ns, total_ns; /* wait: for samples; it is part of the total */
    bool finite;               /* false: there was no update */
    watch_verdict verdict;     /* skip and rewind: no update either */
    spike_score score;
    int64_t repeated_tokens; /* that repeat themselves; 0 unless steps are judged */
    double repeated;         /* their share */
    bool has_digest;         /* train.digest_every asks for one after this step */
    uint64_t digest;         /* of the weights */
} step_result;

/* Where the time went; each step adds to it. */
typedef struct step_times {
    int64_t **op_ns; /* by chunk, and op of its training program */
    int64_t fill_ns, norm_ns, update_ns;
} step_times;

/* Runs the step after s->at without moving s->at. times: NULL when not wanted. */
status execute_step(session *s, const step_source *from, step_times *times, step_result *r,
                    err *e) ATH_MUST_USE;
/* The step's loss; 0 where nothing was counted. */
double execute_mean_loss(const step_result *r);
/* Moves s->at past the step. */
void execute_advance(session *s, const step_result *r);

/* What a step consists of, for those who run it otherwise (guard/nonfinite.c) or only a part of it
 * (validate.c, samples.c). */

/* What the ops of a micro-batch of the coming step get. */
op_run execute_run_of(session *s, int micro_batch, float grad_scale);
/* Fills g->rows with a micro-batch of samples; returns the number of targets. */
int64_t execute_fill(const stage *g, loader *l, uint64_t first_sample);
/* Runs a program without backward: validation, sampling. Every rank of a copy does. */
void execute_pass(setup *u, const stage *g, const prog *p, const op_run *run);
/* The loss of a micro-batch that is through all chunks; the backward can begin. */
double execute_loss(const objective *o, const stage *g, const step_entry *t, float scale);
/* Runs what an entry says between chunks. */
void execute_pass_on(dev *d, const stage *g, const step_entry *t);
/* What the entry's program takes and gives. */
const batch_ports *execute_ports_of(const stage *g, const step_entry *t);

#endif
