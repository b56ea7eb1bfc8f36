/* The public entry points: open in order of cost (config, model, data, plan), then run. */
#include "train/train.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "dev/cuda.h"
#include "io/checkpoint/checkpoint.h"
#include "run/config/config_device.h"
#include "run/report/report.h"
#include "train/events.h"
#include "train/layouts/matrix.h"
#include "train/lint.h"
#include "train/objective/objective.h"
#include "train/same_weights.h"
#include "train/save/fork.h"
#include "train/save/origins.h"
#include "train/save/state.h"

/* Weights that are read again when a run goes on (those beside adapters, those of a reference) are
 * those it began with: another checkpoint in their place would make it another run unseen. */
static status need_same_weights(const config *c, const config *before, const char *run, err *e) {
    const json_t *then = json_object_get(before->model, "from");
    bool adapts = config_adapts(c);
    bool again = adapts || (objective_of(c)->reference && !c->train.reference);
    if (!again || !config_is_resolved(c, "model.from", then) ||
        json_equal(then, json_object_get(c->model, "from")))
        return ST_OK;
    config_error(c, e, "model.from", "%s, with which %s began, is gone, and its %s needs it",
                 json_string_value(then), run, adapts ? "adapter" : "reference");
    return err_hint(e,
                    "put it back, or add --fresh to start anew; checkpoint.keep of the other run "
                    "says how many of its checkpoints stay");
}

/* What was looked up when the run began still holds, also on another machine. */
static status keep_resolved(config *c, choice *k, const train_options *opt, bool tells, err *e) {
    const char *run = c->run;
    config *before = NULL;
    if (run && !opt->fresh) TRY(run_load_begun(&before, run, e));
    if (!before) return ST_OK;
    const json_t *newest = json_object_get(c->model, "from");
    char *told = json_is_string(newest) ? xstrdup(json_string_value(newest)) : NULL;
    config_keep_resolved(c, before);
    const char *from = json_string_value(json_object_get(c->model, "from"));
    if (tells && told && from && strcmp(told, from) != 0)
        log_info("%s began with %s, and keeps to that", run, from);
    free(told);
    status st = need_same_weights(c, before, run, e);
    if (st == ST_OK && opt->fork) st = fork_check_keys(c, before, e);
    config_free(before);
    return st != ST_OK ? st : choice_read(k, run, e);
}

/* ---- ranks that were started alike ---- */

