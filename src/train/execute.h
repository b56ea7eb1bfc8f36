/* One optimizer step: executes the entries of the step table (step/step.h) in order.
 *
 * The training loop, `bench train` and the trials of layouts all use it. They bring their own
 * step_source, which says where samples come from; what is computed is the same. Nothing is
 * allocated here, unless a trace is being taken. */
#ifndef TRAIN_EXECUTE_H
#define TRAIN_EXECUTE_H

#include "train/session.h"

/* Where the samples of the coming step come from. In a step, count_targets is called once, then
 * fill for each micro-batch, then reduced once. */
typedef struct step_source {
    /* Number of unmasked targets of this rank in the whole step. Gradients are divided by the sum
     * over all ranks, so it must be known before the first micro-batch. */
    int64_t (*count_targets)(session *s);
    /* Fills s->stage.rows with a micro-batch (0, 1, ... within the step). */
    status (*fill)(session *s, int micro_batch, err *e);
    /* The same before the first fill of a step, for objectives that look at all samples first; NULL:
     * fill may be called twice. */
    status (*peek)(session *s, int micro_batch, err *e);
    /* Called when gradients are summed over micro-batches and ranks, before the update; may be
     * NULL. */
    void (*reduced)(session *s, void *ctx);
    void *ctx;
} step_source;

typedef struct step_result {
    double loss_sum; /* sum of losses over `count` targets or samples, of all ranks */
    double ahead_sum[MODEL_MOST_AHEAD]; /* the same of each module of multi-token prediction */
    int64_t loss_fixed;        /* deterministic mode: the same sum in fixed point (op/fixed.h) */
    int64_t targets;           /* unmasked targets, of all ranks */
    int64_t count;             /* of targets or samples: the loss is their mean (objective.h) */
    double loss_scale;         /* of fp16 (guard/loss_scale.h), in this step; else 1 */
    double grads_scale;        /* execute_grads_scale */
    float grad_scale;          /* loss_scale / count */
    double norm, lr;           /* norm of the gradient before clipping; learning rate */
    int64_t wait_ns, total_ns; /* time of the step; wait_ns of it was waiting for samples */
    bool finite;               /* false: loss or norm is NaN or Inf, and there was no update */
    bool overflow;             /* so it is, but the loss scale has become smaller: go on */
    watch_verdict verdict;     /* WATCH_SKIP and WATCH_REWIND: no update either */
    spike_score score;
    int64_t repeated_tokens; /* tokens in repeated runs (suspects.h); 0 unless steps are judged */
    double repeated;         /* their share of the step's tokens */
    int64_t sums[SUM_COUNT]; /* of all ranks, for metrics of objectives with a loss of their own */
    bool has_digest;         /* train.digest_every wants a digest after this step */
    uint64_t digest;         /* of the weights after the step */
} step_result;

/* Where the time of steps goes, in ns; each step adds to it. */
typedef struct step_times {
    int64_t **op_ns; /* by chunk, and op of its training program */
    int64_t fill_ns, norm_ns, update_ns;
    int64_t meet_ns; /* until all ranks have come to the end of the step, with the sums of losses */
} step_times;

/* Runs the step after s->at, which it does not change. times may be NULL. Every rank calls it. */
status execute_step(session *s, const step_source *from, step_times *times, step_result *r,
                    err *e) ATH_MUST_USE;
/* The step's loss; 0 where nothing was counted. */
double execute_mean_loss(const step_result *r);
/* Modules of multi-token prediction that are trained. */
int execute_modules(const session *s);
/* That of a module, as it is in what is minimised: divided by all of the step's targets. */
double execute_mean_ahead(const step_result *r, int module);
/* The step's targets, of sequences that are learned. */
int64_t execute_trained(const session *s, const step_result *r);
/* Moves s->at past the step. Not called for a step from which the run goes back (WATCH_REWIND). */
void execute_advance(session *s, const step_result *r);

/* The parts of a step, for files that run it in another way (guard/nonfinite.c) or run only a part
 * of it (validate.c, samples.c). */

/* The op_run of a micro-batch of the coming step. */
op_run execute_run_of(session *s, int micro_batch, float grad_scale);
/* What gradients of parameters are multiplied by when they are complete: the loss scale of the
 * coming step, but 1 in fixed-point sums, which divide by it on the way in. */
double execute_grads_scale(const session *s);
/* The arrays of a micro-batch, as the loader fills them. */
loader_rows execute_rows(const batch_rows *r);
/* Fills g->rows with a micro-batch of samples; returns the number of targets. */
int64_t execute_fill(const stage *g, loader *l, uint64_t first_sample);
/* Adds to the tokens of g->rows, from first_sample on, what an objective needs: what the reference
 * says of them, and the order of rows in which programs run. execute_fill does it, too. l NULL: the
 * rows have it from elsewhere. */
void execute_complete(const stage *g, const loader *l, uint64_t first_sample);
/* Runs a program without backward: validation, sampling. All ranks that share the weights call it
 * together, since they may have to gather them. */
void execute_pass(setup *u, const stage *g, const prog *p, const op_run *run);
/* The same for a generator or a scorer over the run's plan; ctx: the session. */
void execute_replay(void *ctx, const prog *p, const op_run *run);
/* True: no rank has all weights, so all of them run every pass together. */
bool execute_needs_all(const setup *u);
/* The loss of a micro-batch after its forward pass, as a sum. If the objective computes the
 * gradient, this copies it to the program, so that the backward can begin, and adds to sums. */
double execute_loss(const objective *o, const stage *g, const step_entry *t, float scale,
                    int64_t sums[SUM_COUNT]);
/* Forward passes of chunks of layers, one after the other. Stages that have some of them pass on what they compute. */
typedef struct execute_chunks {
    const plan *plan;         /* says which stage has a chunk */
    const stage *tables;      /* by which weights are gathered; NULL: they are all here */
    const batch_ports *chunk; /* [n] p NULL: another stage has it */
    int n;
} execute_chunks;
/* All ranks that share the weights, and all stages, call it together; rows NULL: this rank has none, and only helps. */
void execute_forward(setup *u, const execute_chunks *k, const batch_rows *rows);
/* Whether this rank has the last layers, after which losses are known. */
bool execute_knows_losses(const stage *g);
/* The learned sequences that follow each other in a pass of a program. */
int execute_pass_rows(const stage *g);
/* Runs the model without backward, and the reference where that is in memory, over the sequences of
 * g->rows from `first` on: execute_pass_rows of them. All ranks that share the weights call it
 * together; rows NULL: this rank only helps. */
void execute_look(setup *u, const stage *g, int first, objective_row *rows);
/* Gives an entry's program its inputs: the rows, and what a teacher has said of them. */
void execute_put(dev *d, const stage *g, const step_entry *t);
/* Does the copy between two chunks of a STEP_PASS_ON or STEP_PASS_BACK. */
void execute_pass_on(dev *d, const stage *g, const step_entry *t);
/* Does what a STEP_RECEIVE, STEP_RECEIVED or STEP_SEND says. */
void execute_transfer(setup *u, const stage *g, const step_entry *t);
/* The validation program over g->rows, stage by stage. All ranks that share the weights call it together; rows false: this
 * rank has no batch, and only helps. Returns the sum of the losses, where they are known: on the last stage. */
double execute_validation(setup *u, const stage *g, bool rows);
/* Inputs and outputs of the entry's program. */
const batch_ports *execute_ports_of(const stage *g, const step_entry *t);

#endif
