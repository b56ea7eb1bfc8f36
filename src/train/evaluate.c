/* Tasks of evaluation at checkpoints, through programs of the run's own plan.
 *
 * The weights of a step are evaluated when its checkpoint is saved, and before the next step: what
 * is measured is what the checkpoint holds, and `athanor eval` gives the same numbers for it. Nothing
 * that training reads is changed.
 *
 *   RUN/eval/step-N.json  {step, digest, precision, limit, results{task{...}}}; written again after
 *                         each task, so what is there is whole
 *   RUN/eval/step-N.part  scores and answers of the task that is under way (eval/journal.h)
 *
 * A run that goes on from a checkpoint evaluates first what is missing of it. The digest of the
 * weights says whether a file is of these weights: after a rewind they are others.
 *
 * Ranks: each scores a part of the requests. Where no rank has all weights (ZeRO 3, tensor parallel)
 * all of them score every request, since each pass needs all of them. Answers are written by every
 * rank, and all get the same.
 *
 * Reading order: evaluation_open, evaluation_run, evaluate_task. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/metric.h"
#include "eval/run.h"
#include "train/events.h"

/* ---- opening ---- */

static status check_task(const setup *u, int i, err *e) {
    const eval_task *t = &u->tasks.list[i];
    for (int k = 0; k < i; k++)
        if (strcmp(u->tasks.list[k].name, t->name) == 0)
            return config_error(u->c, e, "eval.tasks", "two tasks have the name %s", t->name);
    if (!u->c->eval.lock_test || !t->test_split) return ST_OK;
    config_error(u->c, e, "eval.tasks",
                 "the task %s is of a test split, which eval.lock_test keeps locked", t->name);
    return err_hint(e,
                    "choose by validation splits; the last judgement is athanor eval's, of a run "
                    "with eval.lock_test=false");
}

static status open_tasks(setup *u, err *e) {
    const config_texts *names = &u->c->eval.tasks;
    eval_source from = {.data = u->c->eval.data, .limit = u->c->eval.limit, .n_few = -1};
    u->tasks.list = xcalloc((size_t)names->n, sizeof *u->tasks.list);
    for (int i = 0; i < names->n; i++) {
        status st = eval_task_open(&u->tasks.list[u->tasks.n++], names->items[i], &from, e);
        if (st != ST_OK) return err_context(e, "eval.tasks[%d]", i);
        TRY(check_task(u, i, e));
        u->tasks.host_bytes += (int64_t)arena_bytes_used(u->tasks.list[i].a);
    }
    return ST_OK;
}

/* The template of the conversations that are learned, as checkpoints have it (teaching.h), by what
 * the config says alone: the plan of a run is made without data. NULL: the tokenizer's own. */
static const char *template_file(const setup *u) {
    for (int i = 0; i < u->course->n_stages; i++) {
        const config *c = u->course->stage[i].c;
        if (c->data.template) return c->data.template;
        for (int k = 0; k < c->data.train.n; k++) {
            char *file = path_join(u->a, c->data.train.items[k].path, "chat_template.jinja");
            if (file_exists(file)) return file;
        }
    }
    return NULL;
}

static status open_template(setup *u, err *e) {
    bool wanted = u->c->eval.chat;
    for (int i = 0; i < u->tasks.n; i++) wanted |= u->tasks.list[i].kind == EVAL_DIALOGUE;
    if (!wanted) return ST_OK;
    status st =
        chat_template_load_open(&u->tasks.template, u->c->tokenizer, NULL, template_file(u), e);
    return st == ST_OK ? st : err_context(e, "eval.tasks");
}

/* What the tasks need when they are asked of the model of a stage. */
static status plan_tasks(setup *u, int number, err *e) {
    open_model m;
    int64_t cache_tok;
    open_model_borrow(&m, &u->models[number], u->tok, setup_compute(u->c), NULL, NULL, NULL);
    eval_options opt = {.template = u->tasks.template, .chat = u->c->eval.chat};
    TRY(eval_plan(&m, u->tasks.list, u->tasks.n, &opt, &cache_tok, e));
    if (m.score.longest > u->tasks.score.longest) u->tasks.score = m.score;
    if (cache_tok > u->tasks.cache_tok) u->tasks.cache_tok = cache_tok;
    open_model_close(&m);
    return ST_OK;
}

