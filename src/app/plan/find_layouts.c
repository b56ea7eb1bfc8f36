/* Reading order: layouts_find; what is kept as it was given; the run as one rank has it, in all its stages. */
#include "app/plan/find_layouts.h"

#include <string.h>

#include "app/frame/model_arg.h"
#include "app/plan/contexts.h"
#include "app/plan/on_cluster.h"
#include "base/clock.h"
#include "base/divisor.h"
#include "base/text.h"
#include "run/config/config_device.h"
#include "train/axes.h"
#include "train/setup.h"
#include "train/train.h"

const char *layouts_offload_word(unsigned what) {
    static const char *const words[] = {CONFIG_SET_OFFLOAD(LIST_WORD)};
    return words[what];
}

/* What the user has given is kept. */
static int keep(finding *f, const char *key, int64_t value, int without) {
    if (strcmp(config_where(f->c, key), "default") == 0 || value == CONFIG_AUTO) return without;
    strbuf_printf(&f->given, "%s%s=%ld", f->given.len ? ", " : "", key, (long)value);
    return (int)value;
}

static int keep_word(finding *f, const char *key, int value, const char *word) {
    if (strcmp(config_where(f->c, key), "default") == 0) return -1;
    strbuf_printf(&f->given, "%s%s=%s", f->given.len ? ", " : "", key, word);
    return value;
}

static int or_1(int kept) {
    return kept ? kept : 1;
}

/* A key that only layouts with a pipeline can keep; NULL: none is given. */
static const char *stages_key(const search_kept *k) {
    if (k->pp > 1) return "parallel.pp";
    if (k->schedule >= 0 && k->schedule != SCHEDULE_1F1B) return "parallel.pp_schedule";
    return k->chunks > 1 ? "parallel.virtual" : NULL;
}

/* Whether a schedule that is kept has so many chunks on a stage. */
static status check_chunks(const finding *f, err *e) {
    const search_kept *k = &f->kept;
    if (k->schedule < 0 || k->chunks == 0) return ST_OK;
    int needed = schedule_chunks_of((schedule_kind)k->schedule);
    if (needed ? k->chunks == needed : k->chunks > 1) return ST_OK;
    config_error(f->c, e, "parallel.virtual",
                 "parallel.pp_schedule=%s has %s on each stage, and parallel.virtual is %d",
                 schedule_name((schedule_kind)k->schedule),
                 needed == 1 ? "one chunk of layers"
                 : needed    ? "two chunks of layers"
                             : "several chunks of layers",
                 k->chunks);
    return err_hint(e, "leave parallel.virtual out");
}

/* Whether what is kept of stages goes together. exact: pipelines are left out. */
static status check_stages(const finding *f, bool exact, err *e) {
    const search_kept *k = &f->kept;
    const char *key = stages_key(k);
    if (!key || (!exact && k->pp != 1)) return check_chunks(f, e);
    if (exact) {
        config_error(f->c, e, key, "--exact leaves out pipelines, which %s asks for", key);
        return err_hint(e, "leave out one of them");
    }
    config_error(f->c, e, key, "parallel.pp=1 has no stages, which %s is of", key);
    return err_hint(e, "leave out one of them");
}

