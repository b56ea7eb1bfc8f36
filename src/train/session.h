/* A run while it trains, as a struct of parts. Each part has a header of its own. A function that
 * needs one or two parts takes these; one that drives a step or a save takes the session. Private
 * to the module. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "run/folder.h"
#include "run/metrics.h"
#include "train/guard/loss_scale.h"
#include "train/guard/watch.h"
#include "train/ranks/trace.h"
#include "train/save/save.h"
#include "train/setup.h"
#include "train/stage.h"
#include "train/train.h"

/* Where the events of a run go: each is one JSON object, appended to RUN/metrics.jsonl and given to
 * the caller. Only rank 0 writes; on other ranks an event is dropped. events.h makes the events. */
typedef struct journal {
    bool speaks;              /* this is rank 0 */
    const train_options *opt; /* its on_event gets the events */
    metrics_log *metrics;     /* NULL: not open yet */
    json_t *late;             /* alarms from the time before it was open */
    int64_t peak_anon_bytes;  /* largest value of events_note_memory */
    double
        predicted_step_s; /* of the first stage, by the planner's clock; 0: for no known cluster */
} journal;

typedef struct session {
    const train_options *opt;
    setup setup;        /* what does not change: config, model, plan, ranks (setup.h) */
    stage_data data;    /* of all stages, and the record of it (course/stage_data.h) */
    stage stage;        /* the current one: data, programs, batch (stage.h) */
    cursor at;          /* where the run is (stage.h) */
    watch watch;        /* judges steps (guard/watch.h) */
    bool watches;       /* whether steps are judged; not in trials */
    routers routers;    /* what routers of experts do (routers.h) */
    loss_scale scale;   /* of fp16 (guard/loss_scale.h) */
    saving saving;      /* the save under way, uploads (save/save.h) */
    json_t *parents;    /* of the ledger: the models that the run began with (save/origins.h) */
    journal journal;    /* where events go */
    trace *trace;       /* NULL: no --trace */
    run_folder *folder; /* locked; NULL on all ranks but rank 0, and in trials */
    char *forked;       /* --fork: the checkpoint from which the new run begins; else NULL */
} session;

/* Opens the tokenizer and initialises the other parts. The caller has set opt, and setup's c, a,
 * peers and dev. */
status session_open(session *s, err *e) ATH_MUST_USE;
/* Calls setup_open_course; after it data can be opened. */
status session_open_course(session *s, uint64_t epoch_sequences, const course_origin *origin,
                           err *e) ATH_MUST_USE;
void session_close(session *s);
/* Opens RUN/metrics.jsonl, at the start and after a rewind. Events of steps after `step` are
 * removed from it, since these steps will run again. */
status journal_open(journal *j, const char *run, int64_t step, err *e) ATH_MUST_USE;

/* loop.c: trains to the end, or until a signal (ST_STOPPED). */
status loop_run(session *s, err *e) ATH_MUST_USE;

/* validate.c: emits a `valid` event, sets at.val_loss. */
status validate(session *s, err *e) ATH_MUST_USE;
/* validate_rewards.c: the same of objectives with a loss of their own; batches: of the whole set. */
status validate_rewards(session *s, uint64_t batches, err *e) ATH_MUST_USE;

/* validate_labels.c: the same of labelled texts. */
status validate_labels(session *s, uint64_t batches, err *e) ATH_MUST_USE;

/* samples.c: emits a `sample` event for each prompt. */
status samples_encode(setup *u, err *e) ATH_MUST_USE;
status samples_write(session *s, err *e) ATH_MUST_USE;

/* evaluate.c: the tasks of eval.tasks (see there). evaluation_open reads them and finds out what they
 * need of the plan; evaluation_run evaluates the current weights, of which there is a checkpoint, if
 * that is due and not done. ST_STOPPED: by a signal; a later call goes on. */
status evaluation_open(setup *u, err *e) ATH_MUST_USE;
status evaluation_run(session *s, err *e) ATH_MUST_USE;

#endif
