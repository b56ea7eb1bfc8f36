#include "train/guard/react.h"

#include <inttypes.h>
#include <stdlib.h>

#include "train/events.h"
#include "train/execute.h"
#include "train/save/state.h"

/* ---- who was in the step ---- */

static status add_row(const stage *g, suspects *all, uint64_t sample, int row, int32_t *ids,
                      int32_t *targets, err *e) {
    arena *a = arena_new("documents of a row");
    loader_span *spans;
    int n;
    loader_rows rows = execute_rows(&g->rows); /* the step is over: they are free */
    rows.ids = ids, rows.targets = targets;
    loader_fill_rows(g->train, sample, 1, &rows);
    status st = loader_describe(g->train, sample, a, &spans, &n, e);
    if (st == ST_OK)
        suspects_add_row(all, sample, row, g->T, ids, targets, g->nll + (int64_t)row * g->T, spans,
                         n);
    arena_free(a);
    return st;
}

/* The step's documents, to be freed. */
static status find_documents(const session *s, suspects **out, err *e) {
    const stage *g = &s->stage;
    uint64_t first = stage_first_sample(&s->setup, &s->watch, s->at.step + 1);
    int32_t *ids = xcalloc((size_t)g->T * 2, sizeof *ids);
    *out = suspects_new();
    status st = ST_OK;
    for (int row = 0; row < g->batch && st == ST_OK; row++)
        st = add_row(g, *out, first + (uint64_t)row, row, ids, ids + g->T, e);
    free(ids);
    return st;
}

/* ---- going back ---- */

static status give_up(const session *s, err *e) {
    err_at(e, ST_NONFINITE, s->setup.c->run,
           "step %" PRId64 " is a spike, and the run has gone back %d times since "
           "its last checkpoint",
           s->at.step + 1, s->watch.rewinds);
    return err_hint(e,
                    "look at the documents that metrics.jsonl names, give --fork NEW a lower "
                    "optim.lr (now %g), or "
                    "raise guard.max_rewinds",
                    s->stage.now->optim.lr);
}

static status go_back(session *s, const step_result *r, suspects *documents, err *e) {
    int64_t from = s->at.step + 1;
    watch_gap gap = {s->stage.number, stage_first_sample(&s->setup, &s->watch, from),
                     (uint64_t)s->stage.batch};
    TRY(state_settle(s, false, e));
    if (s->watch.rewinds >= s->setup.c->guard.max_rewinds) return give_up(s, e);
    s->watch.rewinds++;
    watch_add_gap(&s->watch, gap);
    TRY(state_load_newest(s, e));
    peers_gather_all(&s->setup.peers);
    stage_leave(&s->stage); /* the stage may be an earlier one */
    TRY(journal_open(&s->journal, s->setup.c->run, s->at.step, e));
    return events_rewind(s, r, from, &gap, documents, e);
}

status react_to_spike(session *s, const step_result *r, err *e) {
    suspects *documents;
    peers_share_rows(&s->setup.peers, s->stage.nll, s->stage.share * s->stage.T);
    status st = find_documents(s, &documents, e);
    if (st == ST_OK) st = events_spike(s, r, documents, e);
    if (st == ST_OK && r->verdict == WATCH_REWIND) st = go_back(s, r, documents, e);
    suspects_free(documents);
    return st;
}
