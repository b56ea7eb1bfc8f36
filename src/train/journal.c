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

status journal_add(journal *j, const char *kind, int64_t step, json_t *members, err *e) {
    json_t *o = json_pack("{s:s}", "event", kind);
    status st = ST_OK;
    if (step >= 0) json_object_set_new(o, "step", json_integer(step));
    json_object_update_new(o, members);
    if (j->speaks) st = metrics_write(j->metrics, o, e);
    if (j->speaks && st == ST_OK && j->opt->on_event) j->opt->on_event(j->opt->ctx, o);
    json_decref(o);
    return st;
}
