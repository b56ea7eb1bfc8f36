/* Everything a training run holds, and the steps of opening it. Private to the module. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "data/order/loader.h"
#include "data/order/prefetch.h"
#include "infer/generate.h"
#include "io/checkpoint/checkpoint_upload.h"
#include "plan/plan.h"
#include "run/folder.h"
#include "run/metrics.h"
#include "step/step.h"
#include "tok/tok.h"
#include "train/batch.h"
#include "train/course/course.h"
#include "train/ranks/peers.h"
#include "train/save/saver.h"
#include "train/course/stage_data.h"
#include "train/ranks/trace.h"
#include "train/train.h"
#include "train/guard/watch.h"
#include "train/objective/objective.h"

/* Where a run is. Which samples come next follows from the step (course.h). */
typedef struct cursor {
    int64_t step; /* finished optimizer steps */
    uint64_t tokens;
    double seconds; /* spent in steps, over all parts of the run */
} cursor;

/* A program that runs between steps, and what happens meanwhile. */
typedef struct pass_table {
    const prog *p;
    step_table table;
} pass_table;

typedef struct session {
    config *c; /* of the run; `now` is that of the stage in force */
    const train_options *opt;
    arena *a;
    peers peers;
    uint64_t attempt; /* of the ranks to train together: the same on all, another each time */
    dev *dev;
    tok *tok;
    course *course;
    model_config *models; /* one a stage: rotary bases differ */
    plan *plan;
    const optim_class *optim;
    const objective *objective;
    plan_other reference; /* where the objective has one */
    stage_data data;
    bool record_is_new; /* the record knows of a stage that data.json does not */
    watch watch;
    bool watches; /* steps are judged */

    /* of the stage and part in force (session_enter) */
    int stage;   /* -1: none yet */
    bool begins; /* it does so with the coming step */
    const config *now;
    model_config model;
    loader *train, *valid;
    prefetch *ahead;
    bool *decay;   /* per parameter */
    int B, T;      /* micro-batch, sequence length */
    int64_t batch; /* sequences per step, of all ranks */
    int64_t share; /* of those, this rank's: successive ones */
    step_parts parts;
    step_table table;            /* made of the parts */
    batch_ports *chunks, *looks; /* of the parts' programs; the first look is the reference's */
    batch_ports validation;
    batch_rows rows;    /* the micro-batch that was filled last */
    pass_table *passes; /* of programs without backward */
    int n_passes;
    float fixed_limit;   /* deterministic mode: of a contribution to a gradient (op/fixed.h) */
    bool fixed_overflow; /* something in this step's sums was beyond what they hold */
    arena *part_mem;     /* of the tables, ports and rows */
    float *nll;          /* [batch,T] of the step, for those who look for a spike's documents */

    cursor at;
    double val_loss;  /* NaN: the step at `at` was not validated */
    int64_t saved_ns; /* when the last checkpoint was begun */
    int64_t saves;    /* begun */
    int failed_saves; /* in a row */
    saver saver;
    trace *trace;        /* NULL: nobody wants one */
    upload *upload;      /* NULL: nobody wants it */
    json_t *late_alarms; /* that arose before metrics were open */
    char *forked;        /* --fork: the checkpoint that this run goes on from */
    run_folder *folder;
    metrics_log *metrics;
    double peak_flops; /* of this machine, for MFU */
    int64_t peak_anon_bytes;
    tok_ids *prompts; /* of the samples */
} session;

/* session.c: what can be known before data is opened; then the course, for which train.epochs needs
 * the data; then memory. */
status session_open_tokenizer(session *s, err *e) ATH_MUST_USE;
status session_open_course(session *s, uint64_t epoch_sequences, const course_origin *origin,
                           err *e) ATH_MUST_USE;
status session_make_plan(session *s, err *e) ATH_MUST_USE;
/* The weights that a model begins with: those of the folder `from`, or by its rules where that is
 * NULL. */
status session_make_weights(const session *s, param_store *store, const char *from,
                            err *e) ATH_MUST_USE;
/* Those of the reference, where the objective has one: without train.reference the ones that the
 * model begins with, which are `initial`'s. */
status session_load_reference(const session *s, const char *initial, err *e) ATH_MUST_USE;
/* Memory without values, the machine's limit. */
status session_commit(session *s, err *e) ATH_MUST_USE;
/* Initial, imported or resumed weights and state. */
status session_start_state(session *s, err *e) ATH_MUST_USE;
void session_close(session *s);

