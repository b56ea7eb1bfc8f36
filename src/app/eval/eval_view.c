/* Tables and documents of an evaluation (see eval_view.h). */
#include "app/eval/eval_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/json.h"
#include "base/text.h"
#include "eval/dialogue.h"
#include "eval/slices.h"

/* Calls `visit` for each metric and filter of each task. */
typedef void (*visit_score)(void *ctx, const eval_task *t, eval_metric m, int filter);
static void each_score(const eval_task *tasks, int n, visit_score visit, void *ctx) {
    for (int i = 0; i < n; i++)
        for (int m = 0; m < METRIC_COUNT; m++)
            for (int f = 0; f < tasks[i].n_filters && tasks[i].metrics >> m & 1; f++)
                visit(ctx, &tasks[i], (eval_metric)m, f);
}

/* ---- results ---- */

static void widen(int *width, const char *text, int most) {
    int n = (int)strnlen(text, (size_t)most);
    if (n > *width) *width = n;
}

static void see_widths(void *ctx, const eval_task *t, eval_metric m, int f) {
    eval_widths *w = ctx;
    widen(&w->task, t->name, 24);
    widen(&w->metric, eval_metric_names[m], 24);
    widen(&w->filter, t->filter[f].name, 16);
}

eval_widths eval_widths_of(const eval_task *tasks, int n) {
    eval_widths w = {(int)strlen("task"), (int)strlen("metric"), (int)strlen("filter")};
    each_score(tasks, n, see_widths, &w);
    return w;
}

static void print_score(void *ctx, const eval_task *t, eval_metric m, int f) {
    const eval_widths *w = ctx;
    eval_score s = eval_measure(t, m, f);
    cli_print_name(t->name, -w->task);
    printf(" %-*s ", w->metric, eval_metric_names[m]);
    cli_print_name(t->filter[f].name, -w->filter);
    printf(" %9.4f", s.value);
    eval_print_error(s.stderr_);
    printf(" %7ld\n", (long)s.n);
}

static void print_list(const char *before, const json_t *list) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)list, i, v) {
        printf("  %s", before);
        cli_print_text(stdout, json_string_value(v), json_string_length(v));
        putchar('\n');
    }
}

static void print_verdict(const eval_task *t) {
    json_t *o = json_object();
    eval_put_verdict(t, o);
    putchar('\n');
    cli_print_name(t->name, 0);
    printf(": %s\n", json_string_value(json_object_get(o, "verdict")));
    print_list("", json_object_get(o, "causes"));
    print_list("left out: ", json_object_get(o, "left_out"));
    json_decref(o);
}

void eval_print_results(const eval_task *tasks, int n) {
    eval_widths w = eval_widths_of(tasks, n);
    printf("%-*s %-*s %-*s %9s %9s %7s\n", w.task, "task", w.metric, "metric", w.filter, "filter",
           "value", "+-", "items");
    each_score(tasks, n, print_score, &w);
    for (int i = 0; i < n; i++)
        if (tasks[i].kind == EVAL_DIALOGUE) print_verdict(&tasks[i]);
    for (int i = 0; i < n; i++)
        if (tasks[i].kind == EVAL_TEXT) eval_print_slices(&tasks[i]);
}

json_t *eval_results_json(const eval_task *tasks, int n) {
    json_t *results = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(results, tasks[i].name, eval_result_json(&tasks[i]));
    return results;
}

/* ---- two models ---- */

typedef struct keeping {
    double *at;
    int64_t n;
} keeping;

static void keep_score(void *ctx, const eval_task *t, eval_metric m, int f) {
    keeping *k = ctx;
    if (!eval_is_mean(m)) return;
    for (int32_t i = 0; i < t->n; i++, k->n++)
        if (k->at) k->at[k->n] = eval_doc_score(t, &t->doc[i], m, f);
}

eval_kept eval_keep_scores(const eval_task *tasks, int n) {
    keeping k = {0};
    each_score(tasks, n, keep_score, &k);
    k = (keeping){.at = xmalloc(sizeof *k.at * (size_t)(k.n + 1))};
    each_score(tasks, n, keep_score, &k);
    return (eval_kept){tasks, n, k.at};
}

void eval_kept_free(eval_kept *k) {
    free(k->score);
    *k = (eval_kept){0};
}

typedef struct comparing {
    const double *a, *b;
    json_t *out; /* NULL: a table */
    eval_widths w;
} comparing;

