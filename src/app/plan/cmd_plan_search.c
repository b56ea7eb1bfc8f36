/* athanor plan search: the best layouts of a config on its cluster, with reasons; and the config with the best of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/model_arg.h"
#include "app/frame/progress.h"
#include "app/plan/find_layouts.h"
#include "base/file.h"
#include "base/text.h"

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
                     "offload", layouts_offload_word(l->offload));
}

/* What `plan --json` says of the config with the layout, whose words are added. */
static void print_json(const finding *f) {
    json_t *best = json_array();
    for (int i = 0; i < f->found.n; i++) {
        json_t *one = json_array_get(f->plans, (size_t)i);
        json_object_update_new(json_object_get(one, "layout"),
                               layout_json(&f->found.found[i].layout));
        json_array_append(best, one);
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
        "%d layout%s of %d x %s in %.1f s: %d do not fit into %.1f GiB, %d cannot be made; of "
        "those that fit and reach the global batch of %ld, the fastest:\n\n",
        r->tried, text_s(r->tried), cluster_devices(&f->on), f->on.device_name, f->seconds,
        r->too_large, r->usable_bytes / (1 << 30), r->unfit, (long)f->phase[0].batch);
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
    progress_put_rows(stdout, strbuf_cstr(&text));
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

/* "tiny.yaml" becomes "tiny.best.yaml". */
static char *path_for(arena *a, const cli_args *args) {
    const char *in = path_base(args->inputs[0]);
    size_t n = strlen(in);
    if (args->output) return arena_strdup(a, args->output);
    if (strcmp(in, "-") == 0) return arena_strdup(a, "best.yaml");
    if (n > 5 && strcmp(in + n - 5, ".yaml") == 0) n -= 5;
    return arena_printf(a, "%.*s.best.yaml", (int)n, in);
}

static status write_config(const finding *f, const cli_args *args, const char *path, err *e) {
    config *c;
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    layouts_take(c, &f->found.found[0].layout);
    note_origins(c);
    char *text = config_to_yaml(c);
    status st = file_write_atomic(path, text, strlen(text), e);
    free(text);
    config_free(c);
    return st;
}

/* The file is written before anything is said, so that there is one answer. */
static status run(finding *f, const cli_args *args, err *e) {
    int64_t most;
    const char *path = NULL;
    TRY(cli_int(args, "most", 5, 1, 50, &most, e));
    TRY(layouts_find(f, args, (finding_wish){(int)most, cli_has(args, "exact")}, e));
    if (cli_has(args, "write") || args->output) {
        path = path_for(f->a, args);
        TRY(write_config(f, args, path, e));
    }
    if (args->json)
        print_json(f);
    else
        print_table(f);
    if (path && !args->json) printf("\n%s has the first of them.\n", path);
    return ST_OK;
}

static status cmd_plan_search(const cli_args *args, err *e) {
    finding f = {.n_phases = 0};
    status st = run(&f, args, e);
    layouts_free(&f);
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
