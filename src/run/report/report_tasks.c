/* Tasks of evaluation in the report: a curve of each with its standard errors, what guessing scores,
 * the curve of a reference run; and the scores of the last evaluation as a table.
 *
 * A score that is missing is a gap in its curve and a dash in the table. Nothing is averaged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/metrics.h"
#include "run/report/report_data.h"
#include "run/report/report.h"
#include "run/scores.h"

/* 95 % of a normal distribution lie within so many standard errors. */
static const double INTERVAL = 1.96;

/* ---- collecting ---- */

/* The event of a task at a step; NULL: there is none. */
static const json_t *find(const json_t *evals, int64_t step, const char *task) {
    for (size_t i = json_array_size(evals); i-- > 0;) {
        const json_t *event = json_array_get(evals, i);
        if (metrics_int(event, "step", -1) == step &&
            strcmp(metrics_text(event, "task"), task) == 0)
            return event;
    }
    return NULL;
}

static const json_t *scores_at(const json_t *evals, int64_t step, const char *task) {
    return json_object_get(find(evals, step, task), "metrics");
}

static int compare_steps(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The steps at which anything was evaluated, ascending. */
static int64_t *steps_of(arena *a, const json_t *evals, int64_t *n) {
    size_t all = json_array_size(evals);
    int64_t *step = ARENA_ARRAY(a, int64_t, (int)all + 1), kept = 0;
    for (size_t i = 0; i < all; i++) step[i] = metrics_int(json_array_get(evals, i), "step", 0);
    qsort(step, all, sizeof *step, compare_steps);
    for (size_t i = 0; i < all; i++)
        if (kept == 0 || step[kept - 1] != step[i]) step[kept++] = step[i];
    *n = kept;
    return step;
}

/* The tasks, in the order of their first events. */
static const char **tasks_of(arena *a, const json_t *evals, int *n) {
    const char **name = ARENA_ARRAY(a, const char *, (int)json_array_size(evals) + 1);
    *n = 0;
    for (size_t i = 0; i < json_array_size(evals); i++) {
        const char *task = metrics_text(json_array_get(evals, i), "task");
        bool known = false;
        for (int k = 0; k < *n && !known; k++) known = strcmp(name[k], task) == 0;
        if (!known) name[(*n)++] = task;
    }
    return name;
}

/* ---- curves ---- */

typedef struct task_curve {
    double *x, *y, *error;
    int64_t n;
} task_curve;

static task_curve curve_of(arena *a, const json_t *evals, const char *task, const char *key) {
    task_curve c;
    int64_t *step = steps_of(a, evals, &c.n);
    c.x = ARENA_ARRAY(a, double, (int)c.n + 1);
    c.y = ARENA_ARRAY(a, double, (int)c.n + 1);
    c.error = ARENA_ARRAY(a, double, (int)c.n + 1);
    for (int64_t i = 0; i < c.n; i++) {
        const json_t *scores = scores_at(evals, step[i], task);
        c.x[i] = (double)step[i];
        c.y[i] = score_value(scores, key);
        c.error[i] = INTERVAL * score_error(scores, key);
    }
    return c;
}

static bool is_empty(const task_curve *c) {
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->y[i])) return false;
    return true;
}

/* The last scores of a task. */
static const json_t *last_scores(const json_t *evals, const char *task) {
    for (size_t i = json_array_size(evals); i-- > 0;) {
        const json_t *event = json_array_get(evals, i);
        if (strcmp(metrics_text(event, "task"), task) == 0)
            return json_object_get(event, "metrics");
    }
    return NULL;
}

static void add_chance(arena *a, svg_chart *c, double chance) {
    double *line = ARENA_ARRAY(a, double, 4);
    double first = INFINITY, last = -INFINITY;
    for (int i = 0; i < c->n_series; i++) {
        first = fmin(first, c->series[i].x[0]);
        last = fmax(last, c->series[i].x[c->series[i].n - 1]);
    }
    line[0] = first, line[1] = last, line[2] = line[3] = chance;
    c->series[c->n_series++] =
        (svg_series){.name = "chance", .css = "chance", .x = line, .y = line + 2, .n = 2};
}

