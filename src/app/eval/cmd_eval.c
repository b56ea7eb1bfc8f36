/* athanor eval: how well a model does tasks, alone or beside another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/eval/eval_view.h"
#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "app/train/train_signals.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "eval/adapters.h"
#include "eval/run.h"
#include "io/model_source.h"
#include "op/machine.h"
#include "run/folder.h"
#include "train/setup.h"

enum { MOST_TASKS = 256 };

typedef struct evaluation {
    arena *a;
    const cli_args *args;
    eval_task task[MOST_TASKS];
    int n;
    int threads;
    int64_t most_tok, shown; /* shown: documents of each task that are printed */
    score_stats stats;
    const char *precision; /* in which the model has computed */
    bool live;             /* standard error can show a live line */
    struct {
        const eval_task *task;
        int64_t first, began_ns; /* how many were done when it was first shown */
    } shows;
    bool keeps_samples; /* of the model at hand: of another one differences alone are wanted */
} evaluation;

/* ---- tasks ---- */

static bool has_kind(const evaluation *v, eval_kind kind) {
    for (int i = 0; i < v->n; i++)
        if (v->task[i].kind == kind) return true;
    return false;
}

/* What is said of answers, where none of the tasks has any, would leave scores as they are. */
static status check_answers(const evaluation *v, err *e) {
    static const char *const of_answers[] = {"repeats", "chat", "temperature", "keep-reasoning"};
    bool talks = has_kind(v, EVAL_DIALOGUE);
    if (has_kind(v, EVAL_ANSWER)) return ST_OK;
    for (int i = 0; i < (talks ? 1 : ARRAY_LEN(of_answers)); i++) {
        if (!cli_has(v->args, of_answers[i])) continue;
        err_set(e, ST_USAGE, "--%s does nothing: %s", of_answers[i],
                talks ? "dialogues are held once"
                      : "none of the tasks has the model write an answer");
        err_where(e, "--%s", of_answers[i]);
        return err_hint(e, "leave --%s out", of_answers[i]);
    }
    return ST_OK;
}

static status open_tasks(evaluation *v, err *e) {
    eval_source from = {.data = cli_value(v->args, "data"),
                        .no_alone = cli_has(v->args, "no-unconditional"),
                        .keep_reasoning = cli_has(v->args, "keep-reasoning")};
    double temperature;
    TRY(cli_num(v->args, "temperature", 0, 0, 100, &temperature, e));
    if (cli_has(v->args, "temperature")) from.temperature = &temperature;
    TRY(cli_int(v->args, "repeats", 0, 1, 1024, &from.repeats, e));
    TRY(cli_int(v->args, "num-fewshot", -1, 0, 1024, &from.n_few, e));
    TRY(cli_int(v->args, "limit", 0, 1, INT32_MAX, &from.limit, e));
    if (!cli_has(v->args, "tasks")) {
        err_set(e, ST_USAGE, "eval needs --tasks A,B");
        return err_hint(e, "give folders of OLMES requests, task YAMLs or JSONL files");
    }
    char *names = arena_strdup(v->a, cli_value(v->args, "tasks")), *rest;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (v->n == MOST_TASKS) return err_set(e, ST_USAGE, "more than %d tasks", MOST_TASKS);
        TRY(eval_task_open(&v->task[v->n++], name, &from, e));
        for (int i = 0; i + 1 < v->n; i++)
            if (strcmp(v->task[i].name, v->task[v->n - 1].name) == 0)
                return err_set(e, ST_USAGE, "two tasks have the name %s", v->task[i].name);
    }
    return v->n ? check_answers(v, e) : err_set(e, ST_USAGE, "--tasks names no task");
}

/* The run to which a model belongs: it is one, or lies in RUN/checkpoints. NULL: none. */
static char *run_of(const evaluation *v, const char *model) {
    const char *const up[] = {".", "../..", ".."};
    for (int i = 0; i < ARRAY_LEN(up); i++) {
        char *path = path_join(v->a, model, up[i]);
        if (run_is_run(path)) return path;
    }
    return NULL;
}

