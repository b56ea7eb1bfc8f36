/* athanor plan validate, plan fit: the clock beside measured rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/clock/measured.h"

/* calibration: what fit wrote, or NULL. Rows of CPUs name no preset: they ran on what it is of, where nothing else is said. */
static status open_rows(const cli_args *args, const char *calibration, measured_rows *r, err *e) {
    cluster c;
    measured_model m;
    const char *name = cli_override(args, "cluster");
    static const char *const keys[] = {"cluster", NULL};
    bool given = name;
    TRY(cli_check_overrides(args, keys, e));
    if (name) {
        TRY(cluster_find(&c, name, e));
    } else if (calibration) {
        TRY(measured_load(&m, calibration, e));
        given = m.c.kind == DEV_CPU;
        c = m.c;
    }
    return measured_read(r, args->inputs[0], given ? &c : NULL, e);
}

/* ---- what is said ---- */

static int worst_first(const void *a, const void *b) {
    const measured_row *x = *(const measured_row *const *)a, *y = *(const measured_row *const *)b;
    double s = x->predicted / x->tok_per_s_gpu, t = y->predicted / y->tok_per_s_gpu;
    s = s < 1 ? 1 / s : s;
    t = t < 1 ? 1 / t : t;
    return (s < t) - (s > t);
}

static json_t *worst_json(const measured_rows *r) {
    enum { MOST = 10 };
    const measured_row **list = xcalloc((size_t)r->n + 1, sizeof *list);
    json_t *worst = json_array();
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (r->row[i].ok && r->row[i].tok_per_s_gpu > 0 && r->row[i].predicted > 0)
            list[n++] = &r->row[i];
    qsort(list, (size_t)n, sizeof *list, worst_first);
    for (int i = 0; i < n && i < MOST; i++)
        json_array_append_new(worst,
                              json_pack("{s:i,s:f,s:f}", "line", list[i]->line, "tok_s_gpu",
                                        list[i]->tok_per_s_gpu, "predicted", list[i]->predicted));
    free(list);
    return worst;
}

static json_t *regret_json(const measured_rows *r, const measured_score *s) {
    json_t *list = json_array();
    for (int i = 0; i < s->cells; i++) {
        const measured_regret *x = &s->regret[i];
        const model_config *mc = &r->sketch[x->chosen->sketch].spec.model;
        json_array_append_new(list, json_pack("{s:I,s:I,s:I,s:i,s:f,s:i,s:i}", "layers",
                                              (json_int_t)mc->num_hidden_layers, "hidden",
                                              (json_int_t)mc->hidden_size, "vocab",
                                              (json_int_t)mc->vocab_size, "nodes", x->chosen->nodes,
                                              "regret", x->lost, "chosen_line", x->chosen->line,
                                              "best_line", x->best->line));
    }
    return list;
}

static json_t *score_json(const measured_rows *r, const measured_score *s) {
    json_t *o =
        json_pack("{s:i,s:i,s:f,s:f,s:f,s:o,s:{s:i,s:i,s:i},s:{s:f,s:f}}", "rows", s->rows, "used",
                  s->used, "median_abs_rel_err", s->median, "median_abs_rel_err_stalls",
                  s->median_stalls, "spearman_median", s->spearman, "regret", regret_json(r, s),
                  "regret_within", "cells", s->cells, "5", s->regret_5, "10", s->regret_10, "oom",
                  "kept_success", s->kept_success, "rejected_fail", s->rejected_fail);
    if (s->memory_rows > 0)
        json_object_set_new(o, "memory",
                            json_pack("{s:i,s:o,s:f}", "rows", s->memory_rows, "r2",
                                      json_f64(s->memory_r2), "median_ratio", s->memory_ratio));
    return o;
}

static json_t *refused_json(const measured_rows *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->n_refused; i++)
        json_array_append_new(list,
                              json_pack("{s:i,s:i,s:o}", "line", r->refused[i].line, "rows",
                                        r->refused[i].rows, "why", json_cstr(r->refused[i].why)));
    return list;
}

static void put_refused(strbuf *out, const measured_rows *r) {
    for (int i = 0; i < r->n_refused; i++) {
        const measured_refusal *x = &r->refused[i];
        strbuf_printf(out, "  not used: line %d", x->line);
        if (x->rows > 1) strbuf_printf(out, " and %d more", x->rows - 1);
        strbuf_printf(out, ": %s\n", x->why);
    }
}

