/* athanor plan MODEL|CONFIG: what a run will need, from the program that will run. */
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "app/frame/progress.h"
#include "app/plan/by_formula.h"
#include "app/plan/find_layouts.h"
#include "app/plan/on_cluster.h"
#include "app/plan/plan_laws.h"
#include "interchange/where_runs.h"
#include "interchange/open_model.h"
#include "run/config/config_device.h"
#include "train/train.h"

enum { GGUF_CTX = 8192 };

/* That a plan does not fit the memory this machine happens to have free is an answer; that it
 * breaks a limit which was given is a failure. */
static status say_too_large(const cli_args *args, bool limit_given, err *e) {
    if (!args->json && !limit_given) printf("  does not fit: %s\n  %s\n", e->message, e->hint);
    if (args->json) e->message[0] = '\0'; /* `fits: false` has said it */
    return limit_given ? ST_MEMORY : ST_OK;
}

/* Which programs will load the model. A tokenizer that cannot be read is told elsewhere. */
static where_runs where_of(const config *c, const plan *p) {
    tok *t = NULL;
    err unread;
    if (c->tokenizer && tok_load(&t, c->tokenizer, &unread) != ST_OK) t = NULL;
    where_runs w = where_runs_of(&p->spec.model, t);
    tok_free(t);
    return w;
}

/* c: NULL: a GGUF file, which has no course. on: the cluster whose time is asked for; NULL: none. */
static void print_plan(const cli_args *args, const config *c, where_runs w, const plan *p,
                       const course *k, const cluster *on) {
    clock_time t = {0};
    laws_run laws;
    bool has_laws = c && plan_laws_run(c, p, k, &laws);
    int64_t limit_bytes = c ? c->train.memory_limit : 0;
    if (on) t = clock_step(p, on);
    if (args->json) {
        json_t *o = plan_json(p, limit_bytes), *live = plan_live_json(p);
        if (live) json_object_set_new(o, "live", live);
        if (on) json_object_set_new(o, "time", clock_json(&t, on));
        if (on && on->kind == DEV_CUDA)
            json_object_set_new(json_object_get(o, "memory"), "device_baseline_bytes",
                                json_integer((json_int_t)on->reserved_bytes));
        json_object_set_new(o, "runs", where_runs_json(&w));
        if (has_laws) plan_laws_put(c, &laws, o, NULL);
        cli_print_json(o);
        return;
    }
    strbuf text = {0};
    int64_t left = limit_bytes - plan_needed_bytes(p);
    plan_describe(p, &text);
    if (limit_bytes > 0 && left >= 0)
        strbuf_printf(&text, "  %-22s %10.1f MiB  of %.1f MiB: it fits\n", "left",
                      (double)left / (1 << 20), (double)limit_bytes / (1 << 20));
    strbuf_puts(&text, "  where it will run\n");
    where_runs_describe(&w, &text);
    if (on) clock_describe(&t, on, &text);
    if (has_laws) plan_laws_put(c, &laws, NULL, &text);
    progress_put_rows(stdout, strbuf_cstr(&text));
    strbuf_free(&text);
}

/* Whether the plan itself knew nothing better than another model or shorter sequences. */
static bool is_last_resort(const err *e) {
    return strcmp(e->where, "model") == 0 || strcmp(e->where, "train.seq_len") == 0;
}

/* Another layout may fit where no other micro-batch, recompute or ZeRO of this one does: the hint names the fastest. */
static void hint_at_layout(const cli_args *args, err *e) {
    finding f;
    err none = {0};
    strbuf name = {0};
    status st = layouts_find(&f, args, (finding_wish){.most = 1}, &none);
    if (st == ST_OK) {
        search_name(&f.found.found[0].layout, &name);
        (void)err_hint(e, "another layout fits: %s (athanor plan search --write)",
                       strbuf_cstr(&name));
    }
    strbuf_free(&name);
    layouts_free(&f);
}

/* A GGUF file is no model to train: the plan of generating with the weights in the file. */
static status plan_gguf(const cli_args *args, err *e) {
    open_model m;
    plan *p = NULL;
    TRY(cli_refuse_overrides(args, "a GGUF file is planned as it is", e));
    status st = open_model_read(&m, args->inputs[0], 0, e);
    if (st == ST_OK) {
        int64_t most = model_max_tokens(&m.config);
        plan_spec spec = open_model_spec(&m, (int)(most < GGUF_CTX ? most : GGUF_CTX), 0);
        st = plan_new(&p, m.dev, &spec, e);
    }
    if (p) {
        model_config mc = gguf_model_hf_config(m.gguf);
        print_plan(args, NULL, where_runs_of(&mc, m.tok), p, NULL, NULL);
        st = plan_check_fits(p, 0, e);
        if (st == ST_MEMORY) st = say_too_large(args, false, e);
    }
    plan_free(p);
    open_model_close(&m);
    return st;
}

static status cmd_plan(const cli_args *args, err *e) {
    if (cli_has(args, "model")) return plan_by_formula(args, e);
    if (open_model_is_gguf(args->inputs[0])) return plan_gguf(args, e);
    config *c;
    dev *meta;
    plan *p = NULL;
    course *k;
    cluster on;
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    config_tell_notes(c);
    status st = c->cluster ? on_cluster_take(c, &on, e) : ST_OK;
    if (st == ST_OK) st = config_open_meta(c, &meta, e);
    if (st == ST_OK) {
        st = train_plan_course(c, meta, &p, &k, e);
        if (p)
            print_plan(args, c, where_of(c, p), p, k, c->cluster && p->spec.train_B ? &on : NULL);
        if (p && st == ST_MEMORY && c->cluster && !args->json && is_last_resort(e))
            hint_at_layout(args, e);
        if (p && st == ST_MEMORY) st = say_too_large(args, c->train.memory_limit > 0, e);
        plan_free(p);
        course_free(k);
        dev_close(meta);
    }
    config_free(c);
    return st;
}

static const cli_option options[] = {
    {"model", "WHOSE",
     "memory by others' formulas: formula (the Ultra-Scale Playbook's), widget (on its page; "
     "also of its examples Tiny, 8B, 70B, 405B), predictor (nanotron's)"},
    {"convention", "NAME",
     "how the formula counts bytes: mixed, mixed-fp32-grads, figures, fp32, megatron"},
    {0}};

static const cli_rule rules[] = {{"convention", CLI_NEEDS, "model", NULL}, {0}};

const cli_command command_plan = {
    .name = "plan",
    .summary = "what a run will need, before it runs",
    .usage = "MODEL|CONFIG [cluster=NAME] [key=value...] [--model WHOSE [--convention NAME]]",
    .run = cmd_plan,
    .options = options,
    .rules = rules,
    .takes_keys = true};