/* What a run is compared by while it is made must not be what it is judged by in the end. */
static status check_lock(const evaluation *v, const config *run, const char *model, err *e) {
    for (int i = 0; run && run->eval.lock_test && i < v->n; i++) {
        if (!v->task[i].test_split) continue;
        err_at(e, ST_USAGE, "eval.lock_test",
               "the task %s is of a test split, which the run of %s keeps locked", v->task[i].name,
               model);
        return err_hint(
            e,
            "choose by validation splits; for the last judgement train with eval.lock_test=false");
    }
    return ST_OK;
}

/* ---- running ---- */

static void show_progress(void *ctx, const eval_task *t, int64_t done, int64_t all) {
    evaluation *v = ctx;
    if (!v->live) return;
    if (v->shows.task != t) {
        v->shows.task = t;
        v->shows.first = done;
        v->shows.began_ns = clock_now_ns();
    }
    strbuf line = {0};
    strbuf_printf(&line, "%s: %ld of %ld", t->name, (long)done, (long)all);
    double rate = (double)(done - v->shows.first) / clock_since_s(v->shows.began_ns);
    if (done < all && done > v->shows.first) {
        char eta[24];
        progress_format_duration((double)(all - done) / rate, eta);
        strbuf_printf(&line, "  %.3g a second  eta %s", rate, eta);
    }
    progress_show(stderr, line.data);
    if (done >= all) fputc('\n', stderr);
    strbuf_free(&line);
}