/* What no layout of the search can keep. */
static status check_kept(const finding *f, bool exact, err *e) {
    const config *c = f->c;
    const search_kept *k = &f->kept;
    int64_t ranks = (int64_t)or_1(k->tp) * or_1(k->cp) * or_1(k->pp) * or_1(k->dp);
    int devices = cluster_devices(&f->on);
    if (devices % ranks || (k->tp && k->cp && k->pp && k->dp && ranks != devices)) {
        config_error(c, e,
                     k->tp > 1   ? "parallel.tp"
                     : k->cp > 1 ? "parallel.cp"
                     : k->pp > 1 ? "parallel.pp"
                                 : "parallel.dp",
                     "%d device%s not shared by %ld rank%s (dp %d, tp %d, cp %d, pp %d)", devices,
                     devices == 1 ? " is" : "s are", (long)ranks, text_s(ranks), or_1(k->dp),
                     or_1(k->tp), or_1(k->cp), or_1(k->pp));
        return err_hint(e, "cluster=%s has %d of them", c->cluster, devices);
    }
    if (strcmp(config_where(c, "parallel.sp"), "default") != 0 && !c->parallel.sp && k->tp != 1) {
        config_error(c, e, "parallel.sp", "layouts with tp are searched with sp beside it only");
        return err_hint(e, "leave parallel.sp out, or set parallel.tp=1");
    }
    if (c->parallel.dp_replicate > 1) {
        config_error(c, e, "parallel.dp_replicate",
                     "layouts with replicas of a ZeRO group are not searched");
        return err_hint(e, "athanor plan CONFIG plans one");
    }
    TRY(check_stages(f, exact, e));
    if ((c->parallel.offload & OFFLOAD_WEIGHTS) && stages_key(k)) {
        config_error(c, e, "parallel.offload",
                     "pipelines are not searched with parallel.offload=%s",
                     layouts_offload_word((unsigned)c->parallel.offload));
        return err_hint(e, "parallel.offload=optimizer, or plan that layout itself: athanor plan "
                           "CONFIG");
    }
    return ST_OK;
}

static status read_kept(finding *f, bool exact, err *e) {
    static const char *const policies[] = {RECOMPUTE_POLICIES(LIST_WORD)}, *const kinds[] = {
                                                                               CONTEXT_KINDS(
                                                                                   LIST_WORD)};
    config *c = f->c;
    search_kept *k = &f->kept;
    k->tp = keep(f, "parallel.tp", c->parallel.tp, 0);
    k->cp = keep(f, "parallel.cp", c->parallel.cp, 0);
    k->context = keep_word(f, "parallel.cp_kind", c->parallel.cp_kind, kinds[c->parallel.cp_kind]);
    k->ep = keep(f, "parallel.ep", c->parallel.ep, 0);
    k->pp = keep(f, "parallel.pp", c->parallel.pp, 0);
    k->dp = keep(f, "parallel.dp", c->parallel.dp, 0);
    k->zero = keep(f, "parallel.zero", c->parallel.zero, -1);
    k->chunks = keep(f, "parallel.virtual", c->parallel.virtual, 0);
    k->schedule = keep_word(f, "parallel.pp_schedule", c->parallel.pp_schedule,
                            schedule_name((schedule_kind)c->parallel.pp_schedule));
    k->micro_batch = keep(f, "train.micro_batch_size", c->train.micro_batch_size, 0);
    k->recompute =
        keep_word(f, "train.recompute", c->train.recompute, policies[c->train.recompute]);
    k->offload = keep_word(f, "parallel.offload", c->parallel.offload,
                           layouts_offload_word((unsigned)c->parallel.offload)) >= 0;
    return check_kept(f, exact, e);
}

/* The plan of one rank that has one sequence: what does not depend on the layout. It need not fit. */
static status plan_base(finding *f, err *e) {
    enum { NO_LIMIT_BITS = 52 }; /* which a config may say */
    config *c = f->c;
    c->parallel.dp = c->parallel.tp = c->parallel.pp = c->parallel.cp = c->parallel.dp_replicate =
        c->parallel.ep = 1;
    c->parallel.sp = false;
    c->parallel.virtual = 1;
    c->parallel.pp_schedule = CONFIG_PP_1F1B;
    unsigned words = (unsigned)c->parallel.offload; /* kept; weights need the ZeRO of a layout */
    c->parallel.zero = !(words & OFFLOAD_WEIGHTS) ? 0 : f->kept.zero >= 0 ? f->kept.zero : 3;
    TRY(config_check_supported(c, e));
    c->parallel.zero = 0;
    c->parallel.offload = CONFIG_OFFLOAD_NONE;
    c->train.micro_batch_size = setup_sequences_of_sample(c);
    c->train.memory_limit = (int64_t)1 << NO_LIMIT_BITS;
    TRY(config_open_meta(c, &f->meta, e));
    status st = train_plan_course(c, f->meta, &f->p, &f->course, e);
    if (st != ST_OK && !(st == ST_MEMORY && f->p)) return st;
    if (words) { /* whose saves are waited for */
        f->p->spec.offload = words;
        f->p->spec.snapshot = false;
    }
    if (f->p->spec.model.num_encoder_layers) {
        config_error(c, e, "model", "layouts of models with an encoder are not searched");
        return err_hint(e, "athanor plan CONFIG cluster=%s plans the layout that it is given",
                        c->cluster);
    }
    if (f->p->spec.train_B) return ST_OK;
    return err_at(e, ST_USAGE, f->c->source, "a layout is searched for a run that trains");
}