static void put_task(strbuf *out, const report_data *d, const char *task) {
    const json_t *scores = last_scores(d->evals, task);
    const char *key = score_main_key(scores);
    char name[SCORE_NAME_BYTES];
    if (!key) return;
    score_name(key, name);
    svg_chart c = {.title = arena_printf(d->memory, "%s: %s", task, name), .y_top = NAN};
    task_curve own = curve_of(d->memory, d->evals, task, key);
    task_curve other = curve_of(d->memory, d->reference_evals, task, key);
    if (!is_empty(&other))
        c.series[c.n_series++] =
            (svg_series){d->reference, "other", other.x, other.y, other.n, true, other.error};
    c.series[c.n_series++] =
        (svg_series){d->summary.name, "task", own.x, own.y, own.n, true, own.error};
    double chance = score_chance(scores);
    if (isfinite(chance) && strncmp(key, "acc", 3) == 0) add_chance(d->memory, &c, chance);
    report_put_chart(out, &c, "small");
}

/* ---- the table ---- */

static void put_score(strbuf *out, const json_t *scores, const char *key) {
    double value = score_value(scores, key), error = score_error(scores, key);
    if (!isfinite(value)) {
        strbuf_puts(out, "<td>\xe2\x80\x93</td>");
        return;
    }
    strbuf_puts(out, "<td>");
    svg_put_number(out, value);
    if (isfinite(error)) {
        strbuf_puts(out, " <small>\xc2\xb1 ");
        svg_put_number(out, error);
        strbuf_puts(out, "</small>");
    }
    strbuf_puts(out, "</td>");
}

static void put_rows(strbuf *out, const report_data *d, int64_t step, const char *task) {
    const json_t *own = scores_at(d->evals, step, task);
    const json_t *other = scores_at(d->reference_evals, step, task), *keys = own ? own : other;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys, key, value) {
        char name[SCORE_NAME_BYTES];
        if (!score_is_key(key)) continue;
        score_name(key, name);
        svg_put_between(out, "<tr><td>", task, "</td>");
        svg_put_between(out, "<td>", name, "</td>");
        put_score(out, own, key);
        if (d->reference) put_score(out, other, key);
        strbuf_puts(out, "<td>");
        strbuf_printf(out, "%lld</td></tr>\n", (long long)metrics_int(keys, "sample_len", 0));
    }
}

static void put_table(strbuf *out, const report_data *d, const char **tasks, int n) {
    int64_t steps, *step = steps_of(d->memory, d->evals, &steps);
    strbuf_printf(out,
                  "<table class=\"scores\">\n<caption>Scores at step %lld, \xc2\xb1 one standard "
                  "error</caption>\n<thead><tr><th>task</th><th>score</th>",
                  (long long)step[steps - 1]);
    svg_put_between(out, "<th>", d->summary.name, "</th>");
    if (d->reference) svg_put_between(out, "<th>", d->reference, "</th>");
    strbuf_puts(out, "<th>documents</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < n; i++) put_rows(out, d, step[steps - 1], tasks[i]);
    strbuf_puts(out, "</tbody></table>\n");
}

/* ---- the section ---- */

void report_put_tasks(strbuf *out, const report_data *d) {
    int n;
    if (json_array_size(d->evals) == 0) return;
    const char **tasks = tasks_of(d->memory, d->evals, &n);
    strbuf_puts(out, "<section class=\"tasks\">\n<h2>What it can do</h2>\n");
    if (d->reference && json_array_size(d->reference_evals) == 0)
        svg_put_between(out, "<p class=\"none\">The reference run ", d->reference,
                        " has no scores.</p>\n");
    strbuf_puts(out, "<p class=\"none\">Bars are 95 % intervals.</p>\n<div class=\"grid4\">\n");
    for (int i = 0; i < n; i++) put_task(out, d, tasks[i]);
    strbuf_puts(out, "</div>\n");
    put_table(out, d, tasks, n);
    strbuf_puts(out, "</section>\n");
}
