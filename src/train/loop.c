/* The training loop: enter the stage of the next step, run the step on samples of the loader, then
 * validation, samples, saves and events. A step itself allocates nothing; events are JSON objects
 * on the heap. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "train/events.h"
#include "train/guard/react.h"
#include "train/save/state.h"

/* ---- the stage of the coming step ---- */

/* The record is written before the first step on the data that it describes. */
static status write_record(session *s, err *e) {
    if (!s->data.record_is_new) return ST_OK;
    s->data.record_is_new = false;
    return s->folder ? run_write_json(s->folder, "data.json", s->data.record, e) : ST_OK;
}

static status enter(session *s, err *e) {
    TRY(stage_enter(&s->stage, &s->setup, &s->data, &s->at, e));
    status st = write_record(s, e);
    if (st == ST_OK) return st;
    const char *name = s->setup.course->stage[s->stage.number].name;
    stage_leave(&s->stage); /* what was trained can be saved */
    return s->setup.c->stages.n ? err_context(e, "stage %s", name) : st;
}

/* Whether the validation losses of two stages can be compared. */
static bool same_validation(const course_stage *a, const course_stage *b) {
    const char *x = a->c->data.valid, *y = b->c->data.valid;
    return x && y && strcmp(x, y) == 0 && a->T == b->T &&
           a->c->data.document_mask == b->c->data.document_mask;
}

/* Losses of the stage before are no measure for those of this one. */
static void forget_losses(session *s, const course_stage *k) {
    watch_forget(&s->watch);
    if (s->stage.number > 0 && !same_validation(k - 1, k)) early_stop_init(&s->watch.stop);
}

/* Once, between the last step of one stage and the first of the next: a new start of the optimizer,
 * events. */
static status begin_stage(session *s, err *e) {
    setup *u = &s->setup;
    const course_stage *k = &u->course->stage[s->stage.number];
    if (!s->stage.begins) return ST_OK;
    s->stage.begins = false;
    if (setup_leads(u)) events_patterns(s);
    if (s->at.step > 0) forget_losses(s, k);
    if (s->at.step > 0 && k->optim_base == s->at.step) {
        TRY(setup_clear_optimizer(u, e));
        s->at.updates = 0;
    }
    if (u->c->stages.n) TRY(events_stage(s, e));
    return events_budgets(s, e);
}

/* ---- one step ---- */

/* Tells the reading thread which samples the step after this one needs, if that is in the same
 * stage. */
static void expect_next(session *s) {
    setup *u = &s->setup;
    int64_t next = s->at.step + 2;
    if (next > u->course->total_steps || course_part_of(u->course, next)->stage != s->stage.number)
        return;
    prefetch_expect(s->stage.ahead, stage_own_sample(u, &s->watch, next),
                    course_part_of(u->course, next)->batch / u->peers.m.size[MESH_DP]);
}

static int64_t count_targets(session *s) {
    int64_t n = prefetch_begin(
        s->stage.ahead, stage_own_sample(&s->setup, &s->watch, s->at.step + 1), s->stage.share);
    expect_next(s);
    return n;
}

/* The first sample of a micro-batch of the coming step. */
static uint64_t sample_of(const session *s, int micro_batch) {
    uint64_t first = stage_own_sample(&s->setup, &s->watch, s->at.step + 1);
    return first + (uint64_t)micro_batch * (uint64_t)s->stage.B;
}

static status data_error(const session *s, err *e) {
    TRY(loader_error(s->stage.train, e));
    if (s->stage.noted.fault.code != ST_OK) {
        *e = s->stage.noted.fault;
        return e->code;
    }
    return lessons_check(s->stage.lessons, NULL, e);
}

static status fill(session *s, int micro_batch, err *e) {
    loader_rows rows = execute_rows(&s->stage.rows);
    prefetch_take(s->stage.ahead, micro_batch, &rows);
    execute_complete(&s->stage, s->stage.train, sample_of(s, micro_batch));
    return data_error(s, e);
}

static status peek(session *s, int micro_batch, err *e) {
    execute_fill(&s->stage, s->stage.train, sample_of(s, micro_batch));
    return data_error(s, e);
}

static status run_step(session *s, step_result *r, err *e) {
    static const step_source loaded = {.count_targets = count_targets, .fill = fill, .peek = peek};
    TRY(enter(s, e));
    TRY(begin_stage(s, e));
    TRY(execute_step(s, &loaded, NULL, r, e));
    trace_write(s->trace, false);
    if (r->verdict != WATCH_FINE) return react_to_spike(s, r, e);
    if (r->finite || r->overflow) return ST_OK;
    return react_to_nonfinite(s, stage_own_sample(&s->setup, &s->watch, s->at.step + 1),
                              r->grad_scale, e);
}

