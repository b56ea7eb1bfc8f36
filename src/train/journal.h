/* Where the events of a run go: each is one JSON object, appended to RUN/metrics.jsonl and given to
 * the caller. Rank 0 alone writes; on the others an event goes nowhere. */
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

static inline void journal_init(journal *j, const train_options *opt, bool speaks) {
    *j = (journal){.speaks = speaks, .opt = opt, .late = json_array()};
}
static inline void journal_close(journal *j) {
    metrics_close(j->metrics);
    json_decref(j->late);
}

#endif
