#include "train/journal.h"

void journal_init(journal *j, const train_options *opt, bool speaks) {
    *j = (journal){.speaks = speaks, .opt = opt, .late = json_array()};
}

void journal_close(journal *j) {
    metrics_close(j->metrics);
    json_decref(j->late);
}

status journal_open(journal *j, const char *run, int64_t step, err *e) {
    if (!j->speaks) return ST_OK;
    metrics_close(j->metrics);
    j->metrics = NULL;
    TRY(metrics_truncate_after(run, step, e));
    return metrics_open(&j->metrics, run, e);
}
