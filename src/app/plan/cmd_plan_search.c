/* athanor plan search: the best layouts of a config on its cluster, with reasons; and the config with the best of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "app/plan/contexts.h"
#include "app/plan/on_cluster.h"
#include "base/clock.h"
#include "base/file.h"
#include "plan/clock/search.h"
#include "run/config/config_device.h"
#include "train/train.h"

static const char *const offload_words[] = {CONFIG_SET_OFFLOAD(LIST_WORD)};

typedef struct finding {
    config *c;
    search_kept kept;
    unsigned contexts;       /* in which its tokens can be shared: a bit for each context_kind */
    bool pipelines, experts; /* whether stages can share it, and ranks its experts */
    strbuf given;            /* "parallel.tp=2, ..." */
    cluster on;
    plan *p;
    dev *meta;
    arena *a;
    search_result found;
    double seconds;
} finding;

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
                     "%d devices are not shared by %ld ranks (dp %d, tp %d, cp %d, pp %d)", devices,
                     (long)ranks, or_1(k->dp), or_1(k->tp), or_1(k->cp), or_1(k->pp));
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
                     offload_words[c->parallel.offload]);
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
                           offload_words[c->parallel.offload]) >= 0;
    return check_kept(f, exact, e);
}

/* The plan of one rank that has one sequence: what does not depend on the layout. */
static status plan_base(finding *f, err *e) {
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
    c->train.micro_batch_size = 1;
    c->train.memory_limit = INT64_MAX / 4;
    TRY(config_open_meta(c, &f->meta, e));
    status st = train_plan(c, f->meta, &f->p, e);
    if (f->p && words) { /* whose saves are waited for */
        f->p->spec.offload = words;
        f->p->spec.snapshot = false;
    }
    if (st != ST_OK && st != ST_MEMORY) return st;
    if (f->p && f->p->spec.model.num_encoder_layers) {
        config_error(c, e, "model", "layouts of models with an encoder are not searched");
        return err_hint(e, "athanor plan CONFIG cluster=%s plans the layout that it is given",
                        c->cluster);
    }
    if (f->p && f->p->spec.train_B) return ST_OK;
    return err_at(e, ST_USAGE, f->c->source, "a layout is searched for a run that trains");
}

static status search(finding *f, const cli_args *args, err *e) {
    int64_t most;
    TRY(cli_int(args, "most", 5, 1, 50, &most, e));
    search_spec what = {.base = f->p->spec,
                        .global_batch = f->c->train.global_batch_size,
                        .most = (int)most,
                        .kept = f->kept,
                        .contexts = f->contexts,
                        .experts = f->experts,
                        .pipelines = f->pipelines};
    int64_t began = clock_now_ns();
    status st = search_layouts(&f->found, f->a, f->meta, &what, &f->on, e);
    f->seconds = clock_since_s(began);
    if (st != ST_USAGE || f->found.tried || f->found.unfit || !f->given.len) return st;
    err_at(e, ST_USAGE, "train.global_batch_size",
           "no layout of %d devices that makes %ld sequences keeps %s", cluster_devices(&f->on),
           (long)f->c->train.global_batch_size, strbuf_cstr(&f->given));
    return err_hint(e, "leave one of them out, or change train.global_batch_size");
}

/* ---- what is said ---- */

static json_t *layout_json(const sketch_layout *l) {
    static const char *const policies[] = {RECOMPUTE_POLICIES(LIST_WORD)}, *const kinds[] = {
                                                                               CONTEXT_KINDS(
                                                                                   LIST_WORD)};
    return json_pack("{s:i,s:i,s:b,s:i,s:s,s:i,s:i,s:s,s:i,s:i,s:i,s:I,s:s,s:s}", "dp", l->dp, "tp",
                     l->key.tp, "sp", (int)(l->key.tp > 1), "cp", l->key.cp, "cp_kind",
                     kinds[l->key.context], "ep", l->key.ep, "pp", l->pp, "pp_schedule",
                     schedule_name(l->schedule), "virtual", l->chunks_of_stage, "zero", l->zero,
                     "micro_batch", l->key.micro_batch, "micro_batches",
                     (json_int_t)l->micro_batches, "recompute", policies[l->key.recompute],
                     "offload", offload_words[l->offload]);
}

static void print_json(const finding *f) {
    json_t *best = json_array();
    for (int i = 0; i < f->found.n; i++) {
        const search_found *x = &f->found.found[i];
        json_array_append_new(
            best, json_pack("{s:o,s:o,s:{s:I,s:b},s:b}", "layout", layout_json(&x->layout), "time",
                            clock_json(&x->result.time, &f->on), "memory", "peak_bytes",
                            (json_int_t)x->result.memory_bytes, "fits", 1, "exact", (int)x->exact));
    }
    cli_print_json(json_pack("{s:o,s:i,s:i,s:i,s:f}", "best", best, "tried", f->found.tried,
                             "too_large", f->found.too_large, "impossible", f->found.unfit,
                             "seconds", f->seconds));
}

