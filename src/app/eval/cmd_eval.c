/* athanor eval: how well a model does tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/frame/cli.h"
#include "app/train/train_signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/metric.h"
#include "eval/run.h"

enum { MOST_TASKS = 256 };

typedef struct evaluation {
    arena *a;
    eval_task task[MOST_TASKS];
    int n;
    open_model m;
    score_stats stats;
    bool live; /* standard error is a terminal */
} evaluation;

/* ---- tasks ---- */

static status open_tasks(evaluation *v, const cli_args *args, err *e) {
    eval_source from = {.data = cli_value(args, "data"),
                        .no_alone = cli_has(args, "no-unconditional")};
    TRY(cli_int(args, "num-fewshot", -1, 0, 1024, &from.n_few, e));
    TRY(cli_int(args, "limit", 0, 1, INT32_MAX, &from.limit, e));
    char *names = arena_strdup(v->a, cli_value(args, "tasks")), *rest;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (v->n == MOST_TASKS) return err_set(e, ST_USAGE, "more than %d tasks", MOST_TASKS);
        TRY(eval_task_open(&v->task[v->n++], name, &from, e));
        for (int i = 0; i + 1 < v->n; i++)
            if (strcmp(v->task[i].name, v->task[v->n - 1].name) == 0)
                return err_set(e, ST_USAGE, "two tasks have the name %s", v->task[i].name);
    }
    return v->n ? ST_OK : err_set(e, ST_USAGE, "--tasks names no task");
}

/* ---- results ---- */

static status write_samples(const evaluation *v, const char *path, err *e) {
    strbuf out = {0};
    for (int t = 0; t < v->n; t++)
        for (int32_t i = 0; i < v->task[t].n; i++) {
            json_t *o = eval_sample_json(&v->task[t], &v->task[t].doc[i]);
            json_format(&out, o, 0);
            strbuf_putc(&out, '\n');
            json_decref(o);
        }
    status st = file_write_atomic(path, strbuf_cstr(&out), out.len, e);
    strbuf_free(&out);
    return st;
}

static void print_table(const evaluation *v) {
    printf("%-24s %-16s %-16s %9s %9s %7s\n", "task", "metric", "filter", "value", "+- stderr",
           "items");
    for (int i = 0; i < v->n; i++)
        for (int m = 0; m < METRIC_COUNT; m++)
            for (int f = 0; f < v->task[i].n_filters && v->task[i].metrics >> m & 1; f++) {
                eval_score s = eval_measure(&v->task[i], (eval_metric)m, f);
                printf("%-24s %-16s %-16s %9.4f %9.4f %7ld\n", v->task[i].name,
                       eval_metric_names[m], v->task[i].filter[f].name, s.value, s.stderr_,
                       (long)s.n);
            }
}

static void print_results(const evaluation *v, bool json, double seconds) {
    if (!json) {
        print_table(v);
        return;
    }
    json_t *results = json_object();
    for (int i = 0; i < v->n; i++)
        json_object_set_new(results, v->task[i].name, eval_result_json(&v->task[i]));
    cli_print_json(json_pack("{s:o,s:o,s:{s:I,s:I,s:I}}", "results", results, "seconds",
                             json_f64(seconds), "scored", "passes", (json_int_t)v->stats.passes,
                             "rows", (json_int_t)v->stats.rows, "rows_alone",
                             (json_int_t)v->stats.rows_alone));
}

static void show_progress(void *ctx, const eval_task *t, int64_t done, int64_t all) {
    const evaluation *v = ctx;
    if (!v->live) return;
    fprintf(stderr, "\r%s: %ld of %ld%s", t->name, (long)done, (long)all, done < all ? "" : "\n");
    fflush(stderr);
}

/* ---- the command ---- */

static status evaluate(evaluation *v, const cli_args *args, err *e) {
    const char *samples = cli_value(args, "samples");
    int64_t threads, most_tok;
    TRY(cli_int(args, "threads", 0, 1, 1024, &threads, e));
    TRY(cli_int(args, "max-length", 0, 2, INT32_MAX, &most_tok, e));
    TRY(open_tasks(v, args, e));
    TRY(open_model_read(&v->m, args->inputs[0], (int)threads, e));
    train_catch_signals();
    eval_options opt = {
        .most_tok = most_tok, .interrupt = train_stop_flag(), .progress = show_progress, .ctx = v};
    int64_t began = clock_now_ns();
    TRY(eval_run(&v->m, v->task, v->n, &opt, &v->stats, e));
    if (samples) TRY(write_samples(v, samples, e));
    print_results(v, args->json, clock_since_s(began));
    return ST_OK;
}

static status cmd_eval(const cli_args *args, err *e) {
    evaluation *v = xcalloc(1, sizeof *v);
    v->a = arena_new("eval");
    v->live = isatty(STDERR_FILENO) && !args->json;
    status st = evaluate(v, args, e);
    for (int i = 0; i < v->n; i++) eval_task_close(&v->task[i]);
    open_model_close(&v->m);
    arena_free(v->a);
    free(v);
    return st;
}

static const cli_option options[] = {
    {"tasks", "A,B", "folders of OLMES requests, task YAMLs, JSONL files"},
    {"data", "FOLDER", "where the data files of tasks are (beside the task file)"},
    {"num-fewshot", "N", "examples before each document of a task YAML (as it says)"},
    {"limit", "N", "only the first N documents of each task"},
    {"samples", "OUT.jsonl", "write every document with its scores or answer"},
    {"no-unconditional", NULL, "do not score continuations alone; no acc_mutual_info"},
    {"max-length", "N", "tokens of context at most (what the model was made for)"},
    {"threads", "N", "threads (all cores)"},
    {0}};

static const cli_rule rules[] = {{0}};

const cli_command command_eval = {
    .name = "eval",
    .summary = "score a model on tasks",
    .usage = "MODEL --tasks A,B [--limit N] [--data FOLDER] [--samples OUT.jsonl]",
    .min_inputs = 1,
    .max_inputs = 1,
    .run = cmd_eval,
    .options = options,
    .rules = rules,
    .about = "A score depends on the model and the document alone, not on the other documents.\n"};
