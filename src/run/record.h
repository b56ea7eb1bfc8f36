/* Alarms and stages of a run in words, the same in the live terminal, in `runs show` and in the
 * report. The functions append plain text, whose bytes may be any: an HTML page escapes it. An event
 * is an object of metrics.jsonl; a member of a wrong type counts as absent. */
#ifndef RUN_RECORD_H
#define RUN_RECORD_H

#include <jansson.h>
#include <stdbool.h>

#include "base/strbuf.h"

/* "spike", "checkpoint damaged"; "alarm" where there is no kind. */
void record_put_kind(strbuf *out, const json_t *alarm);
/* What the guard did: "step skipped"; "" for alarms without an action. */
const char *record_action(const json_t *alarm);
/* Whether an alarm of this kind ends a run, if no step comes after it: a value that is not finite,
 * an alarm without a kind, or a spike that asked for a rewind. (A rewind that was made removes the spike from the metrics and
 * writes a `rewind` instead; a spike that is still there is one that could not be gone back from.) */
bool record_is_fatal(const json_t *alarm);
/* Whether the alarm is about the training itself, so that it is marked in the curves: not one about
 * files or data. */
bool record_is_on_curve(const json_t *alarm);
/* "crawl.jsonl:23 (document 22 in shards/web/shard-00000.bin), 98 % repeated, loss 0.42" */
void record_put_document(strbuf *out, const json_t *document);

/* "256 tokens x 32, rotary base 10k, rate 3e-4" */
void record_put_stage_shape(strbuf *out, const json_t *stage);
/* "web 70 %, code 30 %" */
void record_put_mixture(strbuf *out, const json_t *stage);
/* A short name for a source: its folder, without "/train". */
void record_put_source(strbuf *out, const json_t *source);

#endif
