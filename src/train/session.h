/* Everything a training run holds, and the steps of opening it. Private to the module. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "data/loader.h"
#include "infer/generate.h"
#include "optim/schedule.h"
#include "plan/plan.h"
#include "run/folder.h"
#include "run/metrics.h"
#include "step/step.h"
#include "tok/tok.h"
#include "train/train.h"

/* Where a run is: all that resume needs beside weights and optimizer state. */
typedef struct cursor {
    int64_t step;     /* finished optimizer steps */
    uint64_t samples; /* consumed sequences */
    uint64_t tokens;
    double seconds; /* spent in steps, over all parts of the run */
} cursor;

typedef struct session {
    config *c;
    const train_options *opt;
    arena *a;
    dev *dev;
    tok *tok;
    loader *train, *valid;
    model_config model;
    plan *plan;
    schedule schedule;
    const optim_class *optim;
    bool *decay; /* per parameter */
    step_table table;
    int B, T;      /* micro-batch, sequence length */
    int64_t batch; /* sequences per step */
    int64_t total_steps;
    cursor at;
    run_folder *folder;
    metrics_log *metrics;
    double peak_flops; /* of this machine, for MFU */
    int64_t peak_anon_bytes;
    tok_ids *prompts; /* of the samples */
} session;

/* session.c: what can be known before data is opened, then data, then memory. */
status session_open_model(session *s, err *e) ATH_MUST_USE;
status session_open_data(session *s, err *e) ATH_MUST_USE;
status session_make_plan(session *s, err *e) ATH_MUST_USE;
/* Memory without values, the step table, the machine's limit. */
status session_commit(session *s, err *e) ATH_MUST_USE;
/* That, and initial, imported or resumed weights and state. */
status session_start_state(session *s, err *e) ATH_MUST_USE;
void session_close(session *s);

/* Gives the event to RUN/metrics.jsonl and to the caller; takes the reference. */
status session_emit(session *s, json_t *event, err *e) ATH_MUST_USE;
json_t *session_event(const char *kind, int64_t step);

/* state.c */
status state_save(session *s, err *e) ATH_MUST_USE;
/* Loads RUN/checkpoints/step-N. */
status state_load(session *s, const char *dir, err *e) ATH_MUST_USE;

/* loop.c */
status loop_run(session *s, err *e) ATH_MUST_USE;
/* Fills the inputs of a language-model program with samples; returns the number of targets. */
int64_t loop_fill(loader *l, const prog *p, uint64_t first_sample, int B, bool document_mask);

/* execute.c: what the ops of a micro-batch of the coming step get. */
op_run execute_run_of(const session *s, int micro_batch, float grad_scale);
/* Sum of the output "nll" in double, in order. */
double execute_sum_nll(const prog *p);
/* DT_BF16 or DT_F32, after `auto` was resolved. */
dtype session_compute(const config *c);

/* validate.c: emits a `valid` event. */
status validate(session *s, err *e) ATH_MUST_USE;

/* samples.c: emits a `sample` event for each prompt. */
status samples_encode(session *s, err *e) ATH_MUST_USE;
status samples_write(session *s, err *e) ATH_MUST_USE;

/* guard.c: runs the step's micro-batches again, op by op, and fills e with the first tensor that is
 * not finite. */
status guard_explain(session *s, uint64_t first_sample, float grad_scale, err *e) ATH_MUST_USE;

#endif
