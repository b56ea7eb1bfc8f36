/* athanor runs list|show|diff|report: the runs under a folder. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "run/config/config.h"
#include "run/folder.h"
#include "run/metrics.h"
#include "run/record.h"
#include "run/report/report.h"
#include "run/report/report_data.h"
#include "run/summary.h"

/* ---- list ---- */

static const char *number_text(char out[32], double value) {
    if (isfinite(value))
        snprintf(out, 32, "%.4f", value);
    else
        strcpy(out, "-");
    return out;
}

static const char *count_text(arena *a, int64_t n) {
    strbuf text = {0};
    if (n >= 0)
        svg_put_number(&text, (double)n);
    else
        strbuf_putc(&text, '-');
    char *copy = arena_strdup(a, text.data);
    strbuf_free(&text);
    return copy;
}

/* Names, messages and paths are of folders that may come from elsewhere. */
static void print_line(strbuf *text) {
    strbuf_putc(text, '\n');
    cli_print_text(stdout, text->data, text->len);
    strbuf_free(text);
}

/* A name that is longer than others are shifts its own row alone. */
static void print_list(arena *a, const run_summary *runs, int n) {
    enum { WIDEST = 40 };
    int width = 4;
    for (int i = 0; i < n; i++) {
        int own = (int)strlen(runs[i].name);
        if (own > width) width = own < WIDEST ? own : WIDEST;
    }
    printf("%-*s  %-8s  %7s  %7s  %8s  %9s\n", width, "name", "state", "params", "steps", "loss",
           "best val");
    for (int i = 0; i < n; i++) {
        const run_summary *s = &runs[i];
        char loss[32], best[32];
        strbuf row = {0};
        strbuf_printf(&row, "%-*s  %-8s  %7s  %7s  %8s  %9s", width, s->name, s->state,
                      count_text(a, s->params), count_text(a, s->steps),
                      number_text(loss, s->last_loss), number_text(best, s->best_val_loss));
        print_line(&row);
    }
}

static status list_runs(const cli_args *args, err *e) {
    const char *folder = args->n_inputs ? args->inputs[0] : "runs";
    if (!file_is_dir(folder)) {
        err_at(e, ST_FAILED, folder, "there is no folder %s", folder);
        return err_hint(e, "name the folder that holds the runs: athanor runs list FOLDER");
    }
    arena *a = arena_new("runs");
    run_summary *runs;
    int n;
    status st = run_find_all(a, folder, &runs, &n, e);
    if (st == ST_OK && args->json) {
        json_t *list = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(list, run_summary_json(&runs[i]));
        cli_print_json(json_pack("{s:o}", "runs", list));
    } else if (st == ST_OK && n == 0) {
        printf("no runs in %s\n", folder);
    } else if (st == ST_OK) {
        print_list(a, runs, n);
    }
    arena_free(a);
    return st;
}

/* ---- show, diff ---- */

static void put_json(strbuf *out, const json_t *value) {
    if (!value || json_is_null(value))
        strbuf_putc(out, '-');
    else if (json_is_string(value))
        strbuf_puts(out, json_string_value(value));
    else
        json_format(out, value, 0);
}

/* One line per member: its name and its value in each of the objects. */
static void print_members(json_t *const *objects, int n) {
    const char *key;
    json_t *value;
    json_object_foreach(objects[0], key, value) {
        strbuf line = {0};
        strbuf_printf(&line, "%-16s", key);
        for (int i = 0; i < n; i++) {
            strbuf text = {0};
            put_json(&text, json_object_get(objects[i], key));
            strbuf_printf(&line, "  %-*s", i + 1 < n ? 24 : 0, strbuf_cstr(&text));
            strbuf_free(&text);
        }
        print_line(&line);
    }
}

static void print_stages(const json_t *stages) {
    size_t i;
    json_t *stage;
    if (json_array_size(stages)) printf("\nstages\n");
    json_array_foreach(stages, i, stage) {
        strbuf text = {0};
        strbuf_printf(&text, "  from step %lld  %s: ", (long long)metrics_int(stage, "step", 0),
                      metrics_text(stage, "name"));
        record_put_stage_shape(&text, stage);
        strbuf_puts(&text, "; ");
        record_put_mixture(&text, stage);
        print_line(&text);
    }
}