/* What all ranks must have been told. */
static char *words_of(const config *c, const train_options *opt) {
    json_t *o = json_pack("{s:s, s:b, s:o, s:o, s:o}", "version", ATHANOR_VERSION, "fresh",
                          opt->fresh, "fork", json_cstr(opt->fork), "trace", json_cstr(opt->trace),
                          "config", config_to_json(c));
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

static status name_key(const config *c, const json_t *first, err *e) {
    config *other;
    TRY(config_from_json(&other, first, NULL, "the config of rank 0", NULL, 0, e));
    json_t *rows = config_diff(other, c), *row = json_array_get(rows, 0);
    status st = ST_OK;
    if (row) {
        strbuf here = {0}, there = {0};
        const char *key = json_string_value(json_object_get(row, "key"));
        json_format(&here, json_object_get(row, "b"), 0);
        json_format(&there, json_object_get(row, "a"), 0);
        st = config_error(c, e, key, "%s is %.200s, but %.200s on rank 0", key, strbuf_cstr(&here),
                          strbuf_cstr(&there));
        strbuf_free(&here);
        strbuf_free(&there);
    }
    json_decref(rows);
    config_free(other);
    return st;
}

/* What differs from rank 0's words. */
static status name_word(const config *c, const char *first, err *e) {
    json_t *o = json_loads(first, 0, NULL);
    const char *version = json_string_value(json_object_get(o, "version"));
    status st = ST_OK;
    if (!version || strcmp(version, ATHANOR_VERSION) != 0)
        st = err_at(e, ST_USAGE, "command line", "it is athanor %s, but rank 0 is athanor %.40s",
                    ATHANOR_VERSION, version ? version : "?");
    if (st == ST_OK) st = name_key(c, json_object_get(o, "config"), e);
    if (st == ST_OK)
        st = err_at(e, ST_USAGE, "command line",
                    "its options --fresh, --fork and --trace are not those of rank 0");
    json_decref(o);
    return err_hint(e, "start all ranks with the same program, command and config");
}

/* Ranks with other keys would train another thing each, unseen wherever their collectives fit. */
static status check_alike(const peers *p, const config *c, const train_options *opt, err *e) {
    if (peers_ranks(p) == 1) return ST_OK;
    char *own = words_of(c, opt);
    int64_t n = peers_first(p, (int64_t)strlen(own));
    char *first = xcalloc((size_t)n + 1, 1);
    if (peers_rank(p) == 0) memcpy(first, own, (size_t)n);
    peers_tell(p, first, n);
    bool told = comm_check(p->m.world, NULL) == ST_OK;
    status st = told && strcmp(first, own) != 0 ? name_word(c, first, e) : ST_OK;
    free(own);
    free(first);
    return peers_agree(p, st, e);
}

static status open_session(session *s, config *c, const train_options *opt, err *e) {
    *s = (session){.opt = opt, .setup = {.c = c, .a = arena_new("run")}};
    TRY(config_check_supported(c, e));
    TRY(peers_open(&s->setup.peers, c, opt->world, e));
    TRY(check_alike(&s->setup.peers, c, opt, e));
    s->setup.attempt = (uint64_t)peers_first(
        &s->setup.peers, (int64_t)mix64((uint64_t)clock_now_ns() ^ (uint64_t)getpid() << 40));
    s->setup.choice.measures = true;
    TRY(keep_resolved(c, &s->setup.choice, opt, setup_leads(&s->setup), e));
    TRY(config_open_device(c, s->setup.peers.m.world, &s->setup.dev, e));
    return session_open(s, e);
}

/* Takes the run folder: new, or resumed when only free keys differ. */
static status take_folder(session *s, err *e) {
    setup *u = &s->setup;
    run_start start = RUN_START_NEW;
    int begun = stage_data_begun(s->data.record);
    TRY(run_open(&s->folder, u->c->run, e));
    if (!s->forked) /* else it is no run, but may hold what an interrupted fork has left */
        TRY(run_prepare(s->folder, u->c, begun ? begun - 1 : 0, s->opt->fresh, &start, e));
    /* Without its checkpoint and its origin a fork would go on elsewhere: the config, which makes
     * the folder a run, comes last. */
    if (s->forked) TRY(checkpoint_copy(s->forked, u->c->run, e));
    if (s->forked) TRY(run_write_json(s->folder, "data.json", s->data.record, e));
    if (u->choice.record && start == RUN_START_NEW)
        TRY(run_write_json(s->folder, "machine.json", u->choice.record, e));
    return run_write_config(s->folder, u->c, e);
}

/* Rank 0 has made it a run. A file system over a network may show that late. */
static status see_folder(const setup *u, err *e) {
    static const double LATE_S = 60;
    const struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};
    int64_t since = clock_now_ns();
    while (!run_is_run(u->c->run)) {
        if (clock_since_s(since) > LATE_S || comm_check(u->peers.m.world, NULL) != ST_OK) {
            config_error(u->c, e, "run", "%s, which rank 0 has made, is not there", u->c->run);
            return err_hint(
                e, "all ranks need this folder on one file system, and one working folder");
        }
        nanosleep(&nap, NULL);
    }
    return ST_OK;
}

static status open_folder(session *s, err *e) {
    setup *u = &s->setup;
    TRY(peers_agree(&u->peers, ST_OK, e)); /* until here all ranks have only read */
    TRY(peers_agree(&u->peers, setup_leads(u) ? take_folder(s, e) : ST_OK, e));
    return peers_agree(&u->peers, see_folder(u, e), e);
}

/* --fork: the newest checkpoint goes on in a new folder, where any key may differ. Here it is only
 * found: the folder is made when nothing is left to be refused. */