/* ---- between steps ---- */

/* At or behind the end: a run may have been shortened since. */
static bool is_last(const session *s) {
    return s->at.step >= s->setup.course->total_steps;
}

static bool due(int64_t every, const session *s) {
    return (every > 0 && s->at.step % every == 0) || is_last(s);
}

static bool save_is_due(const session *s) {
    double minutes = s->setup.c->checkpoint.every_minutes;
    double since_s = (double)(clock_now_ns() - s->saving.saved_ns) / 1e9;
    if (due(s->setup.c->checkpoint.every, s)) return true;
    return minutes > 0 && peers_first(&s->setup.peers, since_s >= 60 * minutes);
}

/* A signal that comes while the checkpoint is evaluated ends the run: that is saved. */
static status evaluate(session *s, err *e) {
    status st = evaluation_run(s, e);
    if (st != ST_STOPPED) return st;
    TRY(state_settle(s, true, e));
    TRY(events_end(s, e));
    err_set(e, ST_STOPPED, "stopped in the evaluation of step %ld", (long)s->at.step);
    return err_hint(e, "start the same command again to go on");
}

static status save_and_evaluate(session *s, bool wait, err *e) {
    TRY(state_save(s, wait, e));
    return evaluate(s, e);
}

static status after_step(session *s, err *e) {
    setup *u = &s->setup;
    const config *c = u->c;
    s->at.val_loss = NAN;
    if (s->at.step == 1 || is_last(s)) events_note_memory(&s->journal);
    if (s->stage.valid && due(c->eval.every, s)) {
        comm_at(u->peers.m.world, "the validation", s->at.step);
        TRY(validate(s, e));
    }
    if (due(c->sample.every, s)) {
        comm_at(u->peers.m.world, "the samples", s->at.step);
        TRY(samples_write(s, e));
    }
    bool saves = save_is_due(s);
    comm_at(u->peers.m.world, saves ? "the save" : "what follows a step", s->at.step);
    return saves ? save_and_evaluate(s, is_last(s), e) : state_poll(s, false, e);
}

static bool stops_early(const session *s) {
    return early_stop_is_due(&s->watch.stop, s->setup.c->eval.patience);
}

static status stop_now(session *s, err *e) {
    TRY(state_save(s, true, e));
    TRY(events_end(s, e));
    err_set(e, ST_STOPPED, "stopped after step %ld, state saved", (long)s->at.step);
    return err_hint(e, "start the same command again to go on");
}

static status stop_early(session *s, err *e) {
    TRY(events_early_stop(s, e));
    return is_last(s) ? ST_OK : save_and_evaluate(s, true, e);
}

/* When the data of a stage cannot be opened, the steps before it are saved first. */
static status save_before_failing(session *s, status st, err *e) {
    if (st == ST_OK || s->stage.train || s->at.step == 0) return st;
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
        if (s->at.step % s->stage.now->train.log_every == 0 || is_last(s))
            TRY(events_step(s, &r, e));
        TRY(events_rewards(s, &r, e));
        TRY(events_routers(s, &r, e));
        TRY(after_step(s, e));
        if (stops_early(s)) TRY(stop_early(s, e));
        bool stop = peers_any(&s->setup.peers, s->opt->stop && *s->opt->stop);
        if (stop && !is_last(s)) return stop_now(s, e);
    }
    return ST_OK;
}

status loop_run(session *s, err *e) {
    s->saving.saved_ns = clock_now_ns();
    s->watches = true;
    TRY(enter(s, e));
    TRY(events_start(s, e));
    TRY(events_late(s, e));
    TRY(evaluate(s, e)); /* of the checkpoint from which the run goes on */
    if ((is_last(s) || stops_early(s)) && setup_leads(&s->setup))
        log_info("run %s already has its %ld step%s", s->setup.c->run, (long)s->at.step,
                 text_s(s->at.step));
    status st = loop_steps(s, e);
    if (st == ST_OK || st == ST_STOPPED) trace_write(s->trace, true);
    TRY(st);
    TRY(state_poll(s, true, e));
    TRY(events_end(s, e));
    return peers_agree(&s->setup.peers,
                       s->saving.upload ? upload_result(s->saving.upload, e) : ST_OK, e);
}
