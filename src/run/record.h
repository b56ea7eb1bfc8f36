/* Alarms and stages of a run in words, the same in the live terminal, in `runs show` and in the
 * report. All of it is plain text of any bytes: an HTML page escapes it. Members of a wrong type
 * count as absent. */
#ifndef RUN_RECORD_H
#define RUN_RECORD_H

#include <jansson.h>
#include <stdbool.h>

#include "base/strbuf.h"

/* "spike", "checkpoint damaged"; "alarm" where there is no kind. */
void record_put_kind(strbuf *out, const json_t *alarm);
/* What the guard did: "step skipped"; "" for alarms without an action. */
const char *record_action(const json_t *alarm);
/* True when the run ended with it, unless steps come after it. That is so for a spike that asked
 * for a rewind, too: going back takes it out of the record, and a `rewind` is in its place. */
bool record_is_fatal(const json_t *alarm);
/* True when it says something about a point of the curves. */
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
