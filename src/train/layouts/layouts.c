#include "train/layouts/layouts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/divisor.h"
#include "base/file.h"
#include "base/strbuf.h"
#include "io/hf/hf_weights.h"
#include "train/axes.h"
#include "train/layouts/trial.h"

void layout_name(const layout *l, char out[LAYOUT_NAME_MAX]) {
    static const char *const recompute[] = {RECOMPUTE_POLICIES(LIST_WORD)};
    static const char *const schedules[] = {CONFIG_SET_PP_SCHEDULE(LIST_WORD)};
    static const char *const kinds[] = {CONTEXT_KINDS(LIST_WORD)};
    static const char *const away[] = {CONFIG_SET_OFFLOAD(LIST_WORD)};
    strbuf b = {0};
    strbuf_printf(&b, "dp%d", l->dp);
    if (l->dp_replicate > 1) strbuf_printf(&b, " replicate%d", l->dp_replicate);
    if (l->zero) strbuf_printf(&b, " zero%d", l->zero);
    if (l->tp > 1)
        strbuf_printf(&b, " tp%d%s%s", l->tp, l->sp ? " sp" : "", l->async ? " async" : "");
    if (l->cp > 1) strbuf_printf(&b, " cp%d %s", l->cp, kinds[l->cp_kind]);
    if (l->ep > 1) strbuf_printf(&b, " ep%d%s", l->ep, l->at_once ? " at-once" : "");
    if (l->pp > 1) strbuf_printf(&b, " pp%d %s", l->pp, schedules[l->schedule]);
    if (l->virtual > 1) strbuf_printf(&b, "%d", l->virtual);
    if (l->recompute) strbuf_printf(&b, " recompute-%s", recompute[l->recompute]);
    if (l->offload) strbuf_printf(&b, " offload-%s", away[l->offload]);
    snprintf(out, LAYOUT_NAME_MAX, "%s", strbuf_cstr(&b));
    strbuf_free(&b);
}

int layout_ranks(const layout *l) {
    return l->dp * l->tp * (l->pp > 1 ? l->pp : 1) * (l->cp > 1 ? l->cp : 1);
}

bool layout_is_exact(const layout *l) {
    return l->tp == 1 && l->cp <= 1 && (l->ep <= 1 || l->at_once);
}

int layout_precision(const config *c) {
    int compute = c->train.precision.compute;
    return compute == CONFIG_PRECISION_AUTO ? CONFIG_PRECISION_FP32 : compute;
}

/* ---- the trial ---- */

enum { TRIAL_TOKENS = 64, TRIAL_MICRO = 2 };
static const double ORDINARY_LATENCY_S = 300e-6;

static status copy_config(config **out, const config *c, err *e) {
    json_t *o = config_to_json(c);
    status st = config_from_json(out, o, NULL, "layout", NULL, 0, e);
    json_decref(o);
    return st;
}

/* Sequences of a micro-batch: few, but so many that sequence-parallel ranks can divide its
 * tokens. */
static int64_t trial_micro(const config *c) {
    const objective *o = objective_of(c);
    int64_t own = c->train.micro_batch_size, T = o->learned * c->train.seq_len, tp = c->parallel.tp;
    int64_t B = own == CONFIG_AUTO || own > TRIAL_MICRO ? TRIAL_MICRO : own;
    T /= c->parallel.cp;
    bool divides = B / o->sequences * T % tp == 0;
    return c->parallel.sp && !divides ? tp / common_divisor(T, tp) * o->sequences : B;
}

static void shorten(arena *a, config *c, int batch) {
    config_drop_stages(c);
    c->train.batch_ramp.start = c->train.batch_ramp.increment = 0;
    int64_t unit = 2 * c->parallel.cp, most = (TRIAL_TOKENS + unit - 1) / unit * unit;
    if (c->train.seq_len > most) c->train.seq_len = most;
    c->train.micro_batch_size = trial_micro(c);
    c->train.global_batch_size = batch * c->train.micro_batch_size;
    c->train.digest_every = 1;
    c->train.threads = 1;
    /* where the run's own file would lie; what makes no run has no folder */
    if (!c->parallel.offload_to)
        c->parallel.offload_to = c->run ? file_nearest_dir(a, c->run) : file_temp_dir();
}

