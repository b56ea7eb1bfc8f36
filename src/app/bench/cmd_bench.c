/* athanor bench train: how fast this machine trains a model, and where the time goes. */
#include <stdio.h>
#include <stdlib.h>

#include "app/bench/bench_row.h"
#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "train/bench/bench.h"

/* ---- what the bench commands share ---- */

void bench_put_row(json_t *rows, const char *name, double value, const char *unit) {
    json_array_append_new(
        rows, json_pack("{s:s,s:o,s:s}", "name", name, "value", json_f64(value), "unit", unit));
}

/* ---- JSON ---- */

void bench_put_facts(json_t *o, const bench_facts *f) {
    json_object_set_new(o, "params", json_integer(f->params));
    json_object_set_new(o, "device", json_string(f->device));
    if (*f->gpu) json_object_set_new(o, "gpu", json_cstr(f->gpu));
    json_object_set_new(o, "isa", json_string(f->isa));
    json_object_set_new(o, "threads", json_integer(f->threads));
    json_object_set_new(o, "precision", json_string(f->precision));
    json_object_set_new(o, "tok_per_step", json_integer(f->tok_per_step));
}

static void put_bytes(json_t *rows, const char *name, int64_t bytes) {
    json_array_append_new(rows, json_pack("{s:s,s:I,s:s}", "name", name, "value", (json_int_t)bytes,
                                          "unit", "bytes"));
}

static void put_profile(json_t *o, json_t *rows, const bench_profile *p) {
    bench_shares s = bench_profile_shares(p);
    bench_put_row(rows, "share_matmul", s.matmul, "1");
    bench_put_row(rows, "share_head", s.head, "1");
    bench_put_row(rows, "share_attention", s.attention, "1");
    bench_put_row(rows, "share_other", s.other, "1");
    bench_put_row(rows, "peak_gb_per_s", p->peak_bandwidth / 1e9, "GB/s");
    json_object_set_new(o, "profile", bench_profile_json(p));
}

static json_t *result_json(const bench_facts *f, const bench_summary *s, const bench_profile *p) {
    json_t *o = json_object(), *rows = json_array();
    bench_put_facts(o, f);
    json_object_set_new(o, "rows", rows);
    bench_put_row(rows, "tok_per_s", s->tok_per_s, "tok/s");
    bench_put_row(rows, "tok_per_s_min", s->tok_per_s_min, "tok/s");
    bench_put_row(rows, "tok_per_s_max", s->tok_per_s_max, "tok/s");
    bench_put_row(rows, "step_ms", s->step_ms, "ms");
    bench_put_row(rows, "mfu", s->mfu, "1");
    bench_put_row(rows, "hfu", s->hfu, "1");
    bench_put_row(rows, "loss", s->loss, "nats");
    put_bytes(rows, "peak_rss_bytes", s->peak_rss_bytes);
    put_bytes(rows, "planned_peak_bytes", f->planned_peak_bytes);
    put_bytes(rows, "activation_bytes", f->activation_bytes);
    bench_put_row(rows, "peak_gflops", f->peak_flops / 1e9, "GFLOP/s");
    bench_put_row(rows, "model_flops", f->model_flops, "FLOP");
    bench_put_row(rows, "hardware_flops", f->hardware_flops, "FLOP");
    if (p) put_profile(o, rows, p);
    return o;
}

/* ---- on demand ---- */

static void print_ready(const bench_facts *f) {
    json_t *o = json_pack("{s:s}", "event", "ready");
    bench_put_facts(o, f);
    json_object_set_new(o, "planned_peak_bytes", json_integer(f->planned_peak_bytes));
    json_object_set_new(o, "activation_bytes", json_integer(f->activation_bytes));
    json_object_set_new(o, "model_flops", json_f64(f->model_flops));
    json_object_set_new(o, "peak_gflops", json_f64(f->peak_flops / 1e9));
    cli_print_json(o);
}

static void print_step_json(const bench_step *r) {
    cli_print_json(json_pack("{s:s,s:I,s:o,s:o,s:o,s:o}", "event", "step", "step",
                             (json_int_t)r->step, "step_ms", json_f64((double)r->ns / 1e6),
                             "tok_per_s", json_f64(r->tok_per_s), "mfu", json_f64(r->mfu), "loss",
                             json_f64(r->loss)));
}

