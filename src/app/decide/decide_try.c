/* Reading order: decide_try; the three trials; a command of this program as a child. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/decide/decide.h"
#include "app/frame/child.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "eval/metric.h"
#include "run/folder.h"

enum { TRIALS = 3, WORDS = 64 };

typedef struct trial {
    const char *name; /* "zero-shot" */
    bool done;
    char why[256]; /* it was not done */
    double score, stderr_;
    char command[1024];
} trial;

typedef struct trying {
    const cli_args *args;
    const char *folder;
    char metric[64]; /* "acc,none", of the first trial for the others */
    bool falls;      /* less of it is better */
    double target, minutes;
    int64_t fewshot, steps;
    bool shots; /* the tasks take examples */
    trial trial[TRIALS];
} trying;

/* ---- a child ---- */

typedef struct words {
    const char *word[WORDS];
    int n;
} words;

static void say(words *w, const char *a, const char *b) {
    if (w->n + 3 > WORDS) return;
    w->word[w->n++] = a;
    if (b) w->word[w->n++] = b;
    w->word[w->n] = NULL;
}

static void note(const words *w, char out[1024]) {
    size_t n = 0;
    for (int i = 0; i < w->n && n < 1023; i++)
        n += (size_t)snprintf(out + n, 1024 - n, "%s%s", i ? " " : "", w->word[i]);
}

static status adopt(const json_t *last, int code, err *e) {
    const json_t *o = json_object_get(last, "error");
    const char *message = json_string_value(json_object_get(o, "message"));
    status st = err_at(e, code < ST_STOPPED ? (status)code : ST_FAILED,
                       json_string_value(json_object_get(o, "where")), "%s",
                       message ? message : "a command ended without saying why");
    const char *hint = json_string_value(json_object_get(o, "hint"));
    return hint && *hint ? err_hint(e, "%s", hint) : st;
}

/* Runs it; *last: its last line. After so many minutes it is told to stop with what it has (0: never); that is no failure. */
static status run(const trying *t, const words *w, double minutes, json_t **last, err *e) {
    char log[4096];
    child *c;
    int64_t began = clock_now_ns();
    bool told = false;
    status st = ST_OK;
    *last = NULL;
    snprintf(log, sizeof log, "%s/decide.log", t->folder);
    TRY(child_start(&c, w->word, NULL, log, e));
    for (json_t *line = NULL; st == ST_OK;) {
        st = child_read(c, &line, e);
        if (st != ST_OK || !line) break;
        json_decref(*last);
        *last = line;
        if (minutes > 0 && !told && clock_since_s(began) > 60 * minutes) {
            child_signal(c, SIGTERM);
            told = true;
        }
    }
    if (st != ST_OK) {
        child_abandon(c);
        return st;
    }
    int code = child_end(c);
    if (code == ST_OK || (told && code == ST_STOPPED)) return ST_OK;
    return adopt(*last, code, e);
}

/* ---- scores ---- */

/* Of a key of results: "word_perplexity,none". */
static bool is_loss(const char *key) {
    size_t n = strcspn(key, ",");
    for (int m = 0; m < METRIC_COUNT; m++)
        if (strlen(eval_metric_names[m]) == n && strncmp(key, eval_metric_names[m], n) == 0)
            return eval_is_loss((eval_metric)m);
    return false;
}

static bool reaches(const trying *t, const trial *k) {
    return k->done && (t->falls ? k->score <= t->target : k->score >= t->target);
}

/* The mean over tasks of one metric: that which was asked for, else the first of the first task that is not an error. */
static status read_score(trying *t, const json_t *answer, trial *to, err *e) {
    json_t *results = json_object_get(answer, "results"), *task, *value;
    const char *name, *key, *want = cli_value(t->args, "metric");
    double sum = 0, squares = 0;
    int n = 0;
    json_object_foreach(results, name, task) {
        json_object_foreach(task, key, value) {
            bool number = json_is_number(value) && strchr(key, ',') && !strstr(key, "stderr");
            size_t len = want ? strlen(want) : 0;
            bool wanted = !want || (strncmp(key, want, len) == 0 && (key[len] == ',' || !key[len]));
            if (!*t->metric && number && wanted) snprintf(t->metric, sizeof t->metric, "%s", key);
        }
        const json_t *score = json_object_get(task, t->metric);
        char deviation[96];
        size_t head = strcspn(t->metric, ",");
        snprintf(deviation, sizeof deviation, "%.*s_stderr%s", (int)head, t->metric,
                 t->metric + head);
        double d = json_number_value(json_object_get(task, deviation));
        if (!*t->metric || !json_is_number(score))
            return err_at(e, ST_USAGE, "--metric", "task %s has no score '%s'", name,
                          want ? want : t->metric);
        sum += json_number_value(score);
        squares += d * d;
        n++;
    }
    if (n == 0) return err_at(e, ST_USAGE, "--tasks", "there are no results");
    t->falls = is_loss(t->metric);
    to->done = true;
    to->score = sum / n;
    to->stderr_ = sqrt(squares) / n;
    return ST_OK;
}

