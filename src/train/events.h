/* What a run says of itself, as JSON objects (train.h). Here alone, in events.c and alarms.c, does
 * `train` make JSON, but for the state that it saves. Rank 0 speaks for all; the others only take
 * part in what has to be asked of every rank. */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include "train/execute.h"
#include "train/guard/suspects.h"

/* `start`, `step` and `end`. All ranks call them. */
status events_start(session *s, err *e) ATH_MUST_USE;
status events_step(session *s, const step_result *r, err *e) ATH_MUST_USE;
status events_end(session *s, err *e) ATH_MUST_USE;
/* Looks at what memory is in use now, of which the `end` tells the most. */
void events_note_memory(journal *j);

/* `stage`: the one in force begins. */
status events_stage(session *s, err *e) ATH_MUST_USE;
/* `valid`: at.val_loss, bits per byte (NaN: not known), targets that were counted. */
status events_valid(session *s, double bits_per_byte, int64_t targets, err *e) ATH_MUST_USE;
status events_sample(session *s, const char *prompt, const strbuf *text, err *e) ATH_MUST_USE;
status events_checkpoint(session *s, const save_job *j, err *e) ATH_MUST_USE;

/* Alarms (docs/guards.md lists the kinds). Sources of the stage in force that will be passed over
 * more often than their budget of epochs says: */
status events_budgets(session *s, err *e) ATH_MUST_USE;
/* Patterns of optim.no_decay that match no parameter, which is likely a slip: a warning in the log.
 * The usual ones are for models of all kinds. */
void events_patterns(const session *s);
status events_nonfinite(session *s, const char *what, err *e) ATH_MUST_USE;
/* A spike in the coming step, and that the run has gone back from step `from` because of one. The
 * documents are those of the step. */
status events_spike(session *s, const step_result *r, suspects *documents, err *e) ATH_MUST_USE;
status events_rewind(session *s, const step_result *r, int64_t from, const watch_gap *left_out,
                     suspects *documents, err *e) ATH_MUST_USE;
status events_early_stop(session *s, err *e) ATH_MUST_USE;
status events_save_failed(session *s, const save_job *j, const err *why, bool fatal,
                          err *e) ATH_MUST_USE;
status events_prune_failed(session *s, const err *why, err *e) ATH_MUST_USE;
status events_upload_failed(session *s, const upload_event *ev, err *e) ATH_MUST_USE;
/* A checkpoint that is passed over. There may be no log yet: it is told by events_late. */
void events_damaged(session *s, const char *dir, const err *why);
status events_late(session *s, err *e) ATH_MUST_USE;

/* Private to events.c and alarms.c: an event with these members, of which the reference is taken;
 * step < 0: of no step. Text of any bytes. */
status events_emit(session *s, const char *kind, int64_t step, json_t *members,
                   err *e) ATH_MUST_USE;
json_t *events_text(const char *text);

/* [{set, shard, document, source, line, id, first_tok, end_tok, row, loss, repeated}] of the first
 * `most`; what is unknown is null. `set`, `shard` and tokens say where the document lies in the
 * shards, `source` and `line` where its text is. */
json_t *events_documents(suspects *s, int most);

#endif
