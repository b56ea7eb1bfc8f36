/* What athanor eval prints. */
#ifndef APP_EVAL_VIEW_H
#define APP_EVAL_VIEW_H

#include "eval/metric.h"

/* The scores of a model, document by document, kept beside those of another: of each task, metric
 * and filter. */
typedef struct eval_kept {
    const eval_task *task;
    int n;
    double *score; /* one block after the other, in the order of eval_kept_walk; t->n each */
} eval_kept;

/* Copies the scores that are means over documents. Free with eval_kept_free. */
eval_kept eval_keep_scores(const eval_task *tasks, int n);
void eval_kept_free(eval_kept *k);

/* Columns are as wide as what is in them: a table is to fit into 80. */
typedef struct eval_widths {
    int task, metric, filter;
} eval_widths;
eval_widths eval_widths_of(const eval_task *tasks, int n);

/* A table of results, or of the differences of two models on the same documents. */
void eval_print_results(const eval_task *tasks, int n);
void eval_print_differences(const eval_kept *a, const eval_kept *b);
/* {task: {"acc,none": {"difference", "stderr", "low", "high", "p"}}} */
json_t *eval_differences_json(const eval_kept *a, const eval_kept *b);
json_t *eval_results_json(const eval_task *tasks, int n);
/* Evaluates a model, whose scores are then in the tasks. */
typedef status (*eval_model_run)(void *ctx, const char *model, err *e);
/* What quantising costs (eval_formats.c). The tasks have the model's scores already; `run` then evaluates it with its
 * weights rounded to each format of the list ("Q8_0,Q4_1"), and a table has all of them. out: a list that gets {"format",
 * "bytes", "results"} of each instead; or NULL. */
status eval_formats(const char *model, const char *base, const char *names, const eval_task *tasks,
                    int n, eval_model_run run, void *ctx, json_t *out, err *e) ATH_MUST_USE;
/* Whether all of the list can be written; said before an evaluation of hours. */
status eval_formats_check(const char *names, err *e) ATH_MUST_USE;
/* One document for people: what the model was given and what came of it, byte for byte. */
void eval_print_doc(const eval_task *t, const eval_doc *d);

#endif