static void put_difference(json_t *out, const char *task, const char *key, eval_difference d) {
    json_t *o = json_object_get(out, task);
    if (!o) json_object_set_new(out, task, o = json_object());
    json_object_set_new(o, key,
                        json_pack("{s:o,s:o,s:o,s:o,s:o}", "difference", json_f64(d.value),
                                  "stderr", json_f64(d.stderr_), "low", json_f64(d.low), "high",
                                  json_f64(d.high), "p", json_f64(d.p)));
}

static void compare_score(void *ctx, const eval_task *t, eval_metric m, int f) {
    comparing *c = ctx;
    char key[256];
    if (!eval_is_mean(m)) return;
    eval_difference d = eval_compare(c->a, c->b, t->n);
    snprintf(key, sizeof key, "%s,%s", eval_metric_names[m], t->filter[f].name);
    if (c->out)
        put_difference(c->out, t->name, key, d);
    else {
        cli_print_name(t->name, -c->w.task);
        printf(" %-*s %+9.4f", c->w.metric + 1 + c->w.filter, key, d.value);
        eval_print_error(d.stderr_);
        printf("   %+.4f to %+.4f %7.4f\n", d.low, d.high, d.p);
    }
    c->a += t->n, c->b += t->n;
}

void eval_print_differences(const eval_kept *a, const eval_kept *b) {
    comparing c = {a->score, b->score, NULL, eval_widths_of(a->task, a->n)};
    printf("\ndifference to the other\n%-*s %-*s %9s %9s   %-18s %7s\n", c.w.task, "task",
           c.w.metric + 1 + c.w.filter, "metric", "value", "+-", "95 %", "p");
    each_score(a->task, a->n, compare_score, &c);
}

json_t *eval_differences_json(const eval_kept *a, const eval_kept *b) {
    comparing c = {a->score, b->score, json_object(), {0}};
    each_score(a->task, a->n, compare_score, &c);
    return c.out;
}

/* ---- documents ---- */

static void print_bytes(const char *name, eval_text s) {
    printf("---- %s (%zu byte%s)\n", name, s.len, text_s((int64_t)s.len));
    cli_print_text(stdout, s.s, s.len);
    putchar('\n');
}

static void print_choice(const eval_doc *d, int i) {
    const eval_choice *c = &d->choice[i];
    char name[128];
    bool right = false;
    for (int g = 0; g < d->n_gold; g++) right |= d->gold[g] == i;
    if (i == 0 || c->pair.context.s != d->choice[i - 1].pair.context.s)
        print_bytes("context", c->pair.context);
    snprintf(name, sizeof name, "choice %d%s: log-likelihood %.4f, %d token%s", i,
             right ? ", right" : "", c->pair.loglik, c->pair.n_tokens, text_s(c->pair.n_tokens));
    print_bytes(name, c->pair.continuation);
}

static void print_dialogue(const eval_dialogue *d) {
    if (d->left_out) printf("---- left out: %s\n", d->left_out);
    for (int i = 0; i < d->n_turns && !d->left_out; i++) {
        const eval_turn *k = &d->turn[i];
        strbuf rule = {0};
        print_bytes("prompt", k->seen);
        print_bytes(k->ended ? "answer" : "answer, which does not end", k->written);
        if (k->failed >= 0) eval_rule_words(&k->rule[k->failed], &rule);
        printf("---- turn %d %s%s\n", i + 1,
               k->failed < 0 ? "passes" : "fails: ", strbuf_cstr(&rule));
        strbuf_free(&rule);
    }
}

void eval_print_doc(const eval_task *t, const eval_doc *d) {
    char *id = json_dumps(d->id, JSON_ENCODE_ANY);
    printf("\n==== %s, document %s (%s:%ld)\n", t->name, id, d->file, (long)d->line);
    free(id);
    for (int i = 0; i < d->n_choices; i++) print_choice(d, i);
    if (t->kind == EVAL_LIKELIHOOD)
        printf("---- %s\n",
               d->greedy ? "the model would write it" : "the model would not write it");
    if (t->kind == EVAL_TEXT) print_bytes("text", d->text);
    if (t->kind == EVAL_DIALOGUE) print_dialogue(d->dialogue);
    if (t->kind != EVAL_ANSWER) return;
    print_bytes("prompt", d->seen);
    for (int k = 0; k < t->repeats; k++) {
        print_bytes("written", d->attempt[k].written);
        for (int f = 0; f < t->n_filters; f++)
            print_bytes(t->filter[f].name, d->attempt[k].answer[f]);
    }
    for (int i = 0; i < d->n_targets; i++) print_bytes("right answer", d->target[i]);
}
