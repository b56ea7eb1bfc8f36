/* The events of a run, as JSON objects (train.h). events.c and alarms.c make all JSON of `train`
 * but the state that it saves. Rank 0 writes the events; the other ranks only take part in what
 * must be summed over all. */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include "infer/labels.h"
#include "train/execute.h"
#include "train/guard/suspects.h"

/* `start`, `step` and `end`. All ranks call them. */
status events_start(session *s, err *e) ATH_MUST_USE;
status events_step(session *s, const step_result *r, err *e) ATH_MUST_USE;
status events_end(session *s, err *e) ATH_MUST_USE;
/* Measures the memory in use now; the `end` event has the largest such value. */
void events_note_memory(journal *j);

/* `stage`: the current stage begins. */
status events_stage(session *s, err *e) ATH_MUST_USE;
/* `valid`: at.val_loss, bits per byte (NaN: not known), and the number of targets. */
status events_valid(session *s, double bits_per_byte, int64_t targets, err *e) ATH_MUST_USE;
/* The same of an objective with a loss of its own: sums over the set (objective.h). */
status events_valid_rewards(session *s, const int64_t sums[SUM_COUNT], err *e) ATH_MUST_USE;
/* The same of labelled texts. */
status events_valid_labels(session *s, const label_tally *t, err *e) ATH_MUST_USE;
/* `eval`: a task's metrics of the current weights, as athanor eval --json has them. */
status events_eval(session *s, const char *task, json_t *metrics, const char *precision,
                   double seconds, err *e) ATH_MUST_USE;
status events_sample(session *s, const char *prompt, const strbuf *text, err *e) ATH_MUST_USE;
status events_checkpoint(session *s, const save_job *j, err *e) ATH_MUST_USE;

/* Alarms (docs/guards.md lists the kinds). For sources of the current stage that will be read more
 * often than their `epochs` allow: */
status events_budgets(session *s, err *e) ATH_MUST_USE;
/* Warns in the log of patterns of optim.no_decay that match no parameter, which is likely a
 * mistake. The default patterns are not checked, since they are for models of all kinds. */
void events_patterns(const session *s);
status events_nonfinite(session *s, const char *what, err *e) ATH_MUST_USE;
/* events_spike: the coming step is a spike. events_rewind: because of one, the run has gone back
 * from step `from`. The documents are those of the step. */
status events_spike(session *s, const step_result *r, suspects *documents, err *e) ATH_MUST_USE;
status events_rewind(session *s, const step_result *r, int64_t from, const watch_gap *left_out,
                     suspects *documents, err *e) ATH_MUST_USE;
/* Of the step that was just made: chosen answers become unlikely, or margins explode
 * (guard/rewards.h). */
status events_rewards(session *s, const step_result *r, err *e) ATH_MUST_USE;
/* Of the step that was just made: a few experts of a layer have taken all tokens; and now and then
 * `experts`, the load of each expert. */
status events_routers(session *s, const step_result *r, err *e) ATH_MUST_USE;
status events_early_stop(session *s, err *e) ATH_MUST_USE;
status events_save_failed(session *s, const save_job *j, const err *why, bool fatal,
                          err *e) ATH_MUST_USE;
status events_prune_failed(session *s, const err *why, err *e) ATH_MUST_USE;
status events_upload_failed(session *s, const upload_event *ev, err *e) ATH_MUST_USE;
/* A checkpoint that is damaged and not loaded. metrics.jsonl may not be open yet: events_late
 * writes the event then. */
void events_damaged(session *s, const char *dir, const err *why);
/* The launcher has started the run again after a loss of ranks; on the screen it was there. */
void events_restart(session *s);
status events_late(session *s, err *e) ATH_MUST_USE;

/* `experts`: the load of each in percent of the mean, over some thirty steps; nothing at most steps. */
status events_load(session *s, err *e) ATH_MUST_USE;

/* Private to events.c and alarms.c: writes an event with these members, and frees them. step < 0:
 * the event belongs to no step. */
status events_emit(session *s, const char *kind, int64_t step, json_t *members,
                   err *e) ATH_MUST_USE;

/* [{set, shard, document, source, line, id, first_tok, end_tok, row, loss, repeated}] of at most
 * `most` documents, the most suspicious first; what is unknown is null. `set`, `shard` and tokens
 * say where the document lies in the shards, `source` and `line` where its text is. */
json_t *events_documents(suspects *s, int most);

#endif
