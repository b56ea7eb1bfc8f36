/* Where the events of a run go: each is one JSON object, appended to RUN/metrics.jsonl and given to
 * the caller. Only rank 0 writes; on other ranks an event is dropped. events.h makes the events. */
#ifndef TRAIN_JOURNAL_H
#define TRAIN_JOURNAL_H

#include <jansson.h>

#include "run/metrics.h"
#include "train/train.h"

typedef struct journal {
    bool speaks;              /* this is rank 0 */
    const train_options *opt; /* its on_event gets the events */
    metrics_log *metrics;     /* NULL: not open yet */
    json_t *late;             /* alarms from the time before it was open */
    int64_t peak_anon_bytes;  /* largest value of events_note_memory */
} journal;

void journal_init(journal *j, const train_options *opt, bool speaks);
void journal_close(journal *j);
/* Opens RUN/metrics.jsonl, at the start and after a rewind. Events of steps after `step` are
 * removed from it, since these steps will run again. */
status journal_open(journal *j, const char *run, int64_t step, err *e) ATH_MUST_USE;

#endif
