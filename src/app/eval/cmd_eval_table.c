/* athanor eval table: results of several models or checkpoints side by side, and how good the tasks
 * are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/quality.h"
#include "run/scores.h"

/* A row is a file, a column a task; NaN: the file lacks the task or its metric. */
typedef struct table {
    arena *a;
    const char *metric; /* "acc,none" */
    const char **row;   /* files */
    const char **name;  /* what they are called */
    int32_t rows;
    int64_t runs; /* the rows are checkpoints of so many runs, one run after the other */
    const char **column;
    int32_t columns, cap, cap_rows, cap_names;
    json_t **file;                   /* [rows] */
    int missing_row, missing_column; /* the first missing cell; -1: none */
} table;

/* ---- reading ---- */

static const json_t *results_of(const table *t, int row, int column) {
    return json_object_get(json_object_get(t->file[row], "results"), t->column[column]);
}

static double cell(const table *t, int row, int column) {
    return score_value(results_of(t, row, column), t->metric);
}

static double stderr_of(const table *t, int row, int column) {
    return score_error(results_of(t, row, column), t->metric);
}

static void add_columns(table *t, const json_t *results) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)results, name, v) {
        bool known = json_object_get(v, t->metric) == NULL;
        for (int i = 0; i < t->columns; i++) known |= strcmp(t->column[i], name) == 0;
        if (known) continue;
        t->column = arena_grow(t->a, t->column, t->columns, &t->cap, sizeof *t->column);
        t->column[t->columns++] = arena_strdup(t->a, name);
    }
}

static void add_row(table *t, const char *path, const char *name) {
    t->row = arena_grow(t->a, t->row, t->rows, &t->cap_rows, sizeof *t->row);
    t->name = arena_grow(t->a, t->name, t->rows, &t->cap_names, sizeof *t->name);
    t->name[t->rows] = name;
    t->row[t->rows++] = path;
}

/* "step-40.json" is 40; -1: it is no such name. */
static int64_t step_of(const char *name) {
    long step = -1;
    int end = 0;
    return sscanf(name, "step-%ld.json%n", &step, &end) == 1 && end && !name[end] ? step : -1;
}

static int by_step(const void *a, const void *b) {
    int64_t x = step_of(*(char *const *)a), y = step_of(*(char *const *)b);
    return (x > y) - (x < y);
}

/* The checkpoints of a run that it has evaluated itself, in their order. */
static status add_run(table *t, const char *run, int *rows, err *e) {
    char **name, *dir = path_join(t->a, run, "eval");
    int n = 0, before = t->rows;
    if (file_is_dir(dir)) TRY(file_list_dir(t->a, dir, &name, &n, e));
    if (n) qsort(name, (size_t)n, sizeof *name, by_step);
    for (int i = 0; i < n; i++)
        if (step_of(name[i]) >= 0)
            add_row(t, path_join(t->a, dir, name[i]),
                    arena_printf(t->a, "%s/step-%ld", path_base(path_plain(t->a, run)),
                                 (long)step_of(name[i])));
    *rows = t->rows - before;
    if (*rows) return ST_OK;
    err_at(e, ST_USAGE, run, "%s has no checkpoint that was evaluated", run);
    return err_hint(e, "a run evaluates its checkpoints by the tasks of eval.tasks");
}

static status list_rows(table *t, const cli_args *args, err *e) {
    bool judge = cli_has(args, "quality"); /* then it matters where each run begins */
    for (int i = 0, rows = 0; i < args->n_inputs; i++) {
        int before = rows;
        if (file_is_dir(args->inputs[i]))
            TRY(add_run(t, args->inputs[i], &rows, e));
        else
            add_row(t, args->inputs[i], path_base(args->inputs[i]));
        if (!judge || !before || rows == before) continue;
        err_at(e, ST_USAGE, args->inputs[i], "%s has %d evaluated checkpoints, %s %d",
               args->inputs[i], rows, args->inputs[i - 1], before);
        return err_hint(e, "give the RESULTS.json of as many checkpoints of each, and --runs N");
    }
    return ST_OK;
}