static void put_score(strbuf *out, const measured_score *s, const char *how) {
    strbuf_printf(out, "%s: %d of %d rows used\n", how, s->used, s->rows);
    strbuf_printf(out, "  %-36s %6.1f %%\n", "median error of tokens a second", 100 * s->median);
    if (s->median_stalls > 0)
        strbuf_printf(out, "  %-36s %6.1f %%  (never fitted)\n",
                      "ZeRO-0 with a pipeline over nodes", 100 * s->median_stalls);
    if (s->cells > 0)
        strbuf_printf(out, "  %-36s %6.2f\n", "rank correlation in a cell, median", s->spearman);
    if (s->cells > 0)
        strbuf_printf(out, "  %-36s %d and %d of %d cells\n", "chosen layout within 5 and 10 %",
                      s->regret_5, s->regret_10, s->cells);
    if (s->rejected_fail > 0)
        strbuf_printf(out, "  %-36s %6.1f %% kept, %.1f %% rejected\n",
                      "memory: successful rows, failed ones", 100 * s->kept_success,
                      100 * s->rejected_fail);
    if (s->memory_rows > 0)
        strbuf_printf(out, "  %-36s %6.2f in the median of %d rows",
                      "memory: predicted over measured", s->memory_ratio, s->memory_rows);
    if (s->memory_rows > 0 && !isnan(s->memory_r2)) strbuf_printf(out, ", R^2 %.3f", s->memory_r2);
    if (s->memory_rows > 0) strbuf_printf(out, "\n");
}

/* What was said of each row, with its line in the file. */
static status write_rows(const cli_args *args, const measured_rows *r, err *e) {
    strbuf out = {0};
    if (!cli_has(args, "rows")) return ST_OK;
    strbuf_puts(&out, "line,nodes,tp,cp,pp,dp,zero,mbs,micro_batches,ok,tok_s_gpu,predicted,"
                      "memory_gib\n");
    for (int i = 0; i < r->n; i++) {
        const measured_row *x = &r->row[i];
        const sketch_layout *l = &x->layout;
        strbuf_printf(&out, "%d,%d,%d,%d,%d,%d,%d,%d,%lld,%d,%.2f,%.2f,%.2f\n", x->line, x->nodes,
                      l->key.tp, l->key.cp, l->pp, l->dp, l->zero, l->key.micro_batch,
                      (long long)l->micro_batches, (int)x->ok, x->tok_per_s_gpu, x->predicted,
                      x->memory_bytes / (1 << 30));
    }
    status st = file_write_atomic(cli_value(args, "rows"), out.data, out.len, e);
    strbuf_free(&out);
    return st;
}

static status check_used(const cli_args *args, const measured_rows *r, err *e) {
    measured_score s = measured_judge(r);
    const char *path = args->inputs[0];
    char none[64] = "its only row cannot be used";
    if (s.used > 0) return ST_OK;
    if (s.rows == 0) {
        err_at(e, ST_FORMAT, path, "%s has no rows below its header", path);
        return err_hint(e, "a row is a layout with what was measured of it");
    }
    if (s.rows > 1) snprintf(none, sizeof none, "none of its %d rows can be used", s.rows);
    if (*r->unknown) {
        err_at(e, ST_USAGE, "cluster", "%s: nothing is known of '%s'", none, r->unknown);
        return err_hint(
            e, "say what they ran on: cluster=local or local-N (this machine with N ranks), "
               "or the path of a cluster");
    }
    err_at(e, ST_FORMAT, path, "%s%s%s", none, r->n_refused ? ": " : "",
           r->n_refused ? r->refused[0].why : "");
    return err_hint(e, "docs/planning.md says which columns and values rows need");
}

static status report(const cli_args *args, const measured_rows *r, const char *how, err *e) {
    measured_score s = measured_judge(r);
    TRY(write_rows(args, r, e)); /* before anything is said, which an error would follow */
    if (args->json) {
        json_t *o = score_json(r, &s);
        json_object_set_new(o, "worst", worst_json(r));
        json_object_set_new(o, "refused", refused_json(r));
        cli_print_json(o);
    } else {
        strbuf out = {0};
        put_score(&out, &s, how);
        put_refused(&out, r);
        progress_put_rows(stdout, strbuf_cstr(&out));
        strbuf_free(&out);
    }
    return ST_OK;
}

/* ---- the commands ---- */