static void print_alarm(const json_t *alarm) {
    enum { SHOWN = 3 }; /* the message names the first */
    const json_t *documents = json_object_get(alarm, "documents");
    strbuf text = {0};
    strbuf_printf(&text, "  step %lld  ", (long long)metrics_int(alarm, "step", 0));
    record_put_kind(&text, alarm);
    strbuf_printf(&text, ": %s", metrics_text(alarm, "message"));
    for (size_t i = 1; i < json_array_size(documents) && i < SHOWN; i++) {
        strbuf_puts(&text, "\n      ");
        record_put_document(&text, json_array_get(documents, i));
    }
    print_line(&text);
}

static void print_alarms(const json_t *alarms) {
    size_t i;
    json_t *alarm;
    if (json_array_size(alarms)) printf("\nalarms\n");
    json_array_foreach(alarms, i, alarm) print_alarm(alarm);
}

static status show_run(const cli_args *args, err *e) {
    arena *a = arena_new("runs");
    run_summary s;
    status st = run_summarize(a, args->inputs[0], &s, e);
    if (st == ST_OK) {
        json_t *object = run_summary_json(&s), *record = json_object();
        st = run_add_record(record, s.path, e);
        if (st == ST_OK && args->json) {
            json_object_update(object, record);
            cli_print_json(json_incref(object));
        } else if (st == ST_OK) {
            print_members(&object, 1);
            print_stages(json_object_get(record, "stages"));
            print_alarms(json_object_get(record, "alarms"));
        }
        json_decref(record);
        json_decref(object);
    }
    arena_free(a);
    return st;
}

static status config_differences(const cli_args *args, json_t **out, err *e) {
    config *c[2] = {0};
    status st = ST_OK;
    for (int i = 0; i < 2 && st == ST_OK; i++) st = run_load_config(&c[i], args->inputs[i], e);
    if (st == ST_OK) *out = config_diff(c[0], c[1]);
    config_free(c[0]);
    config_free(c[1]);
    return st;
}

static void print_differences(const json_t *rows) {
    size_t i;
    json_t *row;
    printf("\n%s\n", json_array_size(rows) ? "config" : "the configs are equal");
    json_array_foreach(rows, i, row) {
        strbuf line = {0};
        strbuf_printf(&line, "%-30s  ", json_string_value(json_object_get(row, "key")));
        put_json(&line, json_object_get(row, "a"));
        strbuf_puts(&line, " -> ");
        put_json(&line, json_object_get(row, "b"));
        print_line(&line);
    }
}

static status diff_runs(const cli_args *args, err *e) {
    json_t *rows = NULL;
    TRY(config_differences(args, &rows, e));
    arena *a = arena_new("runs");
    run_summary s[2];
    status st = run_summarize(a, args->inputs[0], &s[0], e);
    if (st == ST_OK) st = run_summarize(a, args->inputs[1], &s[1], e);
    if (st == ST_OK) {
        json_t *sides[2] = {run_summary_json(&s[0]), run_summary_json(&s[1])};
        if (args->json) {
            cli_print_json(
                json_pack("{s:O, s:O, s:O}", "config", rows, "a", sides[0], "b", sides[1]));
        } else {
            print_members(sides, 2);
            print_differences(rows);
        }
        json_decref(sides[0]);
        json_decref(sides[1]);
    }
    json_decref(rows);
    arena_free(a);
    return st;
}

/* ---- report ---- */

static status report_run(const cli_args *args, err *e) {
    const char *run = args->inputs[0];
    TRY(report_write(run, cli_value(args, "reference"), e));
    arena *a = arena_new("runs");
    const char *path = path_join(a, run, "report.html");
    if (args->json)
        cli_print_json(json_pack("{s:o}", "report", json_cstr(path)));
    else
        printf("%s\n", path);
    arena_free(a);
    return ST_OK;
}

const cli_command command_runs_list = {
    .name = "runs list",
    .summary = "the runs in a folder (runs/ unless given): state, steps, losses",
    .usage = "[FOLDER]",
    .run = list_runs,
    .max_inputs = 1,
};

const cli_command command_runs_show = {
    .name = "runs show",
    .summary = "the numbers of one run, its stages and alarms",
    .usage = "RUN",
    .run = show_run,
};

const cli_command command_runs_diff = {
    .name = "runs diff",
    .summary = "two runs side by side: numbers, and what differs in their configs",
    .usage = "RUN RUN",
    .run = diff_runs,
    .min_inputs = 2,
    .max_inputs = 2,
};

static const cli_option report_options[] = {
    {"reference", "RUN", "whose curves of tasks stand beside these (eval.reference)"}, {0}};

const cli_command command_runs_report = {
    .name = "runs report",
    .summary = "writes RUN/report.html again",
    .usage = "RUN [--reference RUN]",
    .run = report_run,
    .options = report_options,
};