static status read_files(table *t, err *e) {
    t->file = ARENA_ARRAY(t->a, json_t *, t->rows);
    for (int i = 0; i < t->rows; i++) {
        TRY(json_read_file(&t->file[i], t->row[i], JSON_FILE_MAX_BYTES, e));
        const json_t *results = json_object_get(t->file[i], "results");
        if (!json_is_object(results)) {
            err_at(e, ST_FORMAT, t->row[i], "%s has no \"results\"", t->row[i]);
            return err_hint(e, "give what athanor eval --json printed");
        }
        add_columns(t, results);
    }
    if (t->columns == 0) return err_set(e, ST_USAGE, "no task has the metric %s", t->metric);
    t->missing_row = t->missing_column = -1;
    for (int r = t->rows - 1; r >= 0; r--)
        for (int c = t->columns - 1; c >= 0; c--)
            if (isnan(cell(t, r, c))) t->missing_row = r, t->missing_column = c;
    return ST_OK;
}

/* Tasks weigh the same. */
static double average(const table *t, int row) {
    double sum = 0;
    for (int c = 0; c < t->columns; c++) sum += cell(t, row, c);
    return sum / t->columns;
}

/* Of a run that is the rows [first, first + n). */
static eval_quality quality_of_run(const table *t, int column, const double *score, int first,
                                   int n) {
    int last = first + n - 1;
    double chance = score_chance(results_of(t, last, column));
    return eval_quality_of(score + first, n, stderr_of(t, last, column), chance);
}

/* The mean over the runs; *stability is NaN where there is one run. */
static eval_quality quality(const table *t, int column, double *stability) {
    double *score = xmalloc(sizeof *score * (size_t)t->rows);
    int runs = (int)t->runs, n = t->rows / runs;
    eval_quality mean = {0};
    for (int r = 0; r < t->rows; r++) score[r] = cell(t, r, column);
    for (int r = 0; r < runs; r++) {
        eval_quality q = quality_of_run(t, column, score, r * n, n);
        mean.monotonicity += q.monotonicity / runs;
        mean.signal += q.signal / runs;
        mean.noise += q.noise / runs;
        mean.above_chance += q.above_chance / runs;
    }
    *stability = runs > 1 ? eval_rank_stability(score, runs, n) : NAN;
    free(score);
    return mean;
}

static bool is_whole(const table *t, int column) {
    for (int r = 0; r < t->rows; r++)
        if (isnan(cell(t, r, column))) return false;
    return t->rows > t->runs;
}

/* ---- text ---- */

/* Columns are as wide as what is in them, from `least` to `most`: a table is to fit into 80. */
static int width_of(const char *const *text, int n, int least, int most) {
    int width = least;
    for (int i = 0; i < n; i++) {
        int has = (int)strnlen(text[i], (size_t)most);
        if (has > width) width = has;
    }
    return width;
}

static int name_width(const table *t) {
    return width_of(t->name, t->rows, (int)strlen(t->metric), 28);
}

static int column_width(const table *t, int c) {
    return width_of(&t->column[c], 1, 8, 14);
}

static void print_row(const table *t, int r) {
    cli_print_name(t->name[r], -name_width(t));
    for (int c = 0; c < t->columns; c++)
        isnan(cell(t, r, c)) ? printf(" %*s", column_width(t, c), "-")
                             : printf(" %*.4f", column_width(t, c), cell(t, r, c));
    t->missing_row < 0 ? printf(" %8.4f\n", average(t, r)) : printf("\n");
}

static void print_missing(const table *t) {
    printf("\nno average: ");
    cli_print_name(t->name[t->missing_row], 0);
    printf(" has no %s of ", t->metric);
    cli_print_name(t->column[t->missing_column], 0);
    putchar('\n');
}

static void print_table(const table *t) {
    printf("%-*s", name_width(t), t->metric);
    for (int c = 0; c < t->columns; c++) {
        putchar(' ');
        cli_print_name(t->column[c], column_width(t, c));
    }
    printf(t->missing_row < 0 ? " %8s\n" : "\n", "average");
    for (int r = 0; r < t->rows; r++) print_row(t, r);
    if (t->missing_row >= 0) print_missing(t);
}

static void print_quality(const table *t) {
    int width = width_of(t->column, t->columns, 4, 28);
    printf("\n%-*s %12s %7s %7s %12s%s\n", width, "task", "monotonicity", "signal", "noise",
           "above chance", t->runs > 1 ? " rank stability" : "");
    for (int c = 0; c < t->columns; c++) {
        double stability;
        if (!is_whole(t, c)) continue;
        eval_quality q = quality(t, c, &stability);
        const char *flaw = eval_quality_flaw(&q);
        cli_print_name(t->column[c], -width);
        printf(" %12.2f %7.4f %7.4f %12.1f", q.monotonicity, q.signal, q.noise, q.above_chance);
        if (t->runs > 1) printf(" %14.2f", stability);
        printf("%s%s\n", flaw ? " " : "", flaw ? flaw : "");
    }
}

