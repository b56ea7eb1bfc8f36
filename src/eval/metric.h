/* Metrics: what the scores of a task's documents say, each with its standard error.
 *
 * A metric gives a number for each document (0 or 1: right or not). Its result is their mean, with
 * the standard error s / sqrt(n), s^2 = sum (x - mean)^2 / (n - 1), as lm-evaluation-harness
 * computes it. Where several answers are written for a document, its number is the mean of theirs
 * (avg@k), and the error is still that of documents. Perplexities are not means:
 *
 *   perplexity = exp(-L / documents)        (of continuations)
 *   word_perplexity = exp(-L / words)
 *   byte_perplexity = exp(-L / bytes)
 *   bits_per_byte = -L / bytes / ln 2
 *
 * with L the sum of the log-likelihoods of all documents, and words as runs of what is no white
 * space, as Python's re.split(r"\s+") counts them. Their standard errors are those of 100,000
 * bootstrap samples there; here they follow from the delta method: of a ratio of sums over
 * documents, which is what the bootstrap estimates. The share of instructions that are followed
 * (inst_level_strict_acc) is such a ratio, too. BLEU is of all documents together (similarity.h); its standard error is
 * that of 1,000 bootstrap samples. */
#ifndef EVAL_METRIC_H
#define EVAL_METRIC_H

#include "eval/task.h"

typedef struct eval_score {
    double value, stderr_;
    int64_t n; /* documents */
} eval_score;

/* Of one metric of the task and one of its filters (an answer's). */
eval_score eval_measure(const eval_task *t, eval_metric metric, int filter);
/* The number that a document gives, NaN if it was left out; METRIC_WORD_PERPLEXITY and the like have
 * none. */
double eval_doc_score(const eval_task *t, const eval_doc *d, eval_metric metric, int filter);
/* The choice with the highest score under METRIC_ACC..., the first of equal ones. */
int eval_best_choice(const eval_doc *d, eval_metric metric);
bool eval_is_mean(eval_metric metric);
/* Whether less is better: of perplexities and bits. */
bool eval_is_loss(eval_metric metric);
/* The sum of y[n] by the sum of x[n], of n documents, with its standard error. */
eval_score eval_ratio(const double *y, const double *x, int64_t n);

/* Two models on the same documents: mean of a - b, its standard error, and the two-sided p of a
 * paired bootstrap (Efron & Tibshirani 1993, chapter 16): the share of resampled mean differences,
 * moved to mean zero, that are at least as far from zero as the measured one. */
typedef struct eval_difference {
    double value, stderr_, low, high, p; /* low, high: of 95 % of the resampled differences */
} eval_difference;
eval_difference eval_compare(const double *a, const double *b, int64_t n);

/* {"acc,none": x, "acc_stderr,none": y, ..., "sample_len": n}, and "chance" of choices: what
 * guessing scores; the caller owns it. */
json_t *eval_result_json(const eval_task *t);
/* One document as a line of --samples; the caller owns it. */
json_t *eval_sample_json(const eval_task *t, const eval_doc *d);

#endif