static status find_model(const cli_args *args, const cluster *c, measured_model *m, err *e) {
    if (cli_has(args, "calibration")) return measured_load(m, cli_value(args, "calibration"), e);
    return measured_as(m, cli_value(args, "as"), c, e);
}

static status cmd_plan_validate(const cli_args *args, err *e) {
    measured_rows r = {0};
    measured_model m;
    const char *as = cli_value(args, "as");
    bool published = as ? strcmp(as, "published") == 0 : !cli_has(args, "calibration");
    status st = open_rows(args, cli_value(args, "calibration"), &r, e);
    if (st == ST_OK && !published) st = find_model(args, &r.c, &m, e);
    if (st == ST_OK) {
        if (published)
            measured_predict_published(&r);
        else
            measured_predict(&r, &m);
        st = check_used(args, &r, e);
        if (st == ST_OK) st = report(args, &r, "as it is", e);
    }
    measured_free(&r);
    return st;
}

static status write_fit(const cli_args *args, const measured_model *m, err *e) {
    strbuf text = {0};
    json_t *o = measured_json(m);
    json_format(&text, o, 2);
    strbuf_putc(&text, '\n');
    status st = file_write_atomic(args->output, text.data, text.len, e);
    strbuf_free(&text);
    json_decref(o);
    return st;
}

/* Each cell in turn is predicted by what was fitted to the others, from the beginning: what was fitted to all has seen it. */
static void hold_out(measured_rows *r) {
    measured_row *held = xcalloc((size_t)r->n + 1, sizeof *held);
    int cells = (int)json_object_size(r->cell_key);
    for (int k = 0; k < cells; k++) {
        measured_model m = measured_start(&r->c);
        measured_fit(r, &m, k);
        for (int i = 0; i < r->n; i++)
            if (r->row[i].cell == k) held[i] = r->row[i];
    }
    memcpy(r->row, held, (size_t)r->n * sizeof *held);
    free(held);
}

static status check_cells(const measured_rows *r, err *e) {
    if (r->n == 0 || json_object_size(r->cell_key) > 1) return ST_OK;
    err_at(
        e, ST_USAGE, "--hold-out",
        "its rows are of one model on one number of nodes: without them nothing is left to fit to");
    return err_hint(e, "leave --hold-out out, or add rows of another model or number of nodes");
}

static status cmd_plan_fit(const cli_args *args, err *e) {
    measured_rows r = {0};
    bool holds = cli_has(args, "hold-out");
    status st = open_rows(args, NULL, &r, e);
    if (st == ST_OK && holds) st = check_cells(&r, e);
    if (st == ST_OK) {
        measured_model m = measured_start(&r.c);
        measured_fit(&r, &m, -1);
        st = check_used(args, &r, e);
        if (st == ST_OK) st = write_fit(args, &m, e);
        if (st == ST_OK && holds) hold_out(&r);
        if (st == ST_OK)
            st = report(args, &r,
                        holds ? "each model and number of nodes, by what was fitted to the others"
                              : "fitted to these rows",
                        e);
    }
    measured_free(&r);
    return st;
}

static const cli_option validate_options[] = {
    {"as", "RUNTIME",
     "whose run it was: athanor, nanotron-0.5, megatron, torchtitan, megatron-core, or published: "
     "as each row's "
     "source says (published)"},
    {"calibration", "FILE", "what plan fit wrote"},
    {"rows", "OUT.csv", "what was said of each row"},
    {0}};
static const cli_rule validate_rules[] = {{"as", CLI_EXCLUDES, "calibration", NULL}, {0}};

const cli_command command_plan_validate = {
    .name = "plan validate",
    .summary = "the clock beside measured rows",
    .usage = "ROWS.csv [--as RUNTIME | --calibration FILE] [cluster=NAME] [--rows OUT.csv]",
    .run = cmd_plan_validate,
    .options = validate_options,
    .rules = validate_rules,
    .takes_keys = true};

static const cli_option fit_options[] = {
    {"hold-out", NULL,
     "the error of each model and number of nodes by what is fitted to the others"},
    {"rows", "OUT.csv", "what was said of each row"},
    {0}};

const cli_command command_plan_fit = {
    .name = "plan fit",
    .summary = "a cluster and a runtime, fitted to measured rows",
    .usage = "ROWS.csv -o OUT.yaml [--hold-out] [cluster=NAME] [--rows OUT.csv]",
    .run = cmd_plan_fit,
    .options = fit_options,
    .takes_output = true,
    .needs_output = true,
    .takes_keys = true};
