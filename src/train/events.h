/* What a run says of itself: events, which go to RUN/metrics.jsonl and to the caller
 * (run/metrics.h). Rank 0 speaks for all; the others only take part in
 * what has to be asked of every rank. */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include "train/execute.h"

/* An event to be filled; step < 0: of no step. */
json_t *events_new(const char *kind, int64_t step);
/* An `alarm` event with a sentence. */
json_t *events_alarm(const session *s, const char *kind, const char *fmt, ...) ATH_PRINTF(3, 4);
/* Gives the event away; takes the reference. */
status events_emit(session *s, json_t *event, err *e) ATH_MUST_USE;
/* Emits the alarms that arose before there were metrics. */
status events_late_alarms(session *s, err *e) ATH_MUST_USE;

/* `start`, `step` and `end`. All ranks call them. */
status events_start(session *s, err *e) ATH_MUST_USE;
status events_step(session *s, const step_result *r, err *e) ATH_MUST_USE;
status events_end(session *s, err *e) ATH_MUST_USE;
/* Looks at what memory is in use now, of which the `end` tells the most. */
void events_note_memory(session *s);

#endif