static void print_table(const finding *f) {
    const search_result *r = &f->found;
    strbuf text = {0};
    strbuf_printf(
        &text,
        "%d layouts of %d x %s in %.1f s: %d do not fit into %.1f GiB, %d cannot be made; of "
        "those that fit and reach the global batch of %ld, the fastest:\n\n",
        r->tried, cluster_devices(&f->on), f->on.device_name, f->seconds, r->too_large,
        cluster_usable_bytes(&f->on) / (1 << 30), r->unfit, (long)f->c->train.global_batch_size);
    if (f->given.len) strbuf_printf(&text, "kept as given: %s\n\n", strbuf_cstr(&f->given));
    strbuf_printf(&text, "%12s %14s %6s %8s %8s  %s\n", "step, ms", "tokens/s/dev", "MFU", "bubble",
                  "GiB", "layout");
    for (int i = 0; i < r->n; i++) {
        const search_found *x = &r->found[i];
        const clock_time *t = &x->result.time;
        strbuf_printf(&text, "%12.1f %14.0f %5.1f%% %7.1f%% %8.1f  ", t->step_s * 1e3,
                      t->tokens / t->step_s / t->ranks, 100 * clock_mfu(t), 100 * clock_bubble(t),
                      x->result.memory_bytes / (1 << 30));
        search_name(&x->layout, &text);
        strbuf_putc(&text, '\n');
    }
    if (r->n > 1) {
        strbuf_puts(&text, "\nThe first before the second: ");
        search_explain(&r->found[0], &r->found[1], &text);
        strbuf_puts(&text, ".\n");
    }
    int plainest = search_plainest(r);
    if (plainest) {
        strbuf_puts(&text, "As fast within 1 %, which is less than the clock can tell, and "
                           "plainer: ");
        search_name(&r->found[plainest].layout, &text);
        strbuf_puts(&text, ".\n");
    }
    printf("%s", strbuf_cstr(&text));
    strbuf_free(&text);
}

/* ---- the config with the best layout ---- */

/* Whose values the search has found: the file says so beside them. */
static void note_origins(config *c) {
    static const char *const keys[] = {
        "parallel.dp",      "parallel.tp",   "parallel.sp",      "parallel.cp",
        "parallel.cp_kind", "parallel.ep",   "parallel.pp",      "parallel.pp_schedule",
        "parallel.virtual", "parallel.zero", "parallel.offload", "train.micro_batch_size",
        "train.recompute"};
    for (int i = 0; i < ARRAY_LEN(keys); i++)
        json_object_set_new(c->origins, keys[i], json_string("plan search"));
}

static void take_layout(config *c, const sketch_layout *l) {
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

/* "tiny.yaml" becomes "tiny.best.yaml". */
static status write_config(const finding *f, const cli_args *args, err *e) {
    config *c;
    char path[4096];
    const char *in = path_base(args->inputs[0]);
    size_t n = strlen(in);
    if (n > 5 && strcmp(in + n - 5, ".yaml") == 0) n -= 5;
    snprintf(path, sizeof path, "%.*s.best.yaml", (int)n, in);
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    take_layout(c, &f->found.found[0].layout);
    note_origins(c);
    char *text = config_to_yaml(c);
    const char *out = args->output ? args->output : path;
    status st = file_write_atomic(out, text, strlen(text), e);
    if (st == ST_OK && !args->json) printf("\n%s has the first of them.\n", out);
    free(text);
    config_free(c);
    return st;
}

static status run(finding *f, const cli_args *args, err *e) {
    TRY(model_arg_load(args->inputs[0], args, &f->c, e));
    if (!f->c->cluster) {
        err_at(e, ST_USAGE, "cluster", "for which cluster? The config names none");
        return err_hint(e, "add cluster=h100-64, for example");
    }
    TRY(on_cluster_find(f->c, &f->on, e));
    TRY(read_kept(f, cli_has(args, "exact"), e));
    TRY(plan_base(f, e));
    TRY(contexts_find(f->c, &f->p->spec.model, f->kept.cp, f->kept.context, &f->contexts, e));
    TRY(experts_find(f->c, &f->p->spec.model, f->kept.ep, f->kept.zero, &f->experts, e));
    TRY(stages_find(f->c, &f->p->spec.model, f->kept.pp, &f->pipelines, e));
    f->pipelines = f->pipelines && !cli_has(args, "exact");
    TRY(search(f, args, e));
    if (args->json)
        print_json(f);
    else
        print_table(f);
    return cli_has(args, "write") || args->output ? write_config(f, args, e) : ST_OK;
}

static status cmd_plan_search(const cli_args *args, err *e) {
    finding f = {.a = arena_new("search")};
    status st = run(&f, args, e);
    plan_free(f.p);
    if (f.meta) dev_close(f.meta);
    config_free(f.c);
    strbuf_free(&f.given);
    arena_free(f.a);
    return st;
}

static const cli_option options[] = {
    {"most", "N", "layouts that are shown (5)"},
    {"exact", NULL, "only layouts without a pipeline"},
    {"write", NULL, "writes the config with the first layout: to -o, or NAME.best.yaml"},
    {0}};

const cli_command command_plan_search = {
    .name = "plan search",
    .summary = "the best layouts of a model on a cluster, with reasons",
    .usage = "CONFIG cluster=NAME [key=value...] [--most N] [--exact] [--write] [-o OUT.yaml]",
    .run = cmd_plan_search,
    .options = options,
    .takes_output = true,
    .takes_keys = true};
