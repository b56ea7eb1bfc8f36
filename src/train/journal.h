/* Where the events of a run go: each is one JSON object, appended to RUN/metrics.jsonl and given to
 * the caller. Rank 0 alone writes; on the others an event goes nowhere. events.h makes them. */
#ifndef TRAIN_JOURNAL_H
#define TRAIN_JOURNAL_H

#include <jansson.h>

#include "run/metrics.h"
#include "train/train.h"

typedef struct journal {
    bool speaks;              /* rank 0 */
    const train_options *opt; /* whose on_event is told */
    metrics_log *metrics;     /* NULL: not open yet */
    json_t *late;             /* alarms that arose before it was */
    int64_t peak_anon_bytes;  /* the most memory that was seen in use */
} journal;

void journal_init(journal *j, const train_options *opt, bool speaks);
void journal_close(journal *j);
/* Opens RUN/metrics.jsonl behind `step`, at the start and after a rewind: what was recorded after
 * it will happen again. */
status journal_open(journal *j, const char *run, int64_t step, err *e) ATH_MUST_USE;

#endif