/* enter.c: brings the stage and part of the coming step into force: its data, its programs, its
 * batch. */
status session_enter(session *s, err *e) ATH_MUST_USE;
/* Puts the stage in force out of it: the next session_enter begins anew. */
void session_leave(session *s);
/* Opens the data of a stage, as far as it is not open: s->train, s->valid. */
status session_open_data(session *s, int stage, err *e) ATH_MUST_USE;
/* What happens once, between the last step of one stage and the first of the next: events, a new
 * start of the optimizer. */
status session_begin(session *s, err *e) ATH_MUST_USE;
/* The same without data, for those who bring their own samples. */
void session_enter_shape(session *s, int stage, int64_t batch);
/* First sample of a step in the numbering of its stage's loader. */
uint64_t session_first_sample(const session *s, int64_t step);
/* The first that is this rank's. */
uint64_t session_own_sample(const session *s, int64_t step);
/* Whether this rank speaks and writes for all. */
static inline bool session_leads(const session *s) {
    return peers_rank(&s->peers) == 0;
}
/* The weights' digest, the same on all ranks. */
status session_digest(session *s, uint64_t *digest, err *e) ATH_MUST_USE;

/* Whether checkpoints are written while training goes on, from a snapshot. */
bool session_saves_on_the_way(const session *s);

/* state.c. Begins to save the state that the run is in; without checkpoint.async, or with `wait`,
 * it has been saved when it returns. */
status state_save(session *s, bool wait, err *e) ATH_MUST_USE;
/* Tells what has become of a save in the background; with `wait` there is none afterwards. */
status state_poll(session *s, bool wait, err *e) ATH_MUST_USE;
/* Loads the newest good checkpoint of the run, or makes the initial weights. */
status state_load_newest(session *s, err *e) ATH_MUST_USE;
/* The optimizer's state as before the first step. */
void state_clear_optimizer(session *s);
/* What a fork goes on from: the cursor of a checkpoint. */
status state_read_origin(const char *dir, course_origin *out, err *e) ATH_MUST_USE;

/* Waits for a save in the background and tells what has become of it; `must`: its failure is the
 * run's. */
status state_settle(session *s, bool must, err *e) ATH_MUST_USE;
/* The same at the end of a session, told to nobody. */
void state_abandon(session *s);

/* loop.c */
status loop_run(session *s, err *e) ATH_MUST_USE;

/* execute.c: what the ops of a micro-batch of the coming step get. */
op_run execute_run_of(session *s, int micro_batch, float grad_scale);
/* Fills s->rows with a micro-batch of samples; returns the number of targets. */
int64_t execute_fill(const session *s, loader *l, uint64_t first_sample);
/* Runs a program without backward: validation, sampling. Every rank of a copy does. */
void execute_pass(session *s, const prog *p, const op_run *run);
/* The loss of a micro-batch that is through all chunks; the backward can begin. */
double execute_loss(session *s, const step_entry *t, float scale);
/* Runs what an entry says between chunks. */
void execute_pass_on(session *s, const step_entry *t);
/* What the entry's program takes and gives. */
const batch_ports *execute_ports_of(const session *s, const step_entry *t);
/* DT_BF16 or DT_F32, after `auto` was resolved. */
dtype session_compute(const config *c);
/* Whether the model takes its vocabulary from the tokenizer: it says so, or nothing. */
bool session_takes_vocab(const config *c);

/* validate.c: emits a `valid` event, sets s->val_loss. */
status validate(session *s, err *e) ATH_MUST_USE;

/* samples.c: emits a `sample` event for each prompt. */
status samples_encode(session *s, err *e) ATH_MUST_USE;
status samples_write(session *s, err *e) ATH_MUST_USE;

/* guard/nonfinite.c: runs the step's micro-batches again, op by op, and fills e with the first
 * tensor that is not finite. */
status guard_explain(session *s, uint64_t first_sample, float grad_scale, err *e) ATH_MUST_USE;
/* The same for one pass of a program over inputs that it still has. ST_OK: everything is finite. */
status guard_explain_pass(const param_store *ps, const prog *p, const op_run *run,
                          err *e) ATH_MUST_USE;

#endif