static status score(trying *t, const char *model, int64_t shots, trial *to, err *e) {
    char number[32];
    const char *data = cli_value(t->args, "task-data"), *limit = cli_value(t->args, "limit");
    words w = {.n = 0};
    json_t *last = NULL;
    say(&w, "athanor", "eval");
    say(&w, model, NULL);
    say(&w, "--tasks", cli_value(t->args, "tasks"));
    if (data) say(&w, "--data", data);
    if (limit) say(&w, "--limit", limit);
    snprintf(number, sizeof number, "%ld", (long)shots);
    if (t->shots) say(&w, "--num-fewshot", number);
    note(&w, to->command);
    say(&w, "--json", NULL);
    status st = run(t, &w, 0, &last, e);
    if (st == ST_OK) st = read_score(t, last, to, e);
    json_decref(last);
    return st;
}

/* ---- trials ---- */

static void show(const trying *t, const trial *k) {
    if (t->args->json) return;
    if (k->done)
        printf("  %-12s %.4f +- %.4f  %s\n", k->name, k->score, k->stderr_,
               reaches(t, k) ? "reaches the target" : "");
    else
        printf("  %-12s %s\n", k->name, k->why);
    fflush(stdout);
}

/* The first of the tasks that has its prompts written out, and so takes no further examples; false: none has. */
static bool is_written_out(const char *tasks, char *name, size_t size) {
    for (const char *at = tasks; *at;) {
        size_t n = strcspn(at, ",");
        snprintf(name, size, "%.*s", (int)n, at);
        const char *end = strrchr(name, '.');
        bool file = end && (strcmp(end, ".yaml") == 0 || strcmp(end, ".yml") == 0);
        if (!file && (file_exists(name) || file_is_dir(name))) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static status try_shots(trying *t, err *e) {
    trial *zero = &t->trial[0], *few = &t->trial[1];
    char name[200];
    err why;
    status st = ST_OK;
    const char *model = cli_value(t->args, "try");
    t->shots = !is_written_out(cli_value(t->args, "tasks"), name, sizeof name);
    TRY(score(t, model, 0, zero, e));
    show(t, zero);
    if (!t->shots)
        snprintf(few->why, sizeof few->why, "not done: the prompts of %s are written out", name);
    else if (t->fewshot == 0)
        snprintf(few->why, sizeof few->why, "not done: --fewshot 0");
    else
        st = score(t, model, t->fewshot, few, &why);
    if (st == ST_USAGE) /* the same tasks were scored without examples: there are too few of them */
        snprintf(few->why, sizeof few->why, "not done: %.200s", why.message);
    else if (st != ST_OK && e)
        *e = why;
    if (st != ST_OK && st != ST_USAGE) return st;
    show(t, few);
    return ST_OK;
}

/* The config of the adapter; keys of the command line come after it. */
static status write_config(const trying *t, const char *path, err *e) {
    strbuf text = {0};
    char name[4096];
    snprintf(name, sizeof name, "%s/adapter", t->folder);
    strbuf_puts(&text, "run: ");
    json_put_text(&text, name);
    strbuf_puts(&text, "\nmodel: {from: ");
    json_put_text(&text, cli_value(t->args, "try"));
    strbuf_puts(&text, "}\ndata: {train: [{path: ");
    json_put_text(&text, cli_value(t->args, "examples-file"));
    strbuf_printf(&text,
                  "}]}\ntrain: {steps: %ld, seq_len: 512, global_batch_size: 8}\n"
                  "lora: {rank: 16, alpha: 32}\noptim: {lr: 2.0e-4}\n",
                  (long)t->steps);
    status st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

/* A folder that has the adapter of another try: `train` would take --fresh, which there is not here. */
static status say_other(const char *adapter, status st, err *e) {
    if (st != ST_USAGE || !e || !strstr(e->hint, "--fresh")) return st;
    return err_hint(e, "name another folder with -o, or remove %s", adapter);
}

static status try_adapter(trying *t, err *e) {
    trial *k = &t->trial[2];
    char file[4096], adapter[4096];
    words w = {.n = 0};
    json_t *last = NULL;
    if (!cli_has(t->args, "examples-file")) {
        snprintf(k->why, sizeof k->why, "not done: --examples-file FILE has what it would learn");
        show(t, k);
        return ST_OK;
    }
    snprintf(file, sizeof file, "%s/adapter.yaml", t->folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", t->folder);
    TRY(write_config(t, file, e));
    say(&w, "athanor", "train");
    say(&w, file, NULL);
    for (int i = 0; i < t->args->n_overrides; i++) say(&w, t->args->overrides[i], NULL);
    say(&w, "--json", NULL);
    status st = say_other(adapter, run(t, &w, t->minutes, &last, e), e);
    json_decref(last);
    if (st == ST_OK) st = score(t, adapter, 0, k, e);
    if (st == ST_OK) show(t, k);
    return st;
}

/* ---- the verdict ---- */

/* The first trial, in the order of their cost, that reaches the target. */
static const trial *best(const trying *t) {
    for (int i = 0; i < TRIALS; i++)
        if (reaches(t, &t->trial[i])) return &t->trial[i];
    return NULL;
}

static const char *verdict_of(const trying *t) {
    const trial *k = best(t);
    if (k) return k == &t->trial[2] ? "tune" : "prompt";
    return t->trial[2].done ? "not-reached" : "unknown";
}

static const char *next_of(const trying *t) {
    const char *v = verdict_of(t);
    if (strcmp(v, "prompt") == 0) return "athanor decide --prompting yes";
    if (strcmp(v, "tune") == 0)
        return "athanor decide --prompting no --tuning yes --examples conversations";
    if (strcmp(v, "unknown") == 0)
        return "athanor decide --try MODEL --tasks TASKS --target X --examples-file FILE";
    return "athanor decide --prompting no --tuning no";
}

static void print_verdict(const trying *t) {
    if (t->args->json) {
        json_t *list = json_array();
        for (int i = 0; i < TRIALS; i++) {
            const trial *k = &t->trial[i];
            json_t *o = json_pack("{s:s,s:b}", "name", k->name, "done", (int)k->done);
            if (k->done)
                json_object_update_new(o, json_pack("{s:f,s:f,s:o}", "score", k->score, "stderr",
                                                    k->stderr_, "command", json_cstr(k->command)));
            else
                json_object_set_new(o, "why", json_cstr(k->why));
            json_array_append_new(list, o);
        }
        cli_print_json(json_pack("{s:s,s:s,s:b,s:f,s:o,s:s}", "verdict", verdict_of(t), "metric",
                                 t->metric, "higher_is_better", (int)!t->falls, "target", t->target,
                                 "trials", list, "command", next_of(t)));
        return;
    }
    const trial *k = best(t);
    if (k)
        printf("%s reaches %.4g of %s: no more is needed.\n", k->name, t->target, t->metric);
    else if (t->trial[2].done)
        printf("None of them reaches %.4g of %s: more or better examples, a larger model, or "
               "pretraining.\n",
               t->target, t->metric);
    else
        printf("Prompting does not reach %.4g of %s; what tuning does is not known yet.\n",
               t->target, t->metric);
    printf("next:\n  %s\n", next_of(t));
}

/* What a failed try has made in and above its folder goes away again, but for an adapter that can go on. nearest: which of these
 * folders was there. */
static void leave_nothing(const trying *t, const char *nearest) {
    char path[4096];
    snprintf(path, sizeof path, "%s/adapter", t->folder);
    if (strcmp(t->folder, nearest) == 0 || run_is_run(path)) return;
    if (file_remove_tree(t->folder, NULL) != ST_OK)
        log_warn("%s was made and could not be removed", t->folder);
    snprintf(path, sizeof path, "%s", t->folder);
    for (char *end = strrchr(path, '/'); end && end > path; end = strrchr(path, '/')) {
        *end = '\0';
        if (strcmp(path, nearest) == 0 || rmdir(path) != 0) return;
    }
}

static status try_all(trying *t, err *e) {
    TRY(file_make_dirs(t->folder, e));
    if (!t->args->json)
        printf("%s on %s, target %.4g\n", cli_value(t->args, "try"), cli_value(t->args, "tasks"),
               t->target);
    TRY(try_shots(t, e));
    /* Where prompting reaches it, nothing is trained. */
    if (!best(t)) return try_adapter(t, e);
    snprintf(t->trial[2].why, sizeof t->trial[2].why, "not done: prompting reaches the target");
    return ST_OK;
}

status decide_try(const cli_args *args, err *e) {
    trying t = {.args = args,
                .folder = args->output ? args->output : "runs/decide",
                .trial = {{.name = "zero-shot"}, {.name = "few-shot"}, {.name = "adapter"}}};
    if (!cli_has(args, "target")) {
        err_at(e, ST_USAGE, "--target", "which score is good enough?");
        return err_hint(e, "--target 0.7");
    }
    TRY(cli_num(args, "target", 0, 0, 1e6, &t.target, e));
    TRY(cli_num(args, "minutes", 30, 0.01, 1e6, &t.minutes, e));
    TRY(cli_int(args, "fewshot", 5, 0, 1000, &t.fewshot, e));
    TRY(cli_int(args, "steps", 200, 1, 1000000000, &t.steps, e));
    if (!cli_has(args, "examples-file"))
        TRY(cli_refuse_overrides(args, "without --examples-file nothing is trained", e));
    if (cli_override(args, "run")) {
        err_at(e, ST_USAGE, "run", "the adapter's run is scored where this command puts it");
        return err_hint(e, "-o FOLDER says where: its run is FOLDER/adapter");
    }
    arena *a = arena_new("decide");
    const char *nearest = file_nearest_dir(a, t.folder);
    status st = try_all(&t, e);
    if (st == ST_OK)
        print_verdict(&t);
    else
        leave_nothing(&t, nearest);
    arena_free(a);
    return st;
}
