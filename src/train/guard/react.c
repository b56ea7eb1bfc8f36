#include "train/guard/react.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "run/record.h"
#include "train/events.h"
#include "train/guard/suspects.h"

enum { NAMED_DOCUMENTS = 8 };

static const char *const ACTIONS[] = {"", "log", "lower", "skip", "rewind"};

/* ---- who was in the step ---- */

static status add_row(session *s, suspects *all, uint64_t sample, int row, int32_t *ids,
                      int32_t *targets, err *e) {
    arena *a = arena_new("documents of a row");
    loader_span *spans;
    int n;
    loader_fill(s->train, sample, 1, ids, targets, NULL, NULL);
    status st = loader_describe(s->train, sample, a, &spans, &n, e);
    if (st == ST_OK)
        suspects_add_row(all, sample, row, s->T, ids, targets, s->nll + (int64_t)row * s->T, spans,
                         n);
    arena_free(a);
    return st;
}

/* The step's documents, the most suspicious first. */
static status name_documents(session *s, json_t **out, err *e) {
    uint64_t first = session_first_sample(s, s->at.step + 1);
    int32_t *ids = xcalloc((size_t)s->T * 2, sizeof *ids);
    suspects *all = suspects_new();
    status st = ST_OK;
    for (int row = 0; row < s->batch && st == ST_OK; row++)
        st = add_row(s, all, first + (uint64_t)row, row, ids, ids + s->T, e);
    if (st == ST_OK) *out = suspects_json(all, NAMED_DOCUMENTS);
    suspects_free(all);
    free(ids);
    return st;
}

/* ---- telling ---- */

static void put_score(json_t *o, const step_result *r) {
    double loss = execute_mean_loss(r);
    json_object_set_new(o, "loss", json_f32((float)loss));
    json_object_set_new(o, "loss_z", json_f32((float)r->score.loss_z));
    json_object_set_new(o, "loss_mean", json_f32((float)r->score.loss_mean));
    json_object_set_new(o, "grad_norm", json_f32((float)r->norm));
    json_object_set_new(o, "norm_z", json_f32((float)r->score.norm_z));
    json_object_set_new(o, "norm_mean", json_f32((float)r->score.norm_mean));
    json_object_set_new(o, "repeated", json_f32((float)r->repeated));
}

static const char *consequence(watch_verdict v) {
    switch (v) {
        case WATCH_SKIP: return "; its update was left out";
        case WATCH_LOWER: return "; the learning rate is lowered";
        case WATCH_REWIND: return "; the run goes back to its last checkpoint";
        default: return "";
    }
}

static json_t *spike_alarm(const session *s, const step_result *r, json_t *documents) {
    double loss = execute_mean_loss(r);
    strbuf named = {0};
    if (json_array_size(documents) > 0) {
        strbuf_puts(&named, "; most suspicious: ");
        record_put_document(&named, json_array_get(documents, 0));
    }
    char repeated[64] = "";
    if (watch_is_repetitive(s->c, r->repeated))
        snprintf(repeated, sizeof repeated, ", %.3g %% of its tokens repeat themselves",
                 100 * r->repeated);
    json_t *o = events_alarm(s, "spike", "loss %.4g (z %.1f), gradient norm %.4g (z %.1f)%s%s%s",
                             loss, r->score.loss_z, r->norm, r->score.norm_z, repeated,
                             consequence(r->verdict), strbuf_cstr(&named));
    strbuf_free(&named);
    json_object_set_new(o, "step", json_integer(s->at.step + 1));
    json_object_set_new(o, "action", json_string(ACTIONS[r->verdict]));
    put_score(o, r);
    json_object_set(o, "documents", documents);
    return o;
}

/* ---- going back ---- */

static status give_up(const session *s, err *e) {
    err_set(e, ST_NONFINITE,
            "step %" PRId64 " is a spike, and the run has gone back %d times since "
            "its last checkpoint",
            s->at.step + 1, s->watch.rewinds);
    err_where(e, "%s", s->c->run);
    return err_hint(e,
                    "lower optim.lr (now %g), look at the documents that metrics.jsonl names, or "
                    "raise guard.max_rewinds",
                    s->now->optim.lr);
}

/* What was recorded after the checkpoint will happen again, otherwise. */
static status reopen_metrics(session *s, err *e) {
    if (!session_leads(s)) return ST_OK;
    metrics_close(s->metrics);
    s->metrics = NULL;
    TRY(metrics_truncate_after(s->c->run, s->at.step, e));
    return metrics_open(&s->metrics, s->c->run, e);
}

static status go_back(session *s, const step_result *r, json_t *documents, err *e) {
    int64_t from = s->at.step + 1;
    watch_gap gap = {s->stage, session_first_sample(s, from), (uint64_t)s->batch};
    TRY(state_settle(s, false, e));
    if (s->watch.rewinds >= s->c->guard.max_rewinds) return give_up(s, e);
    s->watch.rewinds++;
    watch_add_gap(&s->watch, gap);
    TRY(state_load_newest(s, e));
    peers_gather_all(&s->peers);
    session_leave(s); /* the stage may be an earlier one */
    s->val_loss = NAN;
    TRY(reopen_metrics(s, e));
    json_t *o = events_alarm(s, "rewind",
                             "went back from step %" PRId64 " to step %" PRId64 "; its %" PRIu64
                             " samples are left out",
                             from, s->at.step, gap.n);
    json_object_set_new(o, "from_step", json_integer(from));
    json_object_set_new(o, "to_step", json_integer(s->at.step));
    json_object_set_new(o, "left_out",
                        json_pack("{s:i,s:I,s:I}", "stage", gap.stage, "first",
                                  (json_int_t)gap.first, "n", (json_int_t)gap.n));
    put_score(o, r);
    json_object_set(o, "documents", documents);
    return events_emit(s, o, e);
}

status react_to_spike(session *s, const step_result *r, err *e) {
    json_t *documents;
    peers_share_rows(&s->peers, s->nll, s->share * s->T);
    TRY(name_documents(s, &documents, e));
    json_t *o = spike_alarm(s, r, documents);
    status st = events_emit(s, o, e);
    if (st == ST_OK && r->verdict == WATCH_REWIND) st = go_back(s, r, documents, e);
    json_decref(documents);
    return st;
}