static status check_every(const config *c, err *e) {
    int64_t every = c->eval.tasks_every, saves = c->checkpoint.every;
    if (every == 0 || (saves > 0 && every % saves == 0)) return ST_OK;
    config_error(c, e, "eval.tasks_every",
                 "checkpoints are evaluated, and %ld is no multiple of checkpoint.every, which is "
                 "%ld",
                 (long)every, (long)saves);
    return err_hint(e, saves ? "eval.tasks_every=%ld" : "eval.tasks_every=0: at the end",
                    (long)(saves ? (every / saves + 1) * saves : 0));
}

status evaluation_open(setup *u, err *e) {
    if (u->c->eval.tasks.n == 0) return ST_OK;
    if (!u->tok) {
        config_error(u->c, e, "eval.tasks", "tasks are text, and the run has no tokenizer");
        return err_hint(e, "name it: tokenizer=tok.json");
    }
    TRY(check_every(u->c, e));
    TRY(open_tasks(u, e));
    TRY(open_template(u, e));
    for (int i = 0; i < u->course->n_stages; i++) TRY(plan_tasks(u, i, e));
    return ST_OK;
}

void evaluation_close(setup *u) {
    for (int i = 0; i < u->tasks.n; i++) eval_task_close(&u->tasks.list[i]);
    free(u->tasks.list);
    chat_template_free(u->tasks.template);
}

/* ---- one checkpoint ---- */

typedef struct evaluating {
    session *s;
    arena *a;
    char name[64]; /* eval/step-N */
    uint64_t digest;
    const char *precision;
    json_t *kept; /* RUN/eval/step-N.json; on rank 0 */
    json_t *told; /* tasks whose events are in metrics.jsonl already; on rank 0 */
} evaluating;

static char *path_of(const evaluating *v, const char *end) {
    return arena_printf(v->a, "%s/%s%s", v->s->setup.c->run, v->name, end);
}

static json_t *results_of(const evaluating *v) {
    return json_object_get(v->kept, "results");
}

static json_t *empty_record(const evaluating *v) {
    return json_pack("{s:I,s:o,s:s,s:I,s:{}}", "step", (json_int_t)v->s->at.step, "digest",
                     json_hash(v->digest), "precision", v->precision, "limit",
                     (json_int_t)v->s->setup.c->eval.limit, "results");
}

/* Reads what is known of these weights. */
static status read_record(evaluating *v, err *e) {
    json_t *fresh = empty_record(v);
    status st =
        run_read_json(&v->kept, v->s->setup.c->run, arena_printf(v->a, "%s.json", v->name), e);
    bool same = st == ST_OK && json_is_object(results_of(v));
    static const char *const keys[] = {"digest", "precision", "limit"};
    for (int i = 0; i < ARRAY_LEN(keys) && same; i++)
        same = json_equal(json_object_get(v->kept, keys[i]), json_object_get(fresh, keys[i]));
    if (!same) {
        json_decref(v->kept);
        v->kept = json_incref(fresh);
    }
    json_decref(fresh);
    return st;
}

static status take_told(void *user, const json_t *event, err *e) {
    evaluating *v = user;
    (void)e;
    if (metrics_is(event, "eval") && metrics_int(event, "step", -1) == v->s->at.step)
        json_object_set(v->told, metrics_text(event, "task"), json_true());
    return ST_OK;
}

static status begin(evaluating *v, err *e) {
    const char *run = v->s->setup.c->run;
    TRY(file_make_dirs(path_join(v->a, run, "eval"), e));
    TRY(read_record(v, e));
    v->told = json_object();
    return metrics_read(run, METRICS_LAST_STEP, take_told, v, e);
}

static void sum_over_ranks(void *ctx, int64_t *x, int64_t n) {
    session *s = ctx;
    comm_sum_i64(s->setup.peers.m.axis[MESH_WORLD], x, n);
}

static bool is_stopped(void *ctx) {
    session *s = ctx;
    return peers_any(&s->setup.peers, s->opt->stop && *s->opt->stop);
}

static void tell_progress(void *ctx, const eval_task *t, int64_t done, int64_t all) {
    session *s = ctx;
    if (s->opt->on_task && setup_leads(&s->setup)) s->opt->on_task(s->opt->ctx, t->name, done, all);
}

static eval_options options_of(session *s, eval_journal *j) {
    setup *u = &s->setup;
    int ranks = peers_ranks(&u->peers);
    eval_options opt = {.template = u->tasks.template,
                        .chat = u->c->eval.chat,
                        .journal = j,
                        .stops = is_stopped,
                        .progress = tell_progress,
                        .ctx = s};
    opt.ranks =
        (eval_ranks){peers_rank(&u->peers), execute_needs_all(u) ? 0 : ranks, sum_over_ranks, s};
    if (ranks == 1) opt.interrupt = s->opt->stop; /* several must stop at the same place */
    return opt;
}