/* The files of a folder, or a file, with their sizes and times. */
static void put_files(const evaluation *v, const char *path, strbuf *out) {
    char **names;
    bool is_dir = file_is_dir(path);
    int n = 0;
    if (is_dir && file_list_dir(v->a, path, &names, &n, NULL) != ST_OK) n = 0;
    for (int i = 0; i < n || (i == 0 && !is_dir); i++) {
        struct stat st;
        const char *file = is_dir ? path_join(v->a, path, names[i]) : path;
        if (stat(file, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        strbuf_printf(out, "%s %ld %ld.%09ld\n", path_base(file), (long)st.st_size,
                      (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
}

/* What decides a score beside what is asked: weights, those of an adapter's base model, precision. */
static uint64_t fingerprint(const evaluation *v, const open_model *m, const char *path) {
    strbuf all = {0};
    put_files(v, m->dir ? m->dir : path, &all);
    if (m->base_dir) put_files(v, m->base_dir, &all);
    strbuf_puts(&all, open_model_precision(m->compute));
    uint64_t hash = hash_bytes(strbuf_cstr(&all), all.len);
    strbuf_free(&all);
    return hash;
}

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

/* With --samples an evaluation that was stopped goes on: what it had computed is in OUT.part, of all models, until
 * the command has ended. */
static const char *part_of(const evaluation *v) {
    const char *samples = cli_value(v->args, "samples");
    return samples ? arena_printf(v->a, "%s.part", samples) : NULL;
}

static status run_tasks(evaluation *v, open_model *m, const char *path, eval_options *opt, err *e) {
    const char *samples = cli_value(v->args, "samples");
    eval_journal journal = {0};
    status st = ST_OK;
    if (samples) {
        st = eval_journal_open(&journal, part_of(v), fingerprint(v, m, path), e);
        opt->journal = &journal;
    }
    if (st == ST_OK) st = eval_run(m, v->task, v->n, opt, &v->stats, e);
    if (st == ST_OK && samples && v->keeps_samples) st = write_samples(v, samples, e);
    if (samples) eval_journal_close(&journal);
    if (st == ST_STOPPED && samples) err_hint(e, "the same command goes on where this one ended");
    return st;
}

/* The model's chat template, where a task or an option asks for it. */
static status open_template(const evaluation *v, const open_model *m, const char *path,
                            chat_template **out, err *e) {
    const char *file = cli_value(v->args, "template");
    bool wanted = cli_has(v->args, "chat");
    for (int i = 0; i < v->n; i++) wanted |= v->task[i].kind == EVAL_DIALOGUE;
    *out = NULL;
    if (!wanted) return ST_OK;
    const char *dir = open_model_text_dir(m);
    TRY(chat_template_load_open(out, dir ? dir : path, m->gguf ? m->tok : NULL, file, e));
    return chat_template_check(file, m->tok, path, e);
}

/* A run that widens bf16 to multiply it has other bits than one that multiplies it as it is. */
static void multiply_as(const config *run, open_model *m) {
    bool widens =
        run && m->compute == DT_BF16 && run->train.precision.arithmetic == CONFIG_ARITHMETIC_FP32;
    if (widens) dev_limit(m->dev, machine_isa(dev_isa(m->dev), ARITH_WIDE), 0);
}

/* An adapter of a run computes as the run does, whatever format its base model is stored in. */
static const char *precision_of(const evaluation *v, const config *run, const open_model *m) {
    const char *asked = cli_value(v->args, "precision");
    bool is_auto = !asked || strcmp(asked, "auto") == 0;
    bool adapts = run && m->adapter.dir;
    return is_auto && adapts ? open_model_precision(setup_compute(run)) : asked;
}

static status run_model(void *ctx, const char *path, err *e) {
    evaluation *v = ctx;
    open_model m = {0};
    chat_template *template = NULL;
    eval_options opt = {.most_tok = v->most_tok,
                        .chat = cli_has(v->args, "chat"),
                        .system = cli_value(v->args, "system"),
                        .interrupt = train_stop_flag(),
                        .progress = show_progress,
                        .ctx = v};
    for (int i = 0; i < v->n; i++) eval_task_reset(&v->task[i]);
    v->shows.task = NULL; /* another model has another rate */
    const char *base = cli_value(v->args, "base");
    char *run = run_of(v, path);
    config *c = NULL;
    status st = run ? run_load_config(&c, run, e) : ST_OK;
    if (st == ST_OK) st = check_lock(v, c, path, e);
    if (st == ST_OK)
        st = open_model_read_on(&m, path, base, cli_value(v->args, "device"), v->threads, e);
    if (st == ST_OK) st = open_model_set_precision(&m, precision_of(v, c, &m), e);
    if (st == ST_OK) multiply_as(c, &m);
    if (st == ST_OK) st = open_template(v, &m, path, &template, e);
    opt.template = template;
    v->precision = open_model_precision(m.compute);
    if (st == ST_OK) st = run_tasks(v, &m, path, &opt, e);
    chat_template_free(template);
    open_model_close(&m);
    config_free(c);
    return st;
}

/* ---- results ---- */

static void report(const evaluation *v, json_t *out) {
    if (out) {
        json_object_set_new(out, "results", eval_results_json(v->task, v->n));
        json_object_set_new(out, "precision", json_string(v->precision));
        json_object_set_new(out, "scored",
                            json_pack("{s:I,s:I,s:I}", "passes", (json_int_t)v->stats.passes,
                                      "rows", (json_int_t)v->stats.rows, "rows_alone",
                                      (json_int_t)v->stats.rows_alone));
        return;
    }
    eval_print_results(v->task, v->n);
    for (int t = 0; t < v->n; t++)
        for (int32_t i = 0; i < v->task[t].n && i < v->shown; i++)
            eval_print_doc(&v->task[t], &v->task[t].doc[i]);
}

/* The other model on the same documents, and the differences to it. */
static status compare_with(evaluation *v, const char *other, json_t *out, err *e) {
    eval_kept a = eval_keep_scores(v->task, v->n), b = {0};
    status st = run_model(v, other, e);
    if (st == ST_OK) b = eval_keep_scores(v->task, v->n);
    if (st == ST_OK && out) {
        json_object_set_new(out, "results_against", eval_results_json(v->task, v->n));
        json_object_set_new(out, "differences", eval_differences_json(&a, &b));
    } else if (st == ST_OK) {
        eval_print_differences(&a, &b);
    }
    eval_kept_free(&a);
    eval_kept_free(&b);
    return st;
}

static status compare_formats(evaluation *v, const char *names, json_t *out, err *e) {
    json_t *list = out ? json_array() : NULL;
    if (out) json_object_set_new(out, "formats", list);
    return eval_formats(v->args->inputs[0], cli_value(v->args, "base"), names, v->task, v->n,
                        run_model, v, list, e);
}

static status evaluate(evaluation *v, json_t *out, err *e) {
    const char *other = cli_value(v->args, "against");
    const char *formats = cli_value(v->args, "formats");
    TRY(cli_threads(v->args, &v->threads, e));
    TRY(cli_int(v->args, "max-length", 0, 2, INT32_MAX, &v->most_tok, e));
    TRY(cli_int(v->args, "show", 0, 1, INT32_MAX, &v->shown, e));
    if (other && !file_exists(other)) { /* said before an evaluation of hours, not behind it */
        status st = model_source_missing(
            other, "give a Hugging Face folder, a run folder, an adapter or a GGUF file", e);
        err_where(e, "--against");
        return st;
    }
    if (formats) TRY(eval_formats_check(formats, e));
    TRY(open_tasks(v, e));
    train_catch_signals();
    int64_t began = clock_now_ns();
    v->keeps_samples = true;
    TRY(run_model(v, v->args->inputs[0], e));
    v->keeps_samples = false;
    report(v, out);
    if (other) TRY(compare_with(v, other, out, e));
    if (formats) TRY(compare_formats(v, formats, out, e));
    if (part_of(v)) unlink(part_of(v));
    if (out) json_object_set_new(out, "seconds", json_f64(clock_since_s(began)));
    return ST_OK;
}

static status cmd_eval(const cli_args *args, err *e) {
    evaluation *v = xcalloc(1, sizeof *v);
    json_t *out = args->json ? json_object() : NULL;
    v->a = arena_new("eval");
    v->args = args;
    v->live = progress_is_live(stderr) && !args->json;
    status st = evaluate(v, out, e);
    if (st == ST_OK && out) cli_print_json(json_incref(out));
    json_decref(out);
    for (int i = 0; i < v->n; i++) eval_task_close(&v->task[i]);
    arena_free(v->a);
    free(v);
    return st;
}

static const cli_option options[] = {
    {"tasks", "A,B", "folders of OLMES requests, task YAMLs, JSONL files, names of sets"},
    {"data", "FOLDER", "where the data files of tasks are (beside the task file)"},
    {"num-fewshot", "N", "examples before each document of a task YAML (as it says)"},
    {"limit", "N", "only the first N documents of each task"},
    {"samples", "OUT.jsonl", "write every document with its scores or answer"},
    {"show", "N", "print the first N documents of each task as the model sees them"},
    {"against", "MODEL",
     "the same with another model, and the differences with a paired bootstrap"},
    {"formats", "A,B",
     "the same with the weights in F16, BF16, Q8_0, Q4_1, Q4_0: what quantising costs"},
    {"chat", NULL, "prompts of answers are what a user says, in the model's chat template"},
    {"system", "TEXT", "with --chat: a system message before each prompt"},
    {"template", "FILE", "another chat template than the model's"},
    {"repeats", "K", "answers of a document; their mean is its score (as the task says, or 1)"},
    {"temperature", "T", "of answers (as the task says, or 0: the most likely one)"},
    {"keep-reasoning", NULL, "filters see what was thought before the answer, too"},
    {"no-unconditional", NULL, "do not score continuations alone; no acc_mutual_info"},
    {"max-length", "N", "tokens of context at most (what the model was made for)"},
    {"base", "FOLDER", "an adapter's base model (where the adapter says)"},
    {"precision", "FORMAT", "auto, fp32, bf16 or fp16: what the model computes in (auto)"},
    CLI_OPTION_DEVICE,
    CLI_OPTION_THREADS,
    {0}};

static const cli_rule rules[] = {{"system", CLI_NEEDS, "chat", "add --chat, or leave --system out"},
                                 {0}};

const cli_command command_eval = {
    .name = "eval",
    .summary = "score a model on tasks",
    .usage =
        "MODEL --tasks A,B [--limit N] [--data FOLDER] [--samples OUT.jsonl] [--against MODEL]",
    .run = cmd_eval,
    .options = options,
    .rules = rules,
    .details = eval_adapter_list,
    .about = "A score depends on the model and the document alone, not on the other documents.\n"};