/* One step for each line of standard input, so that two programs can take turns. Of several ranks
 * the first one reads. */
static status run_on_demand(bench *b, bool leads, err *e) {
    const bench_facts *f = bench_get_facts(b);
    char *line = NULL;
    size_t cap = 0;
    status st = ST_OK;
    if (leads) print_ready(f);
    while (st == ST_OK && bench_agree(b, leads && getline(&line, &cap, stdin) >= 0)) {
        bench_step r;
        st = bench_run_step(b, &r, e);
        if (st == ST_OK && leads) print_step_json(&r);
    }
    free(line);
    if (st != ST_OK || !leads) return st;
    cli_print_json(json_pack("{s:s,s:I,s:I}", "event", "end", "peak_rss_bytes",
                             (json_int_t)dev_process_peak_bytes(), "planned_peak_bytes",
                             (json_int_t)f->planned_peak_bytes));
    return ST_OK;
}

/* ---- a fixed number of steps ---- */

typedef struct bench_wish {
    int64_t steps, warmup;
    bool profile, leads;     /* leads: this is the rank that speaks */
    const char *svg, *trace; /* where the picture and the timeline go; NULL: none */
} bench_wish;

static void print_step(const bench_step *r, bool warmup) {
    printf("step %3ld %10.1f ms %10.1f tok/s  MFU %5.1f %%  loss %.4f%s\n", (long)r->step,
           (double)r->ns / 1e6, r->tok_per_s, 100 * r->mfu, r->loss, warmup ? "  (warm-up)" : "");
    fflush(stdout);
}

static status run_steps(const cli_args *args, bench *b, const bench_wish *w, bench_step *steps,
                        err *e) {
    for (int64_t i = 0; i < w->warmup + w->steps; i++) {
        bench_step *r = &steps[i < w->warmup ? 0 : i - w->warmup];
        if (i == w->warmup && w->profile) bench_start_profile(b);
        TRY(bench_run_step(b, r, e));
        if (!args->json && w->leads) print_step(r, i < w->warmup);
    }
    return ST_OK;
}

void bench_describe_facts(const bench_facts *f, char out[256]) {
    char where[DEV_NAME_MAX + 32];
    if (*f->gpu)
        snprintf(where, sizeof where, "%s%s", f->gpu,
                 f->emulated ? ", whose times mean nothing" : "");
    else
        snprintf(where, sizeof where, "%s, %d thread%s", f->isa, f->threads, text_s(f->threads));
    snprintf(out, 256, "%.1fM parameters, %ld tokens a step, %s, %s", (double)f->params / 1e6,
             (long)f->tok_per_step, f->precision, where);
}

static void print_summary(const bench_facts *f, const bench_summary *s) {
    char facts[256];
    bench_describe_facts(f, facts);
    printf("\n%s\n", facts);
    printf("median %.1f ms, %.1f tok/s (%.1f to %.1f)\n", s->step_ms, s->tok_per_s,
           s->tok_per_s_min, s->tok_per_s_max);
    printf("MFU %.1f %%, HFU %.1f %% of %.1f GFLOP/s, %s\n", 100 * s->mfu, 100 * s->hfu,
           f->peak_flops / 1e9,
           *f->gpu && !f->emulated ? "the limit of this GPU by its clock"
                                   : "which this machine computes in registers");
    printf(
        "peak resident %.1f MiB; planned arena %.1f MiB, activations kept for backward %.1f MiB\n",
        (double)s->peak_rss_bytes / (1 << 20), (double)f->planned_peak_bytes / (1 << 20),
        (double)f->activation_bytes / (1 << 20));
}

void bench_print_profile(const bench_profile *p) {
    strbuf text = {0};
    bench_profile_describe(p, &text);
    printf("\n%s", strbuf_cstr(&text));
    strbuf_free(&text);
}

static status write_pictures(const cli_args *args, const bench_wish *w, const bench_facts *f,
                             const bench_profile *p, err *e) {
    char facts[256], title[512];
    strbuf out = {0};
    status st = ST_OK;
    bench_describe_facts(f, facts);
    snprintf(title, sizeof title, "One training step of %s: %.1f ms", args->inputs[0],
             p->step_s * 1e3);
    if (w->svg) {
        bench_icicle_write(&out, p, title, facts);
        st = file_write_atomic(w->svg, out.data, out.len, e);
        strbuf_clear(&out);
    }
    if (w->trace && st == ST_OK) {
        bench_timeline_write(&out, p, title);
        st = file_write_atomic(w->trace, out.data, out.len, e);
    }
    strbuf_free(&out);
    return st;
}