static status find_fork(session *s, course_origin *origin, err *e) {
    config *c = s->setup.c;
    int64_t step;
    if (run_is_run(s->opt->fork)) {
        err_set(e, ST_USAGE, "%s already holds a run", s->opt->fork);
        err_where(e, "--fork %s", s->opt->fork);
        return err_hint(e, "fork into a new folder");
    }
    TRY(checkpoint_find_newest(s->setup.a, c->run, &s->forked, &step, NULL, NULL, e));
    if (!s->forked) {
        err_set(e, ST_USAGE, "%s has no checkpoint to fork from", c->run);
        config_locate(c, "run", e);
        return err_hint(e, "train it first, or set run=%s to start there", s->opt->fork);
    }
    TRY(stage_data_read(&s->data.record, c->run, e));
    TRY(state_read_origin(s->forked, origin, e));
    c->run = arena_strdup(c->memory, s->opt->fork);
    return ST_OK;
}

/* Rank 0 prints the memory that each rank needs, so it has to know. */
static void share_peaks(setup *u) {
    int n = peers_ranks(&u->peers);
    int64_t *peak = ARENA_ARRAY(u->a, int64_t, n);
    plan_class *needs = ARENA_ARRAY(u->a, plan_class, n);
    peak[peers_rank(&u->peers)] = u->plan->peak_bytes;
    peers_share_count(&u->peers, peak);
    for (int i = 0; i < n; i++) needs[i] = (plan_class){1, peak[i]};
    plan_set_classes(u->plan, needs, n);
}

static status write_plan(session *s, err *e) {
    setup *u = &s->setup;
    if (!setup_leads(u)) return ST_OK;
    json_t *o = plan_json(u->plan, u->c->train.memory_limit);
    if (dev_get_kind(u->dev) == DEV_CUDA)
        json_object_set_new(json_object_get(o, "memory"), "device_baseline_bytes",
                            json_integer((json_int_t)cuda_baseline_bytes(u->dev)));
    status st = run_write_json(s->folder, "plan.json", o, e);
    json_decref(o);
    if (st != ST_OK || !s->opt->on_plan) return st;
    strbuf table = {0};
    plan_describe(u->plan, &table);
    s->opt->on_plan(s->opt->ctx, strbuf_cstr(&table));
    strbuf_free(&table);
    return ST_OK;
}

/* The record of the run's data; an empty one for a new run. */
static status open_record(session *s, course_origin *origin, err *e) {
    if (s->opt->fork) return find_fork(s, origin, e);
    bool goes_on = !s->opt->fresh && run_is_run(s->setup.c->run);
    if (goes_on) {
        TRY(stage_data_read(&s->data.record, s->setup.c->run, e));
        *origin = stage_data_origin(s->data.record);
    } else
        s->data.record = json_pack("{s:[]}", "stages");
    return ST_OK;
}

/* Adapters are of the model beside them, which stays. */
static status check_fork(const session *s, err *e) {
    const setup *u = &s->setup;
    if (!s->forked || u->lora.adapters.rank) return ST_OK;
    return fork_check_model(u->c, &u->models[0], s->forked, e);
}

/* A fork begins its current stage again, whose data may be others; it forgets that stage and later
 * ones. */
static void forget_stages(session *s, const course_origin *origin) {
    json_t *stages = json_object_get(s->data.record, "stages");
    size_t keep = (size_t)course_part_of(s->setup.course, origin->step + 1)->stage;
    while (json_array_size(stages) > keep) json_array_remove(stages, json_array_size(stages) - 1);
    stage_data_set_origin(s->data.record, origin);
}

/* Looks at the data of every stage that is still to be trained, before anything else is written than sets that are made of
 * files. The data of a new run's first stage stay open. */
static status probe_data(session *s, err *e) {
    setup *u = &s->setup;
    int begun = stage_data_begun(s->data.record);
    for (int i = begun; i < u->course->n_stages; i++) {
        const course_stage *k = &u->course->stage[i];
        status st = i == 0 ? stage_open_data(&s->stage, u, &s->data, 0, e)
                           : stage_data_probe(&s->data, k->c, e);
        if (st != ST_OK && u->c->stages.n) err_context(e, "stage %s", k->name);
        TRY(st);
    }
    return ST_OK;
}

