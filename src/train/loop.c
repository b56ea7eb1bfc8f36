/* The training loop: steps (execute.c) on samples of the loader, and what happens between them. The
 * step path allocates nothing but the event objects. */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/events.h"
#include "train/guard/react.h"

/* ---- one step ---- */

/* Of the step after this one, as far as it is known already. */
static void expect_next(session *s) {
    int64_t next = s->at.step + 2;
    if (next > s->course->total_steps || course_part_of(s->course, next)->stage != s->stage) return;
    prefetch_expect(s->ahead, session_own_sample(s, next),
                    course_part_of(s->course, next)->batch / s->peers.m.size[MESH_DP]);
}

static int64_t count_targets(session *s) {
    int64_t n = prefetch_begin(s->ahead, session_own_sample(s, s->at.step + 1), s->share);
    expect_next(s);
    return n;
}

static status fill(session *s, int micro_batch, err *e) {
    const batch_rows *r = &s->rows;
    prefetch_take(s->ahead, micro_batch, r->ids, r->targets, r->start, r->pos);
    return loader_error(s->train, e);
}

static status run_step(session *s, step_result *r, err *e) {
    static const step_source loaded = {.count_targets = count_targets, .fill = fill};
    TRY(session_enter(s, e));
    TRY(session_begin(s, e));
    TRY(execute_step(s, &loaded, NULL, r, e));
    trace_write(s->trace, false);
    if (r->verdict != WATCH_FINE) return react_to_spike(s, r, e);
    if (r->finite) return ST_OK;
    return guard_explain(s, session_own_sample(s, s->at.step + 1), r->grad_scale, e);
}

/* ---- between steps ---- */

/* A run that was shortened may be past its end. */
static bool is_last(const session *s) {
    return s->at.step >= s->course->total_steps;
}

static bool due(int64_t every, const session *s) {
    return (every > 0 && s->at.step % every == 0) || is_last(s);
}

static bool save_is_due(const session *s) {
    double minutes = s->c->checkpoint.every_minutes;
    double since_s = (double)(clock_now_ns() - s->saved_ns) / 1e9;
    if (due(s->c->checkpoint.every, s)) return true;
    return minutes > 0 && peers_first(&s->peers, since_s >= 60 * minutes);
}

static status after_step(session *s, err *e) {
    const config *c = s->c;
    s->val_loss = NAN;
    if (s->at.step == 1 || is_last(s)) events_note_memory(s);
    if (s->valid && due(c->eval.every, s)) {
        comm_at(s->peers.m.world, "the validation", s->at.step);
        TRY(validate(s, e));
    }
    if (due(c->sample.every, s)) {
        comm_at(s->peers.m.world, "the samples", s->at.step);
        TRY(samples_write(s, e));
    }
    bool saves = save_is_due(s);
    comm_at(s->peers.m.world, saves ? "the save" : "what follows a step", s->at.step);
    return saves ? state_save(s, is_last(s), e) : state_poll(s, false, e);
}

static bool stops_early(const session *s) {
    return early_stop_is_due(&s->watch.stop, s->c->eval.patience);
}

static status stop_now(session *s, err *e) {
    TRY(state_save(s, true, e));
    TRY(events_end(s, e));
    err_set(e, ST_STOPPED, "stopped after step %ld, state saved", (long)s->at.step);
    return err_hint(e, "start the same command again to go on");
}

static status stop_early(session *s, err *e) {
    const early_stop *v = &s->watch.stop;
    json_t *o = events_alarm(s, "early_stop",
                             "%ld validations without a loss below %.4f, that of step %ld: the "
                             "run ends here",
                             (long)v->without, v->best_loss, (long)v->best_step);
    log_info("%s", json_string_value(json_object_get(o, "message")));
    TRY(events_emit(s, o, e));
    return is_last(s) ? ST_OK : state_save(s, true, e);
}

/* A stage whose data cannot be opened must not cost what was trained before it. */
static status save_before_failing(session *s, status st, err *e) {
    if (st == ST_OK || s->train || s->at.step == 0) return st;
    err unused = {0};
    if (state_save(s, true, &unused) != ST_OK) {
        log_warn("%s", unused.message);
        return st;
    }
    return err_context(e, "step %ld was the last, and it is saved", (long)s->at.step);
}

static status loop_steps(session *s, err *e) {
    while (!is_last(s) && !stops_early(s)) {
        step_result r;
        TRY(save_before_failing(s, run_step(s, &r, e), e));
        if (r.verdict == WATCH_REWIND) continue;
        execute_advance(s, &r);
        if (s->at.step % s->now->train.log_every == 0 || is_last(s)) TRY(events_step(s, &r, e));
        TRY(after_step(s, e));
        if (stops_early(s)) TRY(stop_early(s, e));
        bool stop = peers_any(&s->peers, s->opt->stop && *s->opt->stop);
        if (stop && !is_last(s)) return stop_now(s, e);
    }
    return ST_OK;
}

status loop_run(session *s, err *e) {
    s->saved_ns = clock_now_ns();
    s->watches = true;
    TRY(session_enter(s, e));
    TRY(events_start(s, e));
    TRY(events_late_alarms(s, e));
    if (is_last(s) || stops_early(s))
        log_info("run %s already has its %ld steps", s->c->run, (long)s->at.step);
    status st = loop_steps(s, e);
    if (st == ST_OK || st == ST_STOPPED) trace_write(s->trace, true);
    TRY(st);
    TRY(state_poll(s, true, e));
    TRY(events_end(s, e));
    return peers_agree(&s->peers, s->upload ? upload_result(s->upload, e) : ST_OK, e);
}
