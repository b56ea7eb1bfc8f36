/* The public entry points: open in order of cost (config, model, data, plan), then run. */
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "run/report.h"
#include "train/session.h"

static status open_session(session *s, config *c, const train_options *opt, dev_kind kind, err *e) {
    *s = (session){.c = c, .opt = opt, .a = arena_new("run")};
    TRY(config_check_supported(c, e));
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
    plan_print(s->plan, &table);
    s->opt->on_plan(s->opt->ctx, strbuf_cstr(&table));
    strbuf_free(&table);
    return ST_OK;
}

static status run_session(session *s, err *e) {
    TRY(config_check_train(s->c, e));
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