static status check_layers(const finding *f, err *e) {
    int layers = (int)f->p->spec.model.num_hidden_layers, pp = f->kept.pp, chunks = f->kept.chunks;
    if (pp <= 1 || pp * (chunks > 1 ? chunks : 1) <= layers) return ST_OK;
    config_error(f->c, e, "parallel.pp", "%d stages%s have no layer each: the model has %d", pp,
                 chunks > 1 ? " of several chunks" : "", layers);
    return err_hint(e, "parallel.pp=%d at most", chunks > 1 ? layers / chunks : layers);
}

/* Whether keys of the stage, or of one before it, set the micro-batch, which the layout then leaves. */
static bool has_own_micro_batch(const config *c, int stage) {
    for (int i = 0; i <= stage && i < c->stages.n; i++) {
        const json_t *train = json_object_get(c->stages.items[i].changes, "train");
        if (json_object_get(train, "micro_batch_size")) return true;
    }
    return false;
}

/* The stages of the run: one plan for each. A micro-batch that the first sets is that of every layout. */
static void read_phases(finding *f) {
    f->n_phases = f->p->n_phases;
    if (has_own_micro_batch(f->c, 0)) f->kept.micro_batch = f->course->stage[0].B;
    f->phase = ARENA_ARRAY(f->a, search_phase, f->n_phases);
    for (int i = 0; i < f->n_phases; i++) {
        const course_stage *k = &f->course->stage[i];
        f->phase[i] = (search_phase){.base = i ? f->p->phase[i] : f->p->spec,
                                     .batch = k->max_batch,
                                     .micro_batch = has_own_micro_batch(f->c, i) ? k->B : 0};
        f->phase[i].base.locate = NULL; /* the base's files are closed */
    }
    for (int i = 0; i < f->course->n_parts; i++) {
        const course_part *part = &f->course->part[i];
        int64_t *divisor = &f->phase[part->stage].batch_divisor;
        *divisor = common_divisor(part->batch, *divisor);
    }
}

/* Rows read ahead and the like, of which each rank of a layout has its share. */
static int64_t host_bytes(void *ctx, int phase, const sketch_layout *l) {
    const finding *f = ctx;
    course_stage k = f->course->stage[phase];
    const plan_spec *base = &f->phase[phase].base;
    int64_t of_one = setup_host_bytes(&k, 1, 1, &base->model);
    if (!f->phase[phase].micro_batch) k.B = l->key.micro_batch;
    return base->host_bytes - of_one + setup_host_bytes(&k, l->dp, l->key.cp, &base->model);
}

void layouts_take(config *c, const sketch_layout *l) {
    c->parallel.dp = l->dp;
    c->parallel.tp = l->key.tp;
    c->parallel.sp = l->key.tp > 1;
    c->parallel.cp = l->key.cp;
    if (l->key.cp > 1) c->parallel.cp_kind = (int)l->key.context;
    c->parallel.ep = l->key.ep;
    c->parallel.pp = l->pp;
    c->parallel.pp_schedule = (int)l->schedule;
    c->parallel.virtual = l->chunks_of_stage;
    c->parallel.zero = l->zero;
    c->parallel.offload = (int)l->offload;
    c->train.micro_batch_size = l->key.micro_batch;
    c->train.recompute = (int)l->key.recompute;
}

/* What no plan is needed for. */
static status check_axes(void *ctx, const sketch_layout *l, err *e) {
    finding *f = ctx;
    layouts_take(f->c, l);
    return axes_check(f->c, e);
}