static status read_model(const layout_trial *t, arena *a, model_config *mc, err *e) {
    *mc = t->lora.gguf.config;
    return t->lora.gguf.a ? ST_OK : hf_config_read(a, t->c->model, 0, mc, e);
}

static void note_pools(layout_trial *t) {
    model_config mc;
    err unread = {0};
    t->pools = read_model(t, t->memory, &mc, &unread) == ST_OK && mc.num_experts > 0 &&
               mc.router_aux_loss_coef > 0 && t->c->train.router.balance == BALANCE_MICRO;
}

/* Keeps the first layers only, if the model's config allows that: some configs list all layers, and
 * adapters are trained beside a model that is there. With fewer layers there are fewer chunks. */
static void cut_depth(layout_trial *t, int depth) {
    model_config whole, cut;
    err unread = {0};
    if (read_model(t, t->memory, &whole, &unread) != ST_OK) return;
    t->depth = (int)whole.num_hidden_layers;
    if (depth <= 0 || depth >= t->depth || t->lora.adapters.rank) return;
    json_t *model = json_deep_copy(t->c->model);
    json_object_set_new(model, "num_hidden_layers", json_integer(depth));
    if (model_config_read(t->memory, model, 0, &cut, &unread) == ST_OK) {
        json_t *old = t->c->model;
        t->c->model = model;
        json_decref(old);
        t->depth = depth;
        if (t->c->parallel.virtual > depth) t->c->parallel.virtual = depth;
    } else
        json_decref(model);
}

static status name_params(layout_trial *t, err *e) {
    model_config mc;
    TRY(read_model(t, t->memory, &mc, e));
    param_store *s = param_store_new(t->memory, DT_F32);
    if (t->lora.adapters.rank)
        TRY(model_declare_adapted(&mc, &t->lora.adapters, s, e));
    else
        model_declare(&mc, s);
    t->n_params = param_count(s);
    t->param = ARENA_ARRAY(t->memory, const char *, t->n_params);
    for (int i = 0; i < t->n_params; i++) t->param[i] = param_at(s, i)->name;
    return ST_OK;
}

/* The vocabulary that only a tokenizer knows becomes a number, unless that of model.from is as large
 * (or cannot be read here, as in a GGUF file, which never grows). */
static status fix_vocab(const layout_trial *t, err *e) {
    config *c = t->c;
    trial_trim_config(c);
    if (!c->tokenizer) return ST_OK;
    tok *tk;
    model_config from = {.vocab_size = 0};
    bool has_from = json_object_get(c->model, "from") != NULL;
    if (has_from && model_config_read(t->memory, c->model, 0, &from, e) != ST_OK)
        from.vocab_size = INT32_MAX;
    TRY(tok_load(&tk, c->tokenizer, e));
    if (tok_vocab_size(tk) > from.vocab_size)
        json_object_set_new(c->model, "vocab_size", json_integer(tok_vocab_size(tk)));
    tok_free(tk);
    c->tokenizer = NULL;
    return ST_OK;
}

