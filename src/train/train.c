/* The public entry points: open in order of cost (config, model, data, plan), then run. */
#include "train/train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/checkpoint/checkpoint.h"
#include "run/config/config_device.h"
#include "run/report/report.h"
#include "train/ranks/preflight.h"
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

static status open_session(session *s, config *c, const train_options *opt, err *e) {
    *s = (session){.c = c, .opt = opt, .a = arena_new("run")};
    TRY(config_check_supported(c, e));
    TRY(peers_open(&s->peers, c, opt->world, e));
    s->attempt = (uint64_t)peers_first(
        &s->peers, (int64_t)mix64((uint64_t)clock_now_ns() ^ (uint64_t)getpid() << 40));
    if (c->run && !opt->fresh) TRY(adopt_precision(c, c->run, e));
    TRY(config_open_device(c, &s->dev, e));
    return session_open_tokenizer(s, e);
}

/* Takes the run folder: new, or resumed when only free keys differ. */
static status take_folder(session *s, err *e) {
    run_start start;
    int begun = stage_data_begun(s->data.record);
    TRY(run_open(&s->folder, s->c->run, e));
    TRY(run_prepare(s->folder, s->c, begun ? begun - 1 : 0, s->opt->fresh, &start, e));
    /* A fork without its origin would go on elsewhere: no run without this record. */
    if (s->opt->fork) TRY(run_write_json(s->folder, "data.json", s->data.record, e));
    return run_write_config(s->folder, s->c, e);
}

static status open_folder(session *s, err *e) {
    TRY(peers_agree(&s->peers, ST_OK, e)); /* all have looked at what was there */
    return peers_agree(&s->peers, session_leads(s) ? take_folder(s, e) : ST_OK, e);
}

/* --fork: the newest checkpoint goes on in a new folder, where any key may differ. */
static status fork_run(session *s, course_origin *origin, err *e) {
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
        config_locate(c, "run", e);
        return err_hint(e, "train it first, or set run=%s to start there", s->opt->fork);
    }
    TRY(stage_data_read(&s->data.record, c->run, e));
    TRY(state_read_origin(newest, origin, e));
    TRY(peers_agree(&s->peers, ST_OK, e)); /* all have found it */
    status st = session_leads(s) ? checkpoint_copy(newest, s->opt->fork, e) : ST_OK;
    TRY(peers_agree(&s->peers, st, e));
    c->run = arena_strdup(c->memory, s->opt->fork);
    return ST_OK;
}

/* What happened after the checkpoint that is resumed will happen again. */
static status open_metrics(session *s, err *e) {
    if (!session_leads(s)) return ST_OK;
    TRY(metrics_truncate_after(s->c->run, s->at.step, e));
    return metrics_open(&s->metrics, s->c->run, e);
}

/* What the other ranks need is for rank 0 to tell. */
static void share_peaks(session *s) {
    int n = peers_ranks(&s->peers);
    int64_t *peak = ARENA_ARRAY(s->a, int64_t, n);
    plan_class *needs = ARENA_ARRAY(s->a, plan_class, n);
    peak[peers_rank(&s->peers)] = s->plan->peak_bytes;
    peers_share_count(&s->peers, peak);
    for (int i = 0; i < n; i++) needs[i] = (plan_class){1, peak[i]};
    plan_set_classes(s->plan, needs, n);
}

