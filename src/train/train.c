/* The public entry points: open in order of cost (config, model, data, plan), then run. */
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/checkpoint.h"
#include "run/report.h"
#include "train/session.h"

/* What `auto` was resolved to when the run began still holds, also on another machine. */
static status adopt_precision(config *c, const char *run, err *e) {
    if (!run_is_run(run)) return ST_OK;
    json_t *stored;
    config *before;
    TRY(run_read_config(&stored, run, e));
    status st = config_from_json(&before, stored, NULL, run, NULL, 0, e);
    json_decref(stored);
    if (st != ST_OK) return st;
    if (c->train.precision.compute == CONFIG_PRECISION_AUTO)
        c->train.precision.compute = before->train.precision.compute;
    config_free(before);
    return ST_OK;
}

static status open_session(session *s, config *c, const train_options *opt, dev_kind kind, err *e) {
    *s = (session){.c = c, .opt = opt, .a = arena_new("run")};
    TRY(config_check_supported(c, e));
    if (c->run && !opt->fresh) TRY(adopt_precision(c, c->run, e));
    TRY(dev_open(&s->dev, kind, (int)c->train.threads, e));
    return session_open_model(s, e);
}

/* Takes the run folder: new, or resumed when only free keys differ. */
static status open_folder(session *s, err *e) {
    run_start start;
    TRY(run_open(&s->folder, s->c->run, e));
    TRY(run_prepare(s->folder, s->c, s->opt->fresh, &start, e));
    return run_write_config(s->folder, s->c, e);
}

/* --fork: the newest checkpoint goes on in a new folder, where any key may differ. */
static status fork_run(session *s, err *e) {
    config *c = s->c;
    char *newest;
    int64_t step;
    if (run_is_run(s->opt->fork)) {
        err_set(e, ST_USAGE, "%s already holds a run", s->opt->fork);
        err_where(e, "--fork %s", s->opt->fork);
        return err_hint(e, "fork into a new folder");
    }
    TRY(checkpoint_find_newest(s->a, c->run, &newest, &step, NULL, NULL, e));
    if (!newest) {
        err_set(e, ST_USAGE, "%s has no checkpoint to fork from", c->run);
        err_where(e, "run (%s)", config_where(c, "run"));
        return err_hint(e, "train it first, or set run=%s to start there", s->opt->fork);
    }
    TRY(checkpoint_copy(newest, s->opt->fork, e));
    c->run = arena_strdup(c->memory, s->opt->fork);
    return ST_OK;
}

/* What happened after the checkpoint that is resumed will happen again. */
static status open_metrics(session *s, err *e) {
    TRY(metrics_truncate_after(s->c->run, s->at.step, e));
    return metrics_open(&s->metrics, s->c->run, e);
}

static status write_plan(session *s, err *e) {
    json_t *o = plan_json(s->plan, s->c->train.memory_limit);
    status st = run_write_json(s->folder, "plan.json", o, e);
    json_decref(o);
    if (st != ST_OK || !s->opt->on_plan) return st;
    strbuf table = {0};
    plan_describe(s->plan, &table);
    s->opt->on_plan(s->opt->ctx, strbuf_cstr(&table));
    strbuf_free(&table);
    return ST_OK;
}

static status run_session(session *s, err *e) {
    TRY(config_check_train(s->c, e));
    if (s->opt->fork) TRY(fork_run(s, e));
    TRY(session_open_data(s, e));
    TRY(session_make_plan(s, e));
    TRY(open_folder(s, e));
    TRY(write_plan(s, e));
    TRY(session_start_state(s, e));
    TRY(open_metrics(s, e));
    return loop_run(s, e);
}

status train_run(config *c, const train_options *opt, err *e) {
    session s;
    status st = open_session(&s, c, opt, DEV_CPU, e);
    if (st == ST_OK) st = run_session(&s, e);
    if (s.metrics) {
        err report = {0};
        metrics_close(s.metrics);
        s.metrics = NULL;
        if (report_write(c->run, &report) != ST_OK)
            log_warn("report.html was not written: %s", report.message);
    }
    session_close(&s);
    return st;
}

status train_plan(config *c, dev *meta, plan **out, err *e) {
    static const train_options none = {0};
    session s = {.c = c, .opt = &none, .a = arena_new("plan")};
    s.dev = meta;
    status st = config_check_supported(c, e);
    if (st == ST_OK) st = session_open_model(&s, e);
    if (st == ST_OK && s.tok) st = samples_encode(&s, e);
    if (st == ST_OK) st = session_make_plan(&s, e);
    if (s.plan) *out = s.plan;
    s.plan = NULL;
    s.dev = NULL;
    session_close(&s);
    return st;
}