status layout_trial_new(layout_trial **out, const config *c, int depth, int batch, err *e) {
    arena *a = arena_new("layouts");
    layout_trial *t = ARENA_NEW(a, layout_trial);
    t->memory = a;
    status st = copy_config(&t->c, c, e);
    if (st == ST_OK) st = fix_vocab(t, e);
    if (st == ST_OK) st = lora_open(&t->lora, a, t->c, e);
    if (st == ST_OK) {
        shorten(t->memory, t->c, batch);
        cut_depth(t, depth);
        note_pools(t);
        st = name_params(t, e);
    }
    if (st != ST_OK) {
        layout_trial_free(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void layout_trial_free(layout_trial *t) {
    if (!t) return;
    lora_close(&t->lora);
    config_free(t->c);
    arena_free(t->memory);
}

bool layout_trial_divides(const layout_trial *t, int tp) {
    model_config mc;
    err unread = {0};
    arena *a = arena_new("model");
    bool ok = read_model(t, a, &mc, &unread) == ST_OK &&
              model_check_ranks(&mc, tp, &unread) == ST_OK &&
              !t->c->distill.teacher && /* which looks at the whole vocabulary */
              !t->lora.nf4;
    arena_free(a);
    return ok;
}

bool layout_trial_has_stages(const layout_trial *t, int chunks) {
    model_config mc;
    err unread = {0};
    arena *a = arena_new("model");
    bool ok = read_model(t, a, &mc, &unread) == ST_OK && chunks <= mc.num_hidden_layers &&
              axes_check_stages(t->c, &mc, &unread) == ST_OK;
    arena_free(a);
    return ok;
}

bool layout_trial_shares_tokens(const layout_trial *t, const layout *l) {
    model_config mc;
    err unread = {0};
    config *c;
    if (l->cp <= 1) return true;
    if (copy_config(&c, t->c, &unread) != ST_OK) return false;
    arena *a = arena_new("model");
    c->parallel.cp = l->cp, c->parallel.cp_kind = l->cp_kind, c->parallel.tp = l->tp;
    int64_t T = c->train.seq_len, rows = c->train.micro_batch_size * T / l->cp;
    bool ok = T % (2 * l->cp) == 0 && (!l->sp || rows % l->tp == 0) &&
              read_model(t, a, &mc, &unread) == ST_OK &&
              axes_check_context(c, &mc, &unread) == ST_OK;
    config_free(c);
    arena_free(a);
    return ok;
}

bool layout_trial_spreads_experts(const layout_trial *t, int ep) {
    model_config mc;
    err unread = {0};
    config *c;
    if (copy_config(&c, t->c, &unread) != ST_OK) return false;
    arena *a = arena_new("model");
    c->parallel.ep = ep;
    bool ok =
        read_model(t, a, &mc, &unread) == ST_OK && axes_check_experts(c, &mc, &unread) == ST_OK;
    config_free(c);
    arena_free(a);
    return ok;
}

layout_result *layout_result_new(const layout_trial *t, const layout_way *way) {
    layout_result *r = ARENA_NEW(t->memory, layout_result);
    r->digest = ARENA_ARRAY(t->memory, uint64_t, t->n_params);
    r->norm = ARENA_ARRAY(t->memory, double, t->n_params);
    r->steps = ARENA_ARRAY(t->memory, layout_step, way->steps + 1);
    r->way = *way;
    return r;
}

/* ---- one rank ---- */

typedef struct rank_job {
    pthread_t thread;
    const layout_trial *t;
    const layout *l;
    const layout_way *way;
    comm_world *world;
    layout_result *r; /* NULL: another rank fills it */
    int64_t peak_bytes;
    status st;
    err why;
} rank_job;

/* Chunks of one rank are the config's own, unless they are those of its stages. */
static void set_stages(config *c, const layout *l) {
    bool had = c->parallel.pp > 1;
    c->parallel.pp = l->pp > 1 ? l->pp : 1;
    if (l->pp > 1) c->parallel.pp_schedule = l->schedule;
    if (l->pp > 1 || had) c->parallel.virtual = l->virtual > 1 ? l->virtual : 1;
    if (l->pp <= 1 && had) c->parallel.pp_schedule = CONFIG_PP_1F1B;
}

static status own_config(config **out, const rank_job *j, err *e) {
    TRY(copy_config(out, j->t->c, e));
    config *c = *out;
    c->parallel.dp = j->l->dp;
    c->parallel.dp_replicate = j->l->dp_replicate;
    c->parallel.zero = j->l->zero;
    c->parallel.tp = j->l->tp;
    c->parallel.sp = j->l->sp;
    c->parallel.tp_async = j->l->async;
    c->parallel.offload = j->l->offload;
    c->parallel.cp = j->l->cp > 1 ? j->l->cp : 1;
    c->parallel.cp_kind = j->l->cp_kind;
    c->parallel.ep = j->l->ep > 1 ? j->l->ep : 1;
    if (j->l->at_once) c->parallel.ep_load = j->l->ep; /* all rows of a rank may go to one other */
    set_stages(c, j->l);
    c->train.recompute = j->l->recompute;
    c->train.deterministic = !j->way->ordinary;
    if (j->way->ordinary && j->l->pp <= 1 && !j->t->pools)
        c->train.micro_batch_size = c->train.global_batch_size / j->l->dp;
    if (c->train.precision.compute != j->way->precision)
        c->train.precision.arithmetic = CONFIG_ARITHMETIC_AUTO;
    c->train.precision.compute = j->way->precision;
    c->train.precision.params = CONFIG_PRECISION_AUTO;
    return ST_OK;
}

/* Where a mistake in a layout shows first: in the initial weights, or in the gradient of some
 * parameter. What is frozen may be read from files in one layout and be copied in another. */
static void note_weights(const rank_job *j, const session *s) {
    for (int i = 0; i < j->t->n_params; i++) {
        bool frozen = param_at(param_store_whole(s->setup.plan->store), i)->frozen;
        uint64_t digest = frozen ? 0 : peers_param_digest(&s->setup.peers, i);
        if (j->r) j->r->digest[i] = digest;
    }
}

static void note_gradients(session *s, void *ctx) {
    const rank_job *j = ctx;
    for (int i = 0; i < j->t->n_params; i++) {
        double norm = peers_grad_norm(&s->setup.peers, s->setup.dev, i) / execute_grads_scale(s);
        if (j->r) j->r->norm[i] = norm;
    }
}

static status run_steps(rank_job *j, session *s, err *e) {
    layout_result *r = j->r;
    uint64_t initial;
    if (j->way->between) j->way->between(s, 0);
    note_weights(j, s);
    TRY(setup_digest(&s->setup, &initial, e));
    if (r) r->initial = initial;
    for (int i = 0; i < j->way->steps; i++) {
        step_result out;
        if (j->way->between) j->way->between(s, i + 1);
        TRY(trial_step(s, NULL, i == 0 ? note_gradients : NULL, j, &out, e));
        if (!r) continue;
        r->steps[i] = (layout_step){execute_mean_loss(&out), out.norm, out.digest};
        r->seconds += (double)out.total_ns / 1e9;
        r->n_steps = i + 1;
    }
    j->peak_bytes = s->setup.plan->peak_bytes;
    return ST_OK;
}

static status run_rank(rank_job *j) {
    config *c = NULL;
    session s = {0};
    arena *a = arena_new("layout");
    err *e = &j->why;
    status st = own_config(&c, j, e);
    if (st == ST_OK) st = trial_open(&s, a, c, j->world, false, e);
    if (j->way->ordinary) comm_set_link(j->world, (comm_link){.latency_s = ORDINARY_LATENCY_S});
    if (st == ST_OK) st = run_steps(j, &s, e);
    if (s.setup.a)
        trial_close(&s, j->world, st, e);
    else
        arena_free(a);
    if (c) config_free(c);
    return st;
}

status layout_run_rank(const layout_trial *t, const layout *l, const layout_way *way,
                       comm_world *world, layout_result *r, err *e) {
    rank_job j = {.t = t, .l = l, .way = way, .world = world, .r = r};
    status st = run_rank(&j);
    r->peak_bytes = j.peak_bytes;
    if (st != ST_OK && e) *e = j.why;
    return st;
}

/* ---- ranks as threads ---- */

static void *rank_thread(void *arg) {
    rank_job *j = arg;
    j->st = run_rank(j);
    if (j->st != ST_OK) comm_fail(j->world, &j->why);
    comm_close(j->world);
    return NULL;
}

/* A rank that only waited for another says so with ST_RANK: the other's reason is the better one.
 */
static status first_failure(const rank_job *jobs, int n, err *e) {
    const rank_job *worst = NULL;
    for (int r = 0; r < n; r++) {
        if (jobs[r].st == ST_OK) continue;
        if (!worst || (worst->st == ST_RANK && jobs[r].st != ST_RANK)) worst = &jobs[r];
    }
    if (!worst) return ST_OK;
    if (e) *e = worst->why;
    return worst->st;
}

status layout_run(const layout_trial *t, const layout *l, const layout_way *way, layout_result *r,
                  err *e) {
    int n = layout_ranks(l);
    comm_world **worlds = xcalloc((size_t)n, sizeof *worlds);
    rank_job *jobs = xcalloc((size_t)n, sizeof *jobs);
    comm_open_threads(n, worlds);
    for (int i = 0; i < n; i++) {
        jobs[i] =
            (rank_job){.t = t, .l = l, .way = way, .world = worlds[i], .r = i == 0 ? r : NULL};
        CHECK(pthread_create(&jobs[i].thread, NULL, rank_thread, &jobs[i]) == 0,
              "no thread for rank %d", i);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(jobs[i].thread, NULL);
        if (jobs[i].peak_bytes > r->peak_bytes) r->peak_bytes = jobs[i].peak_bytes;
    }
    status st = first_failure(jobs, n, e);
    free(jobs);
    free(worlds);
    return st;
}
