/* Collects a report's data, and puts quantities into words. */
#include "run/report/report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "run/folder.h"
#include "run/metrics.h"

/* ---- columns ---- */

static void table_grow(report_table *t) {
    if (t->n < t->cap) return;
    t->cap = t->cap ? t->cap * 2 : 1024;
    for (int i = 0; i < COLUMN_COUNT; i++)
        t->column[i] = xrealloc(t->column[i], sizeof(double) * (size_t)t->cap);
}

/* How many of n ascending steps come before `step`. After a rewind the later ones were trained again:
 * these take their place. */
static int64_t steps_before(const double *steps, int64_t n, double step) {
    while (n > 0 && steps[n - 1] >= step) n--;
    return n;
}

/* A step line stands for all steps since the one before it (train.log_every), the first for those since the run
 * began, or the fork. */
static void take_step(report_data *d, const json_t *event) {
    report_table *t = &d->steps;
    double step = metrics_num(event, "step"), ms = metrics_num(event, "step_ms");
    if (!isfinite(step)) return;
    t->n = steps_before(t->column[COLUMN_STEP], t->n, step);
    double before = t->n ? t->column[COLUMN_STEP][t->n - 1] : (double)d->began;
    if (isfinite(ms) && step > before) d->train_s += ms * 1e-3 * (step - before);
    table_grow(t);
    const double row[COLUMN_COUNT] = {
        [COLUMN_STEP] = step,
        [COLUMN_LOSS] = metrics_num(event, "loss"),
        [COLUMN_GRAD_NORM] = metrics_num(event, "grad_norm"),
        [COLUMN_LR] = metrics_num(event, "lr"),
        [COLUMN_TOK_PER_S] = metrics_num(event, "tok_per_s"),
        [COLUMN_MFU] = 100 * metrics_num(event, "mfu"),
        [COLUMN_HFU] = 100 * metrics_num(event, "hfu"),
        [COLUMN_REWARD_CHOSEN] = metrics_num(event, "reward_chosen"),
        [COLUMN_REWARD_REJECTED] = metrics_num(event, "reward_rejected"),
        [COLUMN_MARGIN] = metrics_num(event, "margin"),
        [COLUMN_ACCURACY] = 100 * metrics_num(event, "accuracy"),
        [COLUMN_LOGP_CHOSEN] = metrics_num(event, "logp_chosen"),
        [COLUMN_LOGP_REJECTED] = metrics_num(event, "logp_rejected"),
        [COLUMN_KL] = metrics_num(event, "kl"),
    };
    for (int i = 0; i < COLUMN_COUNT; i++) t->column[i][t->n] = row[i];
    t->n++;
}

static void take_valid(report_data *d, const json_t *event) {
    report_table *v = &d->valid;
    double step = metrics_num(event, "step");
    if (!isfinite(step)) return;
    v->n = steps_before(v->column[COLUMN_STEP], v->n, step);
    table_grow(v);
    v->column[COLUMN_STEP][v->n] = step;
    v->column[COLUMN_LOSS][v->n] = metrics_num(event, "val_loss");
    v->column[COLUMN_MARGIN][v->n] = metrics_num(event, "margin");
    v->column[COLUMN_ACCURACY][v->n++] = 100 * metrics_num(event, "accuracy");
}

/* What was told again after a rewind takes the place of what was told first. */
static void take_again(json_t *list, const json_t *event) {
    int64_t step = metrics_int(event, "step", 0);
    size_t n = json_array_size(list);
    while (n > 0 && metrics_int(json_array_get(list, n - 1), "step", 0) >= step)
        json_array_remove(list, --n);
    json_array_append_new(list, json_deep_copy(event));
}

static void replace(json_t **slot, const json_t *event) {
    json_decref(*slot);
    *slot = json_deep_copy(event);
}

static status take_event(void *user, const json_t *event, err *e) {
    (void)e;
    report_data *d = user;
    if (metrics_is(event, "step")) {
        take_step(d, event);
    } else if (metrics_is(event, "valid")) {
        take_valid(d, event);
    } else if (metrics_is(event, "sample")) {
        json_array_append_new(d->samples, json_deep_copy(event));
    } else if (metrics_is(event, "eval")) {
        json_array_append_new(d->evals, json_deep_copy(event));
    } else if (metrics_is(event, "alarm")) {
        json_array_append_new(d->alarms, json_deep_copy(event));
    } else if (metrics_is(event, "stage")) {
        take_again(d->stages, event);
    } else if (metrics_is(event, "experts")) {
        take_again(d->experts, event);
    } else if (metrics_is(event, "checkpoint")) {
        d->last_checkpoint = metrics_int(event, "step", d->last_checkpoint);
    } else if (metrics_is(event, "start")) {
        if (!d->start) d->began = metrics_int(event, "step", 0);
        replace(&d->start, event);
    } else if (metrics_is(event, "end")) {
        replace(&d->end, event);
    }
    return ST_OK;
}