/* Whether files have to be made sets of, by what this rank sees. */
static bool makes_sets(const session *s, const course *k) {
    bool makes = false;
    for (int i = 0; i < k->n_stages && !makes; i++)
        makes = stage_data_makes(&s->data, k->stage[i].c);
    return makes;
}

/* Before sets are made of files: plans the run, whose length may not be known yet, so that what can be refused without them,
 * a layout say, is, and leaves no folder. */
static status plan_without_data(session *s, const course_origin *origin, err *e) {
    setup *u = &s->setup;
    TRY(session_open_course(s, 0, origin, e));
    status st = same_weights_check(u->c, &u->models[0], e); /* no stage changes such keys */
    if (st == ST_OK && peers_any(&u->peers, makes_sets(s, u->course))) {
        u->knows_reference = reference_is_kept(u);
        st = peers_agree(&u->peers, setup_make_plan(u, e), e);
        plan_free(u->plan);
    }
    course_free(u->course);
    u->plan = NULL, u->course = NULL, s->data.course = NULL;
    return st;
}

static status open_course(session *s, err *e) {
    course_origin origin = {0};
    uint64_t sequences;
    TRY(open_record(s, &origin, e));
    s->data.run = s->setup.c->run;
    s->data.speaks = setup_leads(&s->setup);
    TRY(plan_without_data(s, &origin, e));
    s->data.builds = true;
    TRY(stage_data_count(&s->data, s->setup.c, &sequences, e));
    TRY(session_open_course(s, sequences, &origin, e));
    TRY(check_fork(s, e));
    if (s->opt->fork) forget_stages(s, &origin);
    return probe_data(s, e);
}

static status check_layout(setup *u, err *e) {
    if (peers_ranks(&u->peers) == 1 || !u->c->parallel.verify) return ST_OK;
    return peers_agree(&u->peers, preflight_check(u->c, &u->peers.m, e), e);
}

/* Begins with the second step: the first one is slower (caches are filled). */
static status open_trace(session *s, err *e) {
    if (!s->opt->trace) return ST_OK;
    int64_t first = s->at.step + 2;
    if (first > s->setup.course->total_steps) first = s->at.step + 1;
    return trace_open(&s->trace, s->opt->trace, first, first + s->opt->trace_steps - 1,
                      &s->setup.peers, e);
}

/* ---- weights and state ---- */

static status check_begun(const session *s, err *e) {
    const setup *u = &s->setup;
    int last = course_last_stage(u->course, s->at.step);
    int begun = stage_data_begun(s->data.record);
    bool is_fork = s->at.step == stage_data_origin(s->data.record).step; /* no step of its own */
    if (last < begun || begun == 0 || is_fork) return ST_OK;
    const char *path = arena_printf(u->a, "stages.%d.until", begun - 1);
    config_error(u->c, e, path, "stage %s ends before step %ld, which was trained in it",
                 u->course->stage[begun - 1].name, (long)s->at.step);
    return err_hint(e, "end it at step %ld or later", (long)s->at.step);
}

static status start_state(session *s, err *e) {
    setup *u = &s->setup;
    TRY(setup_commit(u, e));
    status st = setup_leads(u) ? checkpoint_clean(u->c->run, e) : ST_OK;
    TRY(peers_agree(&u->peers, st, e));
    TRY(setup_load_reference(u, &u->models[0], e));
    events_restart(s);
    TRY(state_load_newest(s, e));
    TRY(peers_agree(&u->peers, setup_leads(u) ? origins_open(s, e) : ST_OK, e));
    peers_gather_all(&u->peers);
    return check_begun(s, e);
}

static status look_ahead(const session *s, err *e) {
    const setup *u = &s->setup;
    return lint_check(
        &(lint_run){.c = u->c,
                    .course = u->course,
                    .plan = u->plan,
                    .ranks = peers_ranks(&u->peers),
                    .kind = dev_get_kind(u->dev),
                    .sequences = s->stage.train ? loader_sequences(s->stage.train) : 0,
                    .fresh = s->opt->fresh,
                    .forked_at = stage_data_origin(s->data.record).step},
        e);
}

