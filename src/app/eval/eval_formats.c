/* What quantising costs: the scores of a model beside those of its weights rounded to other formats.
 *
 * Each format is written to a GGUF file, as `athanor export` does it, and that file is evaluated: so what is measured
 * is what will be served. One file is there at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/eval/eval_view.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "interchange/interchange.h"

enum { MOST_FORMATS = 8, MOST_ROWS = 1024 };

typedef struct formats {
    const eval_task *tasks;
    int n_tasks;
    const char *name[MOST_FORMATS + 1]; /* the first: the model as it is */
    uint64_t bytes[MOST_FORMATS + 1];
    double value[MOST_FORMATS + 1][MOST_ROWS];
    int n, n_rows; /* n: with the first */
    eval_widths w;
    json_t *out; /* NULL: a table */
} formats;

/* Calls `visit` for the scores of all tasks in one order. */
static void each_row(formats *f,
                     void (*visit)(formats *f, const eval_task *t, eval_metric m, int k)) {
    f->n_rows = 0;
    for (int i = 0; i < f->n_tasks; i++)
        for (int m = 0; m < METRIC_COUNT; m++)
            for (int k = 0; k < f->tasks[i].n_filters && f->tasks[i].metrics >> m & 1; k++) {
                if (f->n_rows == MOST_ROWS) return;
                visit(f, &f->tasks[i], (eval_metric)m, k);
                f->n_rows++;
            }
}

static void keep_row(formats *f, const eval_task *t, eval_metric m, int k) {
    f->value[f->n][f->n_rows] = eval_measure(t, m, k).value;
}

static void keep(formats *f, const char *name, uint64_t bytes) {
    each_row(f, keep_row);
    f->name[f->n] = name;
    f->bytes[f->n++] = bytes;
}

/* ---- the report ---- */

/* Of perplexities and bits the rise in shares, of all others the difference. */
static void print_row(formats *f, const eval_task *t, eval_metric m, int k) {
    const double first = f->value[0][f->n_rows];
    const eval_widths *w = &f->w;
    int left = w->task + 1 + w->metric + 1 + w->filter;
    printf("%-*s %-*s %-*s", w->task, t->name, w->metric, eval_metric_names[m], w->filter,
           t->filter[k].name);
    for (int i = 0; i < f->n; i++) printf(" %10.4f", f->value[i][f->n_rows]);
    printf("\n%*s %-*s %10s", w->task, "", left - w->task - 1, "  change", "");
    for (int i = 1; i < f->n; i++) {
        double now = f->value[i][f->n_rows];
        if (eval_is_mean(m))
            printf(" %+10.4f", now - first);
        else
            printf(" %+8.2f %%", 100 * (now / first - 1));
    }
    printf("\n");
}

static void print_table(formats *f) {
    f->w = eval_widths_of(f->tasks, f->n_tasks);
    int left = f->w.task + 1 + f->w.metric + 1 + f->w.filter;
    printf("\n%-*s", left, "weights");
    for (int i = 0; i < f->n; i++) printf(" %10s", f->name[i]);
    printf("\n%-*s %10s", left, "file, MB", "");
    for (int i = 1; i < f->n; i++) printf(" %10.1f", (double)f->bytes[i] / 1e6);
    printf("\n");
    each_row(f, print_row);
}

/* ---- one format ---- */

static status measure_format(formats *f, const char *model, const char *base, const char *format,
                             const char *folder, eval_model_run run, void *ctx, err *e) {
    interchange_options opt = {.gguf = true, .format = format, .base = base};
    interchange_report r;
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, format);
    status st = interchange_run(model, path, &opt, &r, e);
    uint64_t bytes = r.bytes;
    interchange_report_free(&r);
    if (st == ST_OK) st = run(ctx, path, e);
    if (st != ST_OK) return err_context(e, "weights in %s", format);
    TRY(file_remove_tree(path, e));
    keep(f, format, bytes);
    if (f->out)
        json_array_append_new(f->out, json_pack("{s:s,s:I,s:o}", "format", format, "bytes",
                                                (json_int_t)bytes, "results",
                                                eval_results_json(f->tasks, f->n_tasks)));
    return ST_OK;
}

/* In a folder of its own, which is removed whatever happens. */
static status measure_all(formats *f, const char *model, const char *base, char *names,
                          eval_model_run run, void *ctx, err *e) {
    char folder[4096], *rest;
    snprintf(folder, sizeof folder, "%s/athanor-formats-XXXXXX", file_temp_dir());
    if (!mkdtemp(folder)) return err_errno(e, folder, "cannot make a folder for the formats");
    status st = ST_OK;
    for (char *s = strtok_r(names, ",", &rest); s && st == ST_OK; s = strtok_r(NULL, ",", &rest))
        st = measure_format(f, model, base, s, folder, run, ctx, e);
    status removed = file_remove_tree(folder, st == ST_OK ? e : NULL);
    return st == ST_OK ? removed : st;
}

status eval_formats_check(const char *names, err *e) {
    char *list = xstrdup(names), *rest;
    status st = ST_OK;
    int n = 0;
    for (char *s = strtok_r(list, ",", &rest); s && st == ST_OK; s = strtok_r(NULL, ",", &rest)) {
        st = interchange_check_format(&(interchange_options){.gguf = true, .format = s}, e);
        if (++n > MOST_FORMATS) st = err_set(e, ST_USAGE, "more than %d formats", MOST_FORMATS);
    }
    free(list);
    if (st == ST_OK && n == 0) st = err_set(e, ST_USAGE, "--formats names none");
    return st == ST_OK ? ST_OK : err_where(e, "command line (--formats)");
}

status eval_formats(const char *model, const char *base, const char *names, const eval_task *tasks,
                    int n, eval_model_run run, void *ctx, json_t *out, err *e) {
    formats *f = xcalloc(1, sizeof *f);
    char *list = xstrdup(names);
    f->tasks = tasks;
    f->n_tasks = n;
    f->out = out;
    keep(f, "as it is", 0);
    status st = measure_all(f, model, base, list, run, ctx, e);
    if (st == ST_OK && !out) print_table(f);
    free(list);
    free(f);
    return st;
}