static status write_plan(session *s, err *e) {
    if (!session_leads(s)) return ST_OK;
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

/* What the run's stages began with; nothing where it is new. */
static status open_record(session *s, course_origin *origin, err *e) {
    if (s->opt->fork) return fork_run(s, origin, e);
    bool goes_on = !s->opt->fresh && run_is_run(s->c->run);
    if (goes_on) {
        TRY(stage_data_read(&s->data.record, s->c->run, e));
        *origin = stage_data_origin(s->data.record);
    } else
        s->data.record = json_pack("{s:[]}", "stages");
    return ST_OK;
}

/* Sequences in a pass over the data, where train.epochs asks for them. */
static status count_sequences(session *s, uint64_t *n, err *e) {
    *n = 0;
    if (s->c->train.epochs <= 0) return ST_OK;
    stage_data look = s->data;
    look.record = json_deep_copy(s->data.record);
    loader *l = NULL;
    bool is_new;
    status st = stage_data_open(&look, s->c, 0, &l, &is_new, e);
    if (st == ST_OK) *n = loader_sequences(l);
    loader_close(l);
    json_decref(look.record);
    return st;
}

/* A fork enters its own stage anew: its data may be others. */
static void forget_stages(session *s, const course_origin *origin) {
    json_t *stages = json_object_get(s->data.record, "stages");
    size_t keep = (size_t)course_part_of(s->course, origin->step + 1)->stage;
    while (json_array_size(stages) > keep) json_array_remove(stages, json_array_size(stages) - 1);
    stage_data_set_origin(s->data.record, origin);
}

/* Every stage that is still to be trained, before anything is written. The data of a new run stay
 * open: they come next. */
static status probe_data(session *s, err *e) {
    int begun = stage_data_begun(s->data.record);
    for (int i = begun; i < s->course->n_stages; i++) {
        const course_stage *k = &s->course->stage[i];
        status st = i == 0 ? session_open_data(s, 0, e) : stage_data_probe(&s->data, k->c, e);
        if (st != ST_OK && s->c->stages.n) err_context(e, "stage %s", k->name);
        TRY(st);
    }
    return ST_OK;
}

static status open_course(session *s, err *e) {
    course_origin origin = {0};
    uint64_t sequences;
    TRY(open_record(s, &origin, e));
    TRY(count_sequences(s, &sequences, e));
    TRY(session_open_course(s, sequences, &origin, e));
    if (s->opt->fork) forget_stages(s, &origin);
    return probe_data(s, e);
}

static status check_layout(session *s, err *e) {
    if (peers_ranks(&s->peers) == 1 || !s->c->parallel.verify) return ST_OK;
    return peers_agree(&s->peers, preflight_check(s->c, &s->peers.m, e), e);
}

/* The first step of a run is not like the others. */
static status open_trace(session *s, err *e) {
    if (!s->opt->trace) return ST_OK;
    int64_t first = s->at.step + 2;
    if (first > s->course->total_steps) first = s->at.step + 1;
    return trace_open(&s->trace, s->opt->trace, first, first + s->opt->trace_steps - 1, &s->peers,
                      e);
}

/* Shards hold texts: a sample is one sequence of them. */
static status check_samples(const session *s, err *e) {
    if (s->objective->sequences == 1) return ST_OK;
    config_error(s->c, e, "train.objective",
                 "shards hold texts, not samples of %d sequences, from which %s learns",
                 s->objective->sequences, s->objective->name);
    return err_hint(e, "train.objective=lm learns from them");
}

static status run_session(session *s, err *e) {
    TRY(config_check_train(s->c, e));
    TRY(check_samples(s, e));
    TRY(open_course(s, e));
    TRY(samples_encode(s, e));
    TRY(peers_agree(&s->peers, session_make_plan(s, e), e)); /* they may need unequally much */
    TRY(check_layout(s, e));
    TRY(open_folder(s, e));
    share_peaks(s);
    TRY(peers_agree(&s->peers, write_plan(s, e), e));
    TRY(session_start_state(s, e));
    if (s->c->checkpoint.upload && session_leads(s))
        s->upload = upload_new(s->c->run, s->c->checkpoint.upload);
    TRY(peers_agree(&s->peers, open_metrics(s, e), e));
    TRY(open_trace(s, e));
    return loop_run(s, e);
}

status train_run(config *c, const train_options *opt, err *e) {
    session s;
    status st = open_session(&s, c, opt, e);
    if (st == ST_OK) st = run_session(&s, e);
    if (s.metrics) {
        err report = {0};
        metrics_close(s.metrics);
        s.metrics = NULL;
        if (report_write(c->run, &report) != ST_OK)
            log_warn("report.html was not written: %s", report.message);
    }
    if (st != ST_OK && st != ST_STOPPED && opt->world) comm_fail(opt->world, e);
    session_close(&s);
    return st;
}

/* The length decides whether saves come before the end, which takes memory. Where the data cannot
 * be read yet, the run is planned for one step. */
static uint64_t sequences_if_there(session *s) {
    uint64_t n = 0;
    if (!s->tok) return 0;
    s->data.record = json_pack("{s:[]}", "stages");
    return count_sequences(s, &n, NULL) == ST_OK ? n : 0;
}

/* The plan of tensor-parallel rank t, of the first copy of the weights or of another. Kept in *out
 * if it is the largest so far. */
static status plan_rank(session *s, int t, bool first_copy, plan **out, int64_t *peak, err *e) {
    err why = {0};
    mesh_place(&s->peers.m, &s->peers.m.shape, t);
    s->peers.first_copy = first_copy;
    status st = session_make_plan(s, &why);
    plan *p = s->plan;
    s->plan = NULL;
    if (p) *peak = p->peak_bytes;
    if (p && *out && p->peak_bytes <= (*out)->peak_bytes) {
        plan_free(p);
        return ST_OK;
    }
    plan_free(*out);
    *out = p;
    if (st != ST_OK && e) *e = why;
    return st;
}

/* Ranks differ where tensor-parallel ones have unequal parts of the vocabulary, and replicas of the
 * weights are not saved; the plan is that of the largest. */
static status plan_ranks(session *s, plan **out, err *e) {
    int tp = s->peers.m.size[MESH_TP], all = peers_ranks(&s->peers);
    int copy = peers_copy_ranks(&s->peers, s->c);
    plan_class *needs = ARENA_ARRAY(s->a, plan_class, 2 * tp);
    status st = ST_OK;
    for (int i = 0; i < 2 * tp; i++) {
        bool first = i < tp;
        needs[i].ranks = (first ? copy : all - copy) / tp;
        if (needs[i].ranks == 0) continue;
        status of_this = plan_rank(s, i % tp, first, out, &needs[i].peak_bytes, e);
        if (of_this != ST_OK) st = of_this;
        if (!*out) return st;
    }
    plan_set_classes(*out, needs, 2 * tp);
    return st;
}

status train_plan(config *c, dev *meta, plan **out, err *e) {
    static const train_options none = {0};
    session s = {.c = c, .opt = &none, .a = arena_new("plan")};
    s.dev = meta;
    status st = config_check_supported(c, e);
    if (st == ST_OK) st = peers_place(&s.peers, c, e);
    if (st == ST_OK) st = session_open_tokenizer(&s, e);
    if (st == ST_OK && s.tok) st = samples_encode(&s, e);
    if (st == ST_OK) st = session_open_course(&s, sequences_if_there(&s), NULL, e);
    *out = NULL;
    if (st == ST_OK) st = plan_ranks(&s, out, e);
    s.dev = NULL;
    session_close(&s);
    return st;
}
