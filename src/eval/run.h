/* Running tasks on a model: requests are scored, answers are written. */
#ifndef EVAL_RUN_H
#define EVAL_RUN_H

#include "eval/encode.h"
#include "eval/write.h"

/* Ranks that evaluate the same model together: each scores a part of the requests, and all have all
 * scores afterwards. They make the same calls in the same order. */
typedef struct eval_ranks {
    int rank, n;                                   /* n 0: there are no others */
    void (*sum)(void *ctx, int64_t *x, int64_t n); /* over the ranks, element by element */
    void *ctx;
} eval_ranks;

typedef struct eval_options {
    int64_t most_tok;              /* of a context; 0: what the model was made for */
    eval_journal *journal;         /* goes on where it ends, and adds to it; NULL: none */
    const chat_template *template; /* of the model; NULL: it has none */
    bool chat;                     /* prompts of answers are a user's message in the template */
    const char *system;            /* before that message; NULL: nothing */
    const volatile sig_atomic_t *interrupt;
    /* Asked between blocks of requests; true: stop. All ranks have the same answer. May be NULL. */
    bool (*stops)(void *ctx);
    eval_ranks ranks;
    /* How much of a task is done: of `all` requests, or of the texts to write. May be NULL. */
    void (*progress)(void *ctx, const eval_task *t, int64_t done, int64_t all);
    void *ctx;
} eval_options;

/* What a model needs to run these tasks: m->score is set, *cache_tok is the generator's longest
 * sequence (0: it is not needed). What is wrong with a task is found here. */
status eval_plan(open_model *m, eval_task *tasks, int n, const eval_options *opt,
                 int64_t *cache_tok, err *e) ATH_MUST_USE;
/* Fills the results of all documents. The model was read (open_model_read), and is loaded here,
 * once for all tasks. ST_STOPPED: interrupted. */
status eval_run(open_model *m, eval_task *tasks, int n, const eval_options *opt, score_stats *stats,
                err *e) ATH_MUST_USE;

#endif