static status run_and_report(const cli_args *args, bench *b, const bench_wish *w, err *e) {
    const bench_facts *f = bench_get_facts(b);
    bench_step *steps = xcalloc((size_t)w->steps, sizeof *steps);
    bench_profile p;
    bench_summary s = {0};
    status st = run_steps(args, b, w, steps, e);
    if (st == ST_OK) s = bench_summarize(b, steps, (int)w->steps);
    if (!w->leads) {
        free(steps);
        return st;
    }
    if (st == ST_OK && w->profile) st = bench_get_profile(b, &p, e);
    if (st == ST_OK && w->profile) st = write_pictures(args, w, f, &p, e);
    free(steps);
    if (st != ST_OK) return st;
    if (args->json) {
        cli_print_json(result_json(f, &s, w->profile ? &p : NULL));
    } else {
        print_summary(f, &s);
        if (w->profile) bench_print_profile(&p);
    }
    return ST_OK;
}

/* ---- the command ---- */

/* Known before minutes of steps, not after them. */
static status check_folder_of(const cli_args *args, const char *option, err *e) {
    const char *path = cli_value(args, option);
    char folder[4096];
    if (!path) return ST_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(path_base(path) - path), path);
    if (!*folder || file_is_dir(folder)) return ST_OK;
    err_set(e, ST_USAGE, "there is no folder %s for the profile", folder);
    return err_where(e, "command line (--%s)", option);
}

static status read_wish(const cli_args *args, bench_wish *w, err *e) {
    TRY(cli_int(args, "steps", 5, 1, 100000, &w->steps, e));
    TRY(cli_int(args, "warmup", 2, 0, 100000, &w->warmup, e));
    w->svg = cli_value(args, "svg");
    w->trace = cli_value(args, "trace");
    w->profile = cli_has(args, "profile") || w->svg || w->trace;
    TRY(check_folder_of(args, "svg", e));
    TRY(check_folder_of(args, "trace", e));
    return ST_OK;
}

static status cmd_bench_train(const cli_args *args, err *e) {
    config *c;
    bench *b = NULL;
    bench_wish w;
    TRY(read_wish(args, &w, e));
    if (args->json || cli_has(args, "on-demand")) log_set_quiet(true);
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    comm_world *world = NULL;
    status st = comm_open_environment(&world, e);
    if (st == ST_OK) st = bench_open(&b, c, world, e);
    if (st == ST_OK) {
        w.leads = comm_world_rank(world) == 0;
        if (w.leads) config_tell_notes(c);
        st = cli_has(args, "on-demand") ? run_on_demand(b, w.leads, e)
                                        : run_and_report(args, b, &w, e);
    }
    if (st != ST_OK && world) comm_fail(world, e);
    bench_close(b);
    comm_close(world);
    config_free(c);
    return st;
}

static const cli_option options[] = {
    {"steps", "N", "measured steps (5)"},
    {"warmup", "N", "steps before them (2)"},
    {"profile", NULL, "where the time goes: every op with its share and its limit"},
    {"svg", "OUT.svg", "the profile as a picture; implies --profile"},
    {"trace", "OUT.json", "the profile for https://ui.perfetto.dev; implies --profile"},
    {"on-demand", NULL, "one step for every line of standard input; implies --json"},
    {0}};

static const cli_rule rules[] = {{"on-demand", CLI_EXCLUDES, "steps|warmup|profile|svg|trace",
                                  "with --on-demand every line of standard input runs one step"},
                                 {0}};

const cli_command command_bench_train = {
    .name = "bench train",
    .summary = "measure training steps, and where their time goes",
    .usage = "MODEL|CONFIG [key=value...] [--steps N] [--warmup N] [--profile] [--svg OUT.svg] "
             "[--trace OUT.json] [--on-demand]",
    .run = cmd_bench_train,
    .options = options,
    .rules = rules,
    .takes_keys = true};