/* ---- JSON ---- */

static json_t *quality_json(const table *t, int c) {
    double stability;
    eval_quality q = quality(t, c, &stability);
    const char *flaw = eval_quality_flaw(&q);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "monotonicity", json_f64(q.monotonicity),
                     "signal", json_f64(q.signal), "noise", json_f64(q.noise), "above_chance",
                     json_f64(q.above_chance), "rank_stability", json_f64(stability), "flaw",
                     json_cstr(flaw));
}

static json_t *table_json(const table *t, bool judge) {
    json_t *rows = json_array(),
           *out = json_pack("{s:o,s:o}", "metric", json_cstr(t->metric), "rows", rows);
    for (int r = 0; r < t->rows; r++) {
        json_t *o = json_pack("{s:o}", "name", json_cstr(t->row[r])), *cells = json_object();
        for (int c = 0; c < t->columns; c++)
            json_object_set_new(cells, t->column[c], json_f64(cell(t, r, c)));
        json_object_set_new(o, "cells", cells);
        json_object_set_new(o, "average",
                            t->missing_row < 0 ? json_f64(average(t, r)) : json_null());
        json_array_append_new(rows, o);
    }
    if (!judge) return out;
    json_t *tasks = json_object();
    for (int c = 0; c < t->columns; c++)
        if (is_whole(t, c)) json_object_set_new(tasks, t->column[c], quality_json(t, c));
    json_object_set_new(out, "tasks", tasks);
    return out;
}

/* ---- the command ---- */

/* Folders are runs, so their number is known. */
static int64_t count_runs(const cli_args *args) {
    for (int i = 0; i < args->n_inputs; i++)
        if (!file_is_dir(args->inputs[i])) return 1;
    return cli_has(args, "quality") ? args->n_inputs : 1;
}

static status read_runs(table *t, const cli_args *args, err *e) {
    TRY(cli_int(args, "runs", count_runs(args), 1, INT32_MAX, &t->runs, e));
    if (t->rows % t->runs == 0 && (t->runs == 1 || t->rows > t->runs)) return ST_OK;
    err_at(e, ST_USAGE, "--runs", "%d files are not the checkpoints of %ld runs", t->rows,
           (long)t->runs);
    return err_hint(e, "give as many files for each run, two at least, one run after the other");
}

static status cmd_eval_table(const cli_args *args, err *e) {
    table t = {.a = arena_new("table"), .metric = cli_value(args, "metric")};
    bool judge = cli_has(args, "quality");
    if (!t.metric) t.metric = "acc,none";
    status st = list_rows(&t, args, e);
    if (st == ST_OK) st = read_runs(&t, args, e);
    if (st == ST_OK && !strchr(t.metric, ','))
        st = err_at(e, ST_USAGE, "--metric", "%s is no key of results such as acc,none", t.metric);
    if (st == ST_OK) st = read_files(&t, e);
    if (st == ST_OK && args->json) cli_print_json(table_json(&t, judge));
    if (st == ST_OK && !args->json) print_table(&t);
    if (st == ST_OK && !args->json && judge) print_quality(&t);
    for (int i = 0; i < t.rows && t.file; i++) json_decref(t.file[i]);
    arena_free(t.a);
    return st;
}

static const cli_option options[] = {
    {"metric", "KEY", "which score (acc,none)"},
    {"quality", NULL, "the files are checkpoints in their order: judge the tasks by them"},
    {"runs", "N", "the files are those of N runs, one run after the other (1)"},
    {0}};

const cli_command command_eval_table = {
    .name = "eval table",
    .summary = "results side by side, and how well tasks tell models apart",
    .usage = "RESULTS.json|RUN... [--metric KEY] [--quality [--runs N]]",
    .run = cmd_eval_table,
    .options = options,
    .min_inputs = 1,
    .max_inputs = -1,
    .about = "RESULTS.json is what athanor eval --json printed; RUN stands for its checkpoints "
             "that it has "
             "evaluated\nitself. Where a score is missing there is no average.\n"};