/* Other ranks read the journal as well, so that all compute the same requests. */
static status open_journal(const evaluating *v, eval_journal *j, err *e) {
    setup *u = &v->s->setup;
    char *path = path_of(v, ".part");
    uint64_t key[2] = {v->digest, hash_bytes(v->precision, strlen(v->precision))};
    uint64_t model = hash_bytes(key, sizeof key);
    status st = setup_leads(u) ? eval_journal_open(j, path, model, e)
                               : eval_journal_read(j, path, model, e);
    return peers_agree(&u->peers, st, e);
}

static status compute(evaluating *v, int i, err *e) {
    setup *u = &v->s->setup;
    eval_journal j = {0};
    score_stats unused;
    open_model m;
    int number = course_last_stage(u->course, v->s->at.step);
    status st = open_journal(v, &j, e);
    eval_options opt = options_of(v->s, &j);
    eval_task_reset(&u->tasks.list[i]);
    open_model_borrow(&m, &u->models[number], u->tok, u->plan->spec.compute, u->plan,
                      execute_replay, v->s);
    if (v->s->stage.chat.stop >= 0) m.eos = &v->s->stage.chat.stop;
    const tok_ids *end = &v->s->stage.chat.end;
    for (int64_t k = 0; k < end->n; k++) generation_add_end(&m.end, end->id[k]);
    if (st == ST_OK) st = eval_run(&m, &u->tasks.list[i], 1, &opt, &unused, e);
    open_model_close(&m);
    eval_journal_close(&j);
    return st;
}

static status keep_result(evaluating *v, const eval_task *t, err *e) {
    json_object_set_new(results_of(v), t->name, eval_result_json(t));
    return run_write_json(v->s->folder, arena_printf(v->a, "%s.json", v->name), v->kept, e);
}

static status tell_result(evaluating *v, const char *task, double seconds, err *e) {
    if (!v->kept || json_object_get(v->told, task)) return ST_OK;
    return events_eval(v->s, task, json_object_get(results_of(v), task), v->precision, seconds, e);
}

static status evaluate_task(evaluating *v, int i, err *e) {
    setup *u = &v->s->setup;
    const eval_task *t = &u->tasks.list[i];
    int64_t began = clock_now_ns();
    if (!peers_first(&u->peers, v->kept && json_object_get(results_of(v), t->name))) {
        TRY(compute(v, i, e));
        TRY(peers_agree(&u->peers, v->kept ? keep_result(v, t, e) : ST_OK, e));
    }
    return peers_agree(&u->peers, tell_result(v, t->name, clock_since_s(began), e), e);
}

static status evaluate_all(evaluating *v, err *e) {
    setup *u = &v->s->setup;
    TRY(setup_digest(u, &v->digest, e));
    TRY(peers_agree(&u->peers, setup_leads(u) ? begin(v, e) : ST_OK, e));
    for (int i = 0; i < u->tasks.n; i++) TRY(evaluate_task(v, i, e));
    if (setup_leads(u)) unlink(path_of(v, ".part"));
    return ST_OK;
}

static bool is_due(const session *s) {
    int64_t every = s->setup.c->eval.tasks_every, step = s->at.step;
    if (s->setup.tasks.n == 0 || step == 0) return false;
    bool last = step >= s->setup.course->total_steps ||
                early_stop_is_due(&s->watch.stop, s->setup.c->eval.patience);
    return every == 0 || step % every == 0 || last;
}

status evaluation_run(session *s, err *e) {
    setup *u = &s->setup;
    if (!is_due(s)) return ST_OK;
    evaluating v = {.s = s, .a = arena_new("evaluation")};
    v.precision = open_model_precision(u->plan->spec.compute);
    snprintf(v.name, sizeof v.name, "eval/step-%ld", (long)s->at.step);
    comm_at(u->peers.m.world, "the evaluation", s->at.step);
    plan_select(u->plan, course_last_stage(u->course, s->at.step)); /* not the coming one */
    status st = evaluate_all(&v, e);
    plan_select(u->plan, s->stage.number);
    json_decref(v.kept);
    json_decref(v.told);
    arena_free(v.a);
    return st;
}