static status search(finding *f, finding_wish w, err *e) {
    search_spec what = {.phase = f->phase,
                        .n_phases = f->n_phases,
                        .most = w.most,
                        .usable_bytes = f->usable_bytes,
                        .kept = f->kept,
                        .contexts = f->contexts,
                        .experts = f->experts,
                        .pipelines = f->pipelines,
                        .host_bytes = host_bytes,
                        .check = check_axes,
                        .ctx = f};
    status st = search_layouts(&f->found, f->a, f->meta, &what, &f->on, e);
    if (st != ST_USAGE || f->found.tried || f->found.unfit || !f->given.len) return st;
    err_at(e, ST_USAGE, "train.global_batch_size",
           "no layout of %d devices that makes %ld sequences keeps %s", cluster_devices(&f->on),
           (long)f->phase[0].batch, strbuf_cstr(&f->given));
    return err_hint(e, "leave one of them out, or change train.global_batch_size");
}

/* ---- as it would run ---- */

/* The plan of the config with the layout, which tells what the search does not know: all stages of the run, and what its model does
 * not go with. */
static status plan_found(finding *f, const cli_args *args, search_found *x, err *e) {
    config *c;
    dev *meta = NULL;
    plan *p = NULL;
    cluster on;
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    layouts_take(c, &x->layout);
    status st = on_cluster_take(c, &on, e);
    if (st == ST_OK) st = config_open_meta(c, &meta, e);
    if (st == ST_OK) st = train_plan(c, meta, &p, e);
    if (st == ST_OK) {
        x->result.time = clock_step(p, &on);
        x->result.memory_bytes = (double)plan_needed_bytes(p);
        json_t *o = plan_json(p, c->train.memory_limit);
        json_object_set_new(o, "time", clock_json(&x->result.time, &on));
        json_array_append_new(f->plans, o);
    }
    plan_free(p);
    if (meta) dev_close(meta);
    config_free(c);
    return st;
}

/* Layouts that cannot run after all are left out; if none is left, e says why the first cannot. */
static status plan_all_found(finding *f, const cli_args *args, err *e) {
    search_result *r = &f->found;
    err first = {0};
    int n = 0;
    f->plans = json_array();
    for (int i = 0; i < r->n; i++) {
        err why = {0};
        search_found x = r->found[i];
        status st = plan_found(f, args, &x, &why);
        if (st == ST_OK)
            r->found[n++] = x;
        else if (st == ST_MEMORY)
            r->too_large++;
        else
            r->unfit++;
        if (st != ST_OK && !first.code) first = why;
    }
    r->n = n;
    if (n > 0) return ST_OK;
    if (e) *e = first;
    return first.code;
}

status layouts_find(finding *f, const cli_args *args, finding_wish w, err *e) {
    *f = (finding){.a = arena_new("search")};
    TRY(model_arg_load(args->inputs[0], args, &f->c, e));
    if (!f->c->cluster) {
        err_at(e, ST_USAGE, "cluster", "for which cluster? The config names none");
        return err_hint(e, "add cluster=h100-64, for example");
    }
    TRY(on_cluster_find(f->c, &f->on, e));
    TRY(on_cluster_limit(f->c, &f->on, &f->usable_bytes, e));
    TRY(read_kept(f, w.exact, e));
    TRY(plan_base(f, e));
    TRY(check_layers(f, e));
    read_phases(f);
    TRY(contexts_find(f->c, &f->p->spec.model, f->kept.cp, f->kept.context, &f->contexts, e));
    TRY(experts_find(f->c, &f->p->spec.model, f->kept.ep, f->kept.zero, &f->experts, e));
    TRY(stages_find(f->c, &f->p->spec.model, f->kept.pp, &f->pipelines, e));
    f->pipelines = f->pipelines && !w.exact;
    int64_t began = clock_now_ns();
    status st = search(f, w, e);
    if (st == ST_OK) st = plan_all_found(f, args, e);
    f->seconds = clock_since_s(began);
    return st;
}

void layouts_free(finding *f) {
    json_decref(f->plans);
    course_free(f->course);
    plan_free(f->p);
    if (f->meta) dev_close(f->meta);
    config_free(f->c);
    strbuf_free(&f->given);
    arena_free(f->a);
}
