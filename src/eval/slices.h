/* Texts looked at in slices: an average hides what a model does not know.
 *
 *   token_loss     quantiles of the loss of a token, in nats
 *   by_frequency   the mean loss of tokens that the evaluated texts have once, 2 to 9 times, 10 to
 *                  99 times, ...: what is rare is learned last
 *   by_source, by_language   bits per byte, where documents say where they come from
 *
 * Each mean has the standard error of a ratio of sums over documents (metric.h). */
#ifndef EVAL_SLICES_H
#define EVAL_SLICES_H

#include "eval/metric.h"

/* Of a task of texts: {"token_loss": {"mean", "p10", "p50", "p90", "p99", "max"}, "by_frequency":
 * {"1": {"loss", "stderr", "tokens"}, ...}, "by_source": {"web": {"bits_per_byte", "stderr",
 * "sample_len"}, ...}, "by_language"}; the caller owns it. */
json_t *eval_slices_json(const eval_task *t);
/* The same as a table on standard output. */
void eval_print_slices(const eval_task *t);
/* A column of a table: a standard error, which a single document has none of. */
void eval_print_error(double x);

#endif
