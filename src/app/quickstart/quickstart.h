/* athanor quickstart: from text to a model that writes, in minutes.
 *
 * Reading order: this file, quickstart_corpus.c (which text), quickstart_size.c (which model, from
 * a measurement of the machine), quickstart_page.c (what the user sees), cmd_quickstart.c (the
 * stages in order). Everything is done by the library functions behind `tok train`, `data build`
 * and `train`; the config lies in RUN/quickstart.yaml and works with them. */
#ifndef APP_QUICKSTART_H
#define APP_QUICKSTART_H

#include <signal.h>
#include <stdio.h>

#include "app/frame/progress.h"
#include "base/arena.h"
#include "data/build/build.h"
#include "run/config/config.h"
#include "tok/tok.h"
#include "train/train.h"

enum { QUICK_PROMPTS = 3, QUICK_CORRECTIONS = 3 };

typedef struct quick_corpus {
    const char *path; /* file or folder */
    const char *what; /* "tinyshakespeare, 1.1 MB of plays": what it is, for people */
    const char *why;  /* why this one; "" when the user gave it */
    const char *prompts[QUICK_PROMPTS];
    uint64_t bytes;
} quick_corpus;

/* `text` if it is not NULL; else tinyshakespeare, from the cache or the network; else what `bible`
 * prints, stored as RUN/corpus.txt. Paths and texts live in the arena. */
status quick_find_corpus(arena *a, const char *text, const char *run, quick_corpus *out,
                         err *e) ATH_MUST_USE;

/* One size of model with its recipe; the table is in quickstart_size.c. */
typedef struct quick_size {
    int C, L, H, F; /* heads are C/H wide */
    int batch;      /* sequences per step */
    double lr;
    double tokens; /* with fewer to train on, a smaller size does better */
} quick_size;

typedef struct quick_plan {
    const quick_size *size;
    int T;
    int64_t steps, warmup; /* the warm-up stays when the steps are corrected */
    double step_s;         /* measured */
} quick_plan;

typedef struct quick {
    arena *a;
    FILE *out; /* what people read: standard error under --json */
    const char *run;
    double budget_s; /* for the training steps */
    quick_corpus corpus;
    data_build_result data;
    int32_t vocab;
    quick_plan plan;
} quick;

/* Batches of a validation; 0: the whole held-out part, which is small enough. */
int quick_eval_batches(const quick *q);
/* Measures a few steps and chooses size and number of steps. */
status quick_choose_size(quick *q, err *e) ATH_MUST_USE;
/* Writes RUN/quickstart.yaml for the plan; its path is in the arena. */
status quick_write_config(quick *q, const char **path, err *e) ATH_MUST_USE;

/* Trains the config with overrides. */
status quick_train(const char *config_path, const char *const *overrides, int n,
                   const train_options *opt, err *e) ATH_MUST_USE;

/* What the training told, and its view. */
typedef struct quick_watch {
    quick *q;
    progress view; /* its total_steps, first_step and began_ns are of this part */
    int64_t began_ns;
    double limit_s;             /* a training that would last longer than this gets fewer steps */
    volatile sig_atomic_t stop; /* given to the trainer */
    bool by_signal;             /* a signal has asked for the stop */
    int corrections;            /* how often it got fewer */
    int64_t at_step;
    double *loss; /* of each step; heap */
    int64_t n_loss, cap_loss;
    double val_loss, val_bpb, planned_mib, used_mib;
    json_t *sample[QUICK_PROMPTS]; /* the newest, by prompt */
} quick_watch;

void quick_watch_event(void *ctx, const json_t *event);
void quick_watch_plan(void *ctx, const char *table);
void quick_watch_free(quick_watch *w);

/* "  ✓ corpus       text   0.4 s" */
void quick_stage(const quick *q, const char *name, int64_t began_ns, const char *fmt, ...)
    ATH_PRINTF(4, 5);
void quick_print_result(const quick *q, const quick_watch *w);

#endif
