/* Summaries of runs. Of the step events only the last is parsed, so a listing stays quick. */
#include "run/summary.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "run/folder.h"
#include "run/metrics.h"
#include "run/record.h"

typedef struct collector {
    run_summary *s;
    bool says_steps; /* the config does; else a run has as many as it says at each start */
    bool ended;
    int64_t fatal_step; /* of the last alarm that ends a run; -1: none */
    int64_t early_step; /* of the last early stop; -1: none */
} collector;

static void take_valid(run_summary *s, const json_t *event) {
    s->val_loss = metrics_num(event, "val_loss");
    s->val_bpb = metrics_num(event, "val_bpb");
    if (isnan(s->val_loss)) return;
    if (isnan(s->best_val_loss) || s->val_loss < s->best_val_loss) {
        s->best_val_loss = s->val_loss;
        s->best_val_step = metrics_int(event, "step", -1);
    }
}

static void take_alarm(collector *c, const json_t *event) {
    int64_t step = metrics_int(event, "step", c->s->steps);
    c->s->alarms++;
    if (record_is_fatal(event)) c->fatal_step = step;
    if (strcmp(metrics_text(event, "kind"), "early_stop") == 0) c->early_step = step;
}

static status take_event(void *user, const json_t *event, err *e) {
    (void)e;
    collector *c = user;
    run_summary *s = c->s;
    if (metrics_is(event, "start")) {
        s->params = metrics_int(event, "params", s->params);
        if (!c->says_steps) s->planned_steps = metrics_int(event, "steps", -1);
        s->steps = metrics_int(event, "step", s->steps);
        c->ended = false;
        c->fatal_step = -1; /* it has been started again */
    } else if (metrics_is(event, "step")) {
        s->steps = metrics_int(event, "step", s->steps);
        s->tokens = metrics_int(event, "tokens", s->tokens);
        s->last_loss = metrics_num(event, "loss");
        s->tok_per_s = metrics_num(event, "tok_per_s");
    } else if (metrics_is(event, "checkpoint")) {
        int64_t step = metrics_int(event, "step", 0);
        if (step > s->steps) s->steps = step;
    } else if (metrics_is(event, "valid")) {
        take_valid(s, event);
    } else if (metrics_is(event, "alarm")) {
        take_alarm(c, event);
    } else if (metrics_is(event, "end")) {
        c->ended = true;
        s->steps =
            metrics_int(event, "steps", s->steps); /* with log_every the last may have no event */
        s->peak_rss_bytes = metrics_int(event, "peak_rss_bytes", s->peak_rss_bytes);
    }
    return ST_OK;
}

/* A fatal alarm after which no step was made has stopped the run. A trainer that has said `end`
 * still holds the lock while it writes the report. */
static const char *state_of(const collector *c) {
    const run_summary *s = c->s;
    if (c->fatal_step >= 0 && c->fatal_step >= s->steps) return "failed";
    if (!c->ended && run_is_locked(s->path)) return "training";
    bool complete = s->planned_steps < 0 ? c->ended : s->steps >= s->planned_steps;
    bool early = c->ended && c->early_step >= s->steps;
    if ((complete || early) && s->steps > 0) return "finished";
    return s->steps > 0 ? "stopped" : "new";
}

static run_summary blank(arena *a, const char *path) {
    const char *plain = path_plain(a, path);
    return (run_summary){.name = path_base(plain),
                         .path = plain,
                         .params = -1,
                         .planned_steps = -1,
                         .tokens = -1,
                         .last_loss = NAN,
                         .best_val_loss = NAN,
                         .best_val_step = -1,
                         .val_loss = NAN,
                         .val_bpb = NAN,
                         .tok_per_s = NAN,
                         .peak_rss_bytes = -1};
}

status run_summarize(arena *a, const char *path, run_summary *out, err *e) {
    json_t *root;
    *out = blank(a, path);
    TRY(run_read_config(&root, path, e));
    out->planned_steps = metrics_int(json_object_get(root, "train"), "steps", -1);
    json_decref(root);
    collector c = {
        .s = out, .says_steps = out->planned_steps >= 0, .fatal_step = -1, .early_step = -1};
    TRY(metrics_read(path, METRICS_LAST_STEP, take_event, &c, e));
    out->state = state_of(&c);
    return ST_OK;
}

static json_t *count(int64_t n) {
    return n < 0 ? json_null() : json_integer(n);
}

json_t *run_summary_json(const run_summary *s) {
    return json_pack("{s:o, s:o, s:s, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I}",
                     "name", json_cstr(s->name), "path", json_cstr(s->path), "state", s->state,
                     "params", count(s->params), "steps", (json_int_t)s->steps, "planned_steps",
                     count(s->planned_steps), "tokens", count(s->tokens), "last_loss",
                     json_f64(s->last_loss), "best_val_loss", json_f64(s->best_val_loss),
                     "best_val_step", count(s->best_val_step), "val_loss", json_f64(s->val_loss),
                     "val_bpb", json_f64(s->val_bpb), "tok_per_s", json_f64(s->tok_per_s),
                     "peak_rss_bytes", count(s->peak_rss_bytes), "n_alarms", (json_int_t)s->alarms);
}

/* ---- alarms and stages ---- */

static status take_record(void *user, const json_t *event, err *e) {
    (void)e;
    json_t *record = user;
    if (metrics_is(event, "alarm"))
        json_array_append_new(json_object_get(record, "alarms"), json_deep_copy(event));
    if (metrics_is(event, "stage"))
        json_array_append_new(json_object_get(record, "stages"), json_deep_copy(event));
    return ST_OK;
}

status run_add_record(json_t *record, const char *path, err *e) {
    json_object_set_new(record, "alarms", json_array());
    json_object_set_new(record, "stages", json_array());
    return metrics_read(path, METRICS_LAST_STEP, take_record, record, e);
}

/* ---- all runs of a folder ---- */

/* Without a config.json, or with that of something else. One that cannot be read may be a run's. */
static bool is_no_run(const char *path) {
    json_t *value = NULL;
    bool other = !run_is_run(path) && run_read_json(&value, path, "config.json", NULL) == ST_OK;
    json_decref(value);
    return other;
}

status run_find_all(arena *a, const char *folder, run_summary **out, int *n, err *e) {
    char **names;
    int n_names;
    *n = 0;
    TRY(file_list_dir(a, folder, &names, &n_names, e));
    *out = ARENA_ARRAY(a, run_summary, n_names);
    for (int i = 0; i < n_names; i++) {
        char *path = path_join(a, folder, names[i]);
        err why = {0};
        if (is_no_run(path)) continue;
        if (run_summarize(a, path, &(*out)[*n], &why) == ST_OK)
            ++*n;
        else
            log_warn("%s is left out: %s", path, why.message);
    }
    return ST_OK;
}