/* An exponential mean over the last fiftieth of the run, over less where the run is young and its
 * values change fast. */
static void smooth(const double *in, double *out, int64_t n) {
    double full = fmax(1, (double)n / 50), sum = 0, weight = 0;
    for (int64_t i = 0; i < n; i++) {
        double decay = 1 - 1 / fmin(full, 1 + (double)i / 20);
        out[i] = in[i];
        if (!isfinite(in[i])) continue;
        sum = decay * sum + (1 - decay) * in[i];
        weight = decay * weight + (1 - decay);
        out[i] = sum / weight;
    }
}

static void smooth_columns(report_table *t) {
    for (int i = COLUMN_STEP + 1; i < COLUMN_COUNT; i++) {
        t->smooth[i] = xmalloc(sizeof(double) * (size_t)t->n);
        smooth(t->column[i], t->smooth[i], t->n);
    }
}

static double mean_of(const report_table *t, report_column c) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        double value = t->column[c][i];
        if (!isfinite(value)) continue;
        sum += value;
        n++;
    }
    return n ? sum / (double)n : (double)NAN;
}

/* A run that has ended says it, with what came before a fork: of that there are no step lines here. */
static double train_s_of(const report_data *d) {
    double said = metrics_num(d->end, "train_s");
    bool all = metrics_int(d->end, "steps", -1) >= d->summary.steps;
    return all && isfinite(said) ? said : d->train_s;
}

static status take_reference(void *user, const json_t *event, err *e) {
    report_data *d = user;
    (void)e;
    if (metrics_is(event, "eval")) json_array_append_new(d->reference_evals, json_deep_copy(event));
    return ST_OK;
}

/* A reference that the config names may be gone: the page says so. */
static status load_reference(report_data *d, const char *reference, err *e) {
    const json_t *named = json_object_get(json_object_get(d->config, "eval"), "reference");
    d->reference_evals = json_array();
    if (reference && !run_is_run(reference)) {
        err_at(e, ST_USAGE, reference, "%s is no run", reference);
        return err_hint(e, "athanor runs list shows the runs of a folder");
    }
    if (!reference) reference = json_string_value(named);
    if (!reference) return ST_OK;
    const char *path = path_plain(d->memory, reference), *name = path_base(path);
    d->reference = strcmp(name, d->summary.name) == 0 ? path : name;
    return metrics_read(reference, METRICS_ALL, take_reference, d, e);
}

status report_data_load(report_data *d, const char *run_dir, const char *reference, err *e) {
    *d = (report_data){.memory = arena_new("report"),
                       .samples = json_array(),
                       .alarms = json_array(),
                       .stages = json_array(),
                       .evals = json_array(),
                       .experts = json_array(),
                       .last_checkpoint = -1};
    status st;
    TRY_GOTO(st, run_summarize(d->memory, run_dir, &d->summary, e), failed);
    TRY_GOTO(st, run_read_config(&d->config, run_dir, e), failed);
    TRY_GOTO(st, run_read_json(&d->plan, run_dir, "plan.json", e), failed);
    TRY_GOTO(st, metrics_read(run_dir, METRICS_ALL, take_event, d, e), failed);
    TRY_GOTO(st, load_reference(d, reference, e), failed);
    d->train_s = train_s_of(d);
    smooth_columns(&d->steps);
    report_set_marks(d);
    d->mean_tok_per_s = mean_of(&d->steps, COLUMN_TOK_PER_S);
    return ST_OK;
failed:
    report_data_free(d);
    return st;
}

void report_data_free(report_data *d) {
    json_decref(d->config);
    json_decref(d->plan);
    json_decref(d->start);
    json_decref(d->end);
    json_decref(d->samples);
    json_decref(d->alarms);
    json_decref(d->stages);
    json_decref(d->evals);
    json_decref(d->experts);
    json_decref(d->reference_evals);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        free(d->steps.column[i]);
        free(d->steps.smooth[i]);
        free(d->valid.column[i]);
    }
    arena_free(d->memory);
}

/* ---- quantities ---- */

void report_put_bytes(strbuf *out, double n) {
    static const char *const UNITS[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    int unit = 0;
    while (fabs(n) >= 999.5 && unit < ARRAY_LEN(UNITS) - 1) {
        n /= 1000;
        unit++;
    }
    strbuf_printf(out,
                  unit == 0 || n >= 99.95 ? "%.0f %s"
                  : n >= 9.995            ? "%.1f %s"
                                          : "%.2f %s",
                  n, UNITS[unit]);
}

void report_put_seconds(strbuf *out, double s) {
    long long whole = (long long)(s + 0.5);
    if (s < 10)
        strbuf_printf(out, "%.1f s", s);
    else if (whole < 180)
        strbuf_printf(out, "%lld s", whole);
    else if (whole < 3600)
        strbuf_printf(out, "%lld min %lld s", whole / 60, whole % 60);
    else
        strbuf_printf(out, "%lld h %lld min", whole / 3600, whole / 60 % 60);
}