static status run_session(session *s, err *e) {
    setup *u = &s->setup;
    TRY(config_check_train(u->c, e));
    TRY(open_course(s, e));
    if (setup_leads(u)) course_warn(u->course);
    TRY(samples_encode(u, e));
    u->knows_reference = reference_is_kept(u);
    TRY(evaluation_open(u, e));
    TRY(peers_agree(&u->peers, setup_make_plan(u, e), e)); /* they may need unequally much */
    TRY(peers_agree(&u->peers, setup_leads(u) ? look_ahead(s, e) : ST_OK, e));
    TRY(check_layout(u, e));
    TRY(open_folder(s, e));
    share_peaks(u);
    TRY(peers_agree(&u->peers, write_plan(s, e), e));
    TRY(reference_prepare(s, e));
    TRY(lessons_prepare(s, e));
    TRY(start_state(s, e));
    if (u->c->checkpoint.upload && setup_leads(u))
        s->saving.upload = upload_new(u->c->run, u->c->checkpoint.upload);
    TRY(peers_agree(&u->peers, journal_open(&s->journal, u->c->run, s->at.step, e), e));
    TRY(open_trace(s, e));
    return loop_run(s, e);
}

status train_run(config *c, const train_options *opt, err *e) {
    session s;
    status st = open_session(&s, c, opt, e);
    if (st == ST_OK) st = run_session(&s, e);
    if (s.journal.metrics) {
        err report = {0};
        metrics_close(s.journal.metrics);
        s.journal.metrics = NULL;
        if (report_write(c->run, NULL, &report) != ST_OK)
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
    if (!s->setup.tok) return 0;
    s->data.record = json_pack("{s:[]}", "stages");
    s->data.run = s->setup.c->run;
    return stage_data_count(&s->data, s->setup.c, &n, NULL) == ST_OK ? n : 0;
}

/* Plans rank `rank`, in the first copy of the weights; ranks of other copies need the same without a snapshot. *out keeps
 * the plan that needs most memory so far. */
static status plan_rank(setup *u, int rank, plan **out, int64_t *first, int64_t *other, err *e) {
    err why = {0};
    mesh_place(&u->peers.m, &u->peers.m.shape, rank);
    u->peers.first_copy = true;
    status st = setup_make_plan(u, &why);
    plan *p = u->plan;
    u->plan = NULL;
    if (p) *first = p->peak_bytes;
    if (p) *other = p->arena_bytes;
    if (p && !u->cut && p->spec.cut)
        u->cut = arena_memdup(u->a, p->spec.cut, sizeof *u->cut * (size_t)(p->spec.chunks + 1));
    if (p && *out && p->peak_bytes <= (*out)->peak_bytes) {
        plan_free(p);
        return ST_OK;
    }
    plan_free(*out);
    *out = p;
    if (st != ST_OK && e) *e = why;
    return st;
}

/* Tensor-parallel ranks differ in the rows of tables that they have, where these are not equally many. */
static int kinds_of_tp(const setup *u) {
    int tp = u->peers.m.size[MESH_TP];
    return model_ranks_are_alike(&u->models[0], tp) ? 1 : tp;
}

/* Ranks may need unequally much memory: stages have other layers, tensor-parallel ranks may have unequal
 * parts of tables, and only the first copy of the weights has a snapshot. *out is the plan of the rank
 * that needs most. */
static status plan_ranks(setup *u, plan **out, err *e) {
    int tp = kinds_of_tp(u), all = peers_ranks(&u->peers);
    int kinds = tp * u->peers.m.size[MESH_PP], stride = all / u->peers.m.size[MESH_PP];
    int copy = peers_copy_ranks(&u->peers, u->c);
    plan_class *needs = ARENA_ARRAY(u->a, plan_class, 2 * kinds);
    status st = ST_OK;
    for (int i = 0; i < kinds; i++) {
        plan_class *other = &needs[kinds + i];
        needs[i].ranks = copy / kinds;
        other->ranks = (all - copy) / kinds;
        int rank = i / tp * stride + i % tp;
        status of_this = plan_rank(u, rank, out, &needs[i].peak_bytes, &other->peak_bytes, e);
        if (of_this != ST_OK) st = of_this;
        if (!*out) return st;
    }
    plan_set_classes(*out, needs, 2 * kinds);
    return st;
}

/* s: with its config and options; it is closed. origin: of a fork. */
static status plan_session(session *s, const course_origin *origin, dev *meta, plan **out,
                           course **of, err *e) {
    setup *u = &s->setup;
    u->dev = meta;
    status st = config_check_supported(u->c, e);
    if (st == ST_OK) st = peers_place(&u->peers, u->c, e);
    if (st == ST_OK) st = session_open(s, e);
    if (st == ST_OK && u->tok) st = samples_encode(u, e);
    if (st == ST_OK) st = session_open_course(s, sequences_if_there(s), origin, e);
    if (st == ST_OK) st = check_fork(s, e);
    if (st == ST_OK) st = same_weights_check(u->c, &u->models[0], e);
    if (st == ST_OK) u->knows_reference = reference_is_kept(u);
    if (st == ST_OK) st = evaluation_open(u, e);
    *out = NULL;
    if (st == ST_OK && u->course->knows_length) course_warn(u->course);
    if (st == ST_OK) st = plan_ranks(u, out, e);
    if (*out)
        (*out)->spec.locate = NULL; /* the base's files are closed: who plans again does without */
    u->dev = NULL;
    *of = u->course;
    u->course = NULL;
    session_close(s);
    return st;
}

status train_plan_course(config *c, dev *meta, plan **out, course **of, err *e) {
    static const train_options none = {0};
    json_t *record = NULL;
    *out = NULL;
    *of = NULL;
    if (c->run && run_is_run(c->run)) TRY(stage_data_read(&record, c->run, e));
    course_origin origin = stage_data_origin(record);
    session s = {.opt = &none, .setup = {.c = c, .a = arena_new("plan")}};
    json_decref(record);
    return plan_session(&s, &origin, meta, out, of, e);
}

status train_plan(config *c, dev *meta, plan **out, err *e) {
    course *k;
    status st = train_plan_course(c, meta, out, &k, e);
    course_free(k);
    return st;
}

/* Whether the run in the folder can go on with these keys; its data are looked at when it does. */
static status check_run(const config *c, course_origin *origin, err *e) {
    json_t *record;
    TRY(stage_data_read(&record, c->run, e));
    int begun = stage_data_begun(record);
    *origin = stage_data_origin(record);
    json_decref(record);
    return run_check(c->run, c, begun ? begun - 1 : 0, e);
}

/* What look_ahead finds, without the data. Where the run or its length is not known there is nothing to find. */
static status look_at_plan(const config *c, const train_options *opt, const course *k,
                           const plan *p, dev_kind kind, int64_t forked_at, err *e) {
    int ranks = 0;
    if (!c->run || !k->knows_length) return ST_OK;
    for (int i = 0; i < p->n_classes; i++) ranks += p->classes[i].ranks;
    return lint_check(&(lint_run){.c = c,
                                  .course = k,
                                  .plan = p,
                                  .ranks = ranks,
                                  .kind = kind,
                                  .fresh = opt->fresh,
                                  .forked_at = forked_at},
                      e);
}

status train_plan_start(config *c, const train_options *opt, dev *meta, plan **out, err *e) {
    session s = {.opt = opt, .setup = {.c = c, .a = arena_new("plan")}};
    course_origin origin = {0};
    course *k = NULL;
    *out = NULL;
    status st = keep_resolved(c, &s.setup.choice, opt, true, e);
    if (st == ST_OK && opt->fork) st = find_fork(&s, &origin, e);
    if (st == ST_OK && c->run && !opt->fresh && !opt->fork) st = check_run(c, &origin, e);
    if (st != ST_OK) {
        session_close(&s);
        return st;
    }
    json_decref(s.data.record);
    s.data.record = NULL;
    st = plan_session(&s, &origin, meta, out, &k, e);
    if (st == ST_OK) st = look_at_plan(c, opt, k, *out, dev_get_kind(meta), origin.step, e);
    course_free(k);
    return st;
}
