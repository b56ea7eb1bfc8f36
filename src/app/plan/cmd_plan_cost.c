/* athanor plan cost: what a run takes in device-hours, days, energy and money. Its step is clocked where a config is given, else
 * an MFU is assumed. */
#include <math.h>
#include <stdio.h>

#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "app/frame/progress.h"
#include "app/plan/clocked_run.h"
#include "app/plan/on_cluster.h"
#include "app/plan/plan_laws.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/clock/cost.h"
#include "run/config/config_device.h"
#include "train/train.h"

static const double HOUR = 3600, DAY = 86400, PUE = 1.2;

/* What an MFU counts. */
static const char OF_6ND[] = "6 N D, without attention";
static const char OF_VISIBLE[] =
    "the model's products and visible pairs of attention, of causal attention half";

typedef struct run_cost {
    cost_wish wish;
    cost_sum sum;
    double stored;             /* parameters with experts that a token does not pick; 0: N */
    double mfu_with_attention; /* of a config, by the clock; 0: there is none */
    double tokens_per_s;       /* measured; 0: it was not */
    laws_run laws;
    bool has_laws;
    config *config; /* NULL: by hand */
} run_cost;

/* ---- what is asked ---- */

static status read_numbers(const cli_args *args, cost_wish *w, err *e) {
    double days, every, restart, write;
    TRY(cli_num(args, "days", 0, 0.0001, 1e6, &days, e));
    TRY(cli_num(args, "serial", 0, 0, 1, &w->serial, e));
    TRY(cli_num(args, "preemptions-per-day", 0, 0, 1e6, &w->preemptions_per_hour, e));
    TRY(cli_num(args, "checkpoint-every", 60, 0.01, 1e6, &every, e));
    TRY(cli_num(args, "checkpoint", 0, 0, 1e6, &write, e));
    TRY(cli_num(args, "restart", 10, 0, 1e6, &restart, e));
    TRY(cli_num(args, "ablations", 0, 0, 1e12, &w->ablation_hours, e));
    TRY(cli_num(args, "evaluation", 0, 0, 1e12, &w->evaluation_hours, e));
    TRY(cli_num(args, "debugging", 0, 0, 1e12, &w->debug_hours, e));
    TRY(cli_num(args, "price", w->dollars_per_hour, 0, 1e9, &w->dollars_per_hour, e));
    TRY(cli_num(args, "spot-price", 0, 0.0001, 1e9, &w->spot_per_hour, e));
    TRY(cli_num(args, "pue", PUE, 1, 10, &w->pue, e));
    if (cli_has(args, "pue") && w->watts <= 0) {
        err_at(e, ST_USAGE, "--pue", "nothing says how many watts a %s takes", w->device);
        return err_hint(e, "a cluster's file says it as device.watts");
    }
    w->preemptions_per_hour /= 24;
    w->deadline_s = days * DAY;
    w->checkpoint_every_s = every * 60;
    w->checkpoint_s = write * 60;
    w->restart_s = restart * 60;
    return ST_OK;
}

/* A time that is known, of a run whose FLOPs are known, too: what share of the peak that is. */
static status check_hours(const cli_args *args, const cost_wish *w, err *e) {
    double hours = w->known_s / HOUR * w->devices;
    double mfu = hours > 0 ? 6 * w->params * w->tokens / (hours * HOUR * w->peak_flops) : 0;
    if (mfu <= 1) return ST_OK;
    err_at(e, ST_USAGE, cli_has(args, "hours") ? "--hours" : "--tokens-per-second",
           "%.4g device-hour%s too few for it: it would run at %.3g times the peak of %.4g TFLOP/s",
           hours, hours == 1 ? " is" : "s are", mfu, w->peak_flops / 1e12);
    return err_hint(e, "at an MFU of 0.4 (%s) it takes %.4g", OF_6ND, hours * mfu / 0.4);
}

/* --params and --tokens instead of a config, with an MFU; or --hours, where these are known; or --tokens at a measured rate. */
static status read_by_hand(const cli_args *args, run_cost *r, err *e) {
    static const char *const keys[] = {"cluster", NULL};
    cost_wish *w = &r->wish;
    int64_t n;
    cluster on;
    double hours;
    const char *name = cli_override(args, "cluster");
    TRY(cli_check_overrides(args, keys, e));
    if (cli_has(args, "tokens-per-second") && !name && !cli_has(args, "devices")) {
        err_at(e, ST_USAGE, "--tokens-per-second", "of how many devices is that the rate?");
        return err_hint(e, "add --devices N, or cluster=NAME");
    }
    TRY(cluster_find(&on, name ? name : "h100", e));
    w->peak_flops = on.peak_flops[DT_BF16];
    w->dollars_per_hour = on.dollars_per_hour;
    w->watts = on.watts;
    TRY(cli_num(args, "hours", 0, 0.01, 1e12, &hours, e));
    TRY(cli_num(args, "params", 0, 1, 1e15, &w->params, e));
    TRY(cli_num(args, "tokens", 0, 1, 1e18, &w->tokens, e));
    TRY(cli_num(args, "tokens-per-second", 0, 1e-3, 1e15, &r->tokens_per_s, e));
    TRY(cli_num(args, "mfu", 0.4, 0.001, 1, &w->mfu, e));
    TRY(cli_num(args, "tflops", w->peak_flops / 1e12, 1e-6, 1e9, &w->peak_flops, e));
    w->peak_flops *= 1e12;
    TRY(cli_int(args, "devices", cluster_devices(&on), 1, 1 << 20, &n, e));
    w->devices = (int)n;
    w->known_s = r->tokens_per_s > 0 ? w->tokens / r->tokens_per_s : hours * HOUR / w->devices;
    snprintf(w->device, sizeof w->device, "%s", on.device_name);
    r->laws = (laws_run){.params = w->params, .tokens = w->tokens};
    r->has_laws = w->params > 0;
    return check_hours(args, w, e);
}

static status check_length(const config *c, const course *k, err *e) {
    if (k->knows_length) return ST_OK;
    if (c->train.epochs > 0) {
        config_error(
            c, e, "train.epochs",
            "epochs are of data, and tokenizer or data of this config cannot be read here");
        return err_hint(e, "set tokenizer and data.train to what is here, or set train.tokens");
    }
    config_error(c, e, "train.steps", "nothing says how long the run is");
    return err_hint(e, "set train.tokens or train.steps");
}

static void clock_run(const config *c, plan *p, const course *k, const cluster *on, run_cost *r) {
    cost_wish *w = &r->wish;
    clocked_run t = clocked_run_of(p, k, on);
    r->has_laws = plan_laws_run(c, p, k, &r->laws);
    r->stored = r->laws.stored;
    r->mfu_with_attention = t.mfu;
    w->known_s = t.seconds;
    w->devices = t.devices;
    w->params = r->laws.params;
    w->tokens = r->laws.tokens;
    w->dollars_per_hour = on->dollars_per_hour;
    w->watts = on->watts;
    w->peak_flops = t.peak_flops;
    snprintf(w->device, sizeof w->device, "%s", on->device_name);
}

static status read_config(const cli_args *args, run_cost *r, err *e) {
    cluster on;
    dev *meta;
    plan *p = NULL;
    course *k = NULL;
    TRY(model_arg_load(args->inputs[0], args, &r->config, e));
    if (!r->config->cluster) {
        err_at(e, ST_USAGE, "cluster", "for which cluster? The config names none");
        return err_hint(e, "add cluster=h100-64, for example");
    }
    TRY(on_cluster_take(r->config, &on, e));
    TRY(config_open_meta(r->config, &meta, e));
    status st = train_plan_course(r->config, meta, &p, &k, e);
    if (st == ST_OK) st = check_length(r->config, k, e);
    if (st == ST_OK) clock_run(r->config, p, k, &on, r);
    plan_free(p);
    course_free(k);
    dev_close(meta);
    return st;
}

/* ---- as JSON ---- */

static json_t *sum_json(const run_cost *r) {
    const cost_wish *w = &r->wish;
    const cost_sum *s = &r->sum;
    json_t *o = json_pack(
        "{s:f,s:f,s:f,s:f,s:i,s:o,s:o,s:o,s:f,s:o,s:o,s:o}", "flops", s->flops, "tokens", w->tokens,
        "params", w->params, "tokens_per_param", s->tokens_per_param, "devices", w->devices, "days",
        json_f64(s->run_s / DAY), "device_hours", json_f64(s->device_hours), "all_hours",
        json_f64(s->all_hours), "overhead_hours", s->overhead_hours, "kwh", json_f64(s->kwh),
        "dollars", json_f64(s->dollars), "lost_share", json_f64(1 - s->ideal_s / s->run_s));
    json_object_set_new(o, "device", json_cstr(w->device));
    if (r->stored > w->params) json_object_set_new(o, "stored_params", json_real(r->stored));
    if (s->mfu > 0) {
        json_object_set_new(o, "mfu", json_f64(s->mfu));
        json_object_set_new(o, "mfu_counts", json_string(OF_6ND));
    }
    if (r->mfu_with_attention > 0) {
        json_object_set_new(o, "mfu_with_attention", json_f64(r->mfu_with_attention));
        json_object_set_new(o, "mfu_with_attention_counts", json_string(OF_VISIBLE));
    }
    if (s->devices_needed)
        json_object_set_new(o, "devices_needed", json_integer(s->devices_needed));
    if (s->speed_up > 0)
        json_object_set_new(
            o, "amdahl", json_pack("{s:f,s:f}", "speed_up", s->speed_up, "limit", s->speed_limit));
    if (s->staying_dollars > 0)
        json_object_set_new(o, "spot",
                            json_pack("{s:f,s:f}", "staying_dollars", s->staying_dollars,
                                      "even_preemptions_per_day", 24 * s->even_per_hour));
    if (s->best_checkpoint_s > 0)
        json_object_set_new(o, "best_checkpoint_minutes", json_real(s->best_checkpoint_s / 60));
    if (r->has_laws && r->config) plan_laws_put(r->config, &r->laws, o, NULL);
    if (r->has_laws && !r->config) json_object_set_new(o, "laws", laws_json(&r->laws));
    return o;
}

/* ---- as text ---- */

/* Whole where that has three digits, else three digits. */
static const char *digits(double x, char out[64]) {
    snprintf(out, 64, x >= 99.5 ? "%.0f" : "%.3g", x);
    return out;
}

/* In the largest unit of which it is one at least. */
static void put_time(strbuf *out, const char *name, double seconds) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"seconds", 1}, {"minutes", 60}, {"hours", 3600}, {"days", 86400}};
    int u = ARRAY_LEN(units) - 1;
    while (u > 0 && seconds < units[u].seconds) u--;
    double x = seconds / units[u].seconds;
    char text[64];
    snprintf(text, sizeof text, x >= 9.995 ? "%.1f" : "%.3g", x);
    strbuf_printf(out, "  %-22s %12s %s", name, text, units[u].name);
}

static void put_dollars(strbuf *out, const char *name, double dollars) {
    bool cents = dollars < 1;
    char text[64];
    if (cents || dollars >= 99.995)
        digits(cents ? 100 * dollars : dollars, text);
    else
        snprintf(text, sizeof text, "%.2f", dollars);
    strbuf_printf(out, "  %-22s %12s %s", name, text, cents ? "cents" : "dollars");
}

static void put_money(strbuf *out, const cost_wish *w, const cost_sum *s) {
    bool spot = w->spot_per_hour > 0;
    if (s->dollars > 0) {
        put_dollars(out, "money", s->dollars);
        strbuf_printf(out, ", at %.2f for a device and hour\n",
                      spot ? w->spot_per_hour : w->dollars_per_hour);
    }
    if (!spot || s->staying_dollars <= 0) return;
    put_dollars(out, "", s->staying_dollars);
    strbuf_printf(out, " at %.2f on devices that stay: spot is %.0f %% %s", w->dollars_per_hour,
                  100 * fabs(1 - s->dollars / s->staying_dollars),
                  s->dollars < s->staying_dollars ? "cheaper" : "dearer");
    if (s->even_per_hour > 0)
        strbuf_printf(out, ", up to %.1f preemptions a day", 24 * s->even_per_hour);
    strbuf_printf(out, "\n");
}

static void put_laws(strbuf *out, const run_cost *r) {
    if (!r->has_laws) return;
    if (r->config)
        plan_laws_put(r->config, &r->laws, NULL, out);
    else
        laws_describe(&r->laws, out);
}

/* How often to save is best is known where a checkpoint takes time. */
static void put_lost(strbuf *out, const cost_wish *w, const cost_sum *s) {
    double lost = 1 - s->ideal_s / s->run_s;
    if (lost <= 0) return;
    strbuf_printf(out, "  %-22s %12.1f %% of that are lost to %scheckpoints", "", 100 * lost,
                  w->preemptions_per_hour > 0 ? "preemptions and " : "");
    if (w->preemptions_per_hour <= 0)
        strbuf_printf(out, ", one each %.7g minutes\n", w->checkpoint_every_s / 60);
    else if (s->best_checkpoint_s > 0)
        strbuf_printf(out, "; one each %.0f minutes is best\n", s->best_checkpoint_s / 60);
    else
        strbuf_printf(out, "; with --checkpoint (minutes for one) it says how often is best\n");
}

/* Each MFU with what it counts: they differ by a tenth and more. */
static void put_mfu(strbuf *out, const run_cost *r) {
    const cost_wish *w = &r->wish;
    if (r->tokens_per_s > 0)
        strbuf_printf(out, "  %-22s %12.6g tokens a second, %.6g of each device: measured\n",
                      "rate", r->tokens_per_s, r->tokens_per_s / w->devices);
    if (r->sum.mfu > 0)
        strbuf_printf(out, "  %-22s %12.1f %% of %.4g TFLOP/s%s (%s)\n", "MFU", 100 * r->sum.mfu,
                      w->peak_flops / 1e12, w->known_s > 0 ? "" : ", assumed", OF_6ND);
    if (r->mfu_with_attention > 0)
        strbuf_printf(out, "  %-22s %12.1f %% (%s)\n", "", 100 * r->mfu_with_attention, OF_VISIBLE);
}

static void put_flops(strbuf *out, const run_cost *r) {
    const cost_wish *w = &r->wish;
    char stored[16], of[64] = "", each[64];
    if (r->sum.flops <= 0) return;
    if (r->stored > w->params)
        snprintf(of, sizeof of, " of %s", text_short_number(r->stored, stored));
    snprintf(each, sizeof each, r->sum.tokens_per_param < 9.5 ? "%.2g" : "%.0f",
             r->sum.tokens_per_param);
    strbuf_printf(out,
                  "%.3g FLOPs (6 N D: %.3g %sparameters%s, %.3g tokens, %s for each parameter)\n",
                  r->sum.flops, w->params, *of ? "active " : "", of, w->tokens, each);
}

static void put_hours(strbuf *out, const cost_wish *w, const cost_sum *s) {
    char hours[64], beside[64], all[64], kwh[64];
    strbuf_printf(out, "  %-22s %12s\n", "device-hours", digits(s->device_hours, hours));
    if (s->overhead_hours > 0)
        strbuf_printf(out, "  %-22s %12s, %.0f %% of the main run; %s in all\n", "beside it",
                      digits(s->overhead_hours, beside), 100 * s->overhead_hours / s->device_hours,
                      digits(s->all_hours, all));
    if (s->kwh > 0)
        strbuf_printf(
            out,
            "  %-22s %12s kWh, at %.0f W for a device with its share of the machine and a PUE of "
            "%.3g\n",
            "energy", digits(s->kwh, kwh), w->watts, w->pue);
}

static void put_sum(strbuf *out, const run_cost *r) {
    const cost_wish *w = &r->wish;
    const cost_sum *s = &r->sum;
    put_flops(out, r);
    put_time(out, "main run", s->run_s);
    strbuf_printf(out, " on %d x %s\n", w->devices, w->device);
    put_lost(out, w, s);
    put_mfu(out, r);
    put_hours(out, w, s);
    put_money(out, w, s);
    if (s->devices_needed)
        strbuf_printf(out, "  %-22s %12d devices for %.7g days%s\n", "to be done in time",
                      s->devices_needed, w->deadline_s / DAY,
                      w->serial > 0 ? ", if all work were shared" : "");
    if (s->speed_up > 0)
        strbuf_printf(out, "  %-22s %12.2f times one device, at most %.1f (Amdahl)\n",
                      "with serial work", s->speed_up, s->speed_limit);
    if (s->overhead_hours <= 0)
        strbuf_printf(
            out,
            "No hours are set aside for ablations, evaluation and debugging: in a published run "
            "of 3B they took 58 %% of "
            "the main run (--ablations, --evaluation, --debugging).\n");
    put_laws(out, r);
}

static void print_sum(const run_cost *r) {
    strbuf out = {0};
    put_sum(&out, r);
    progress_put_rows(stdout, strbuf_cstr(&out));
    strbuf_free(&out);
}

static status reckon(const cli_args *args, run_cost *r, err *e) {
    bool by_hand = cli_has(args, "tokens") || cli_has(args, "hours");
    if (by_hand && args->n_inputs == 1) {
        err_set(e, ST_USAGE,
                "a config is clocked: --tokens, --hours and what goes with them are for runs "
                "without one");
        return err_hint(e, "leave them out, or leave out %s", args->inputs[0]);
    }
    if (!by_hand && args->n_inputs == 0) {
        err_set(e, ST_USAGE, "of which run? A config, or --params with --tokens, or --hours");
        return err_hint(e, "athanor plan cost --params 3B --tokens 11T --devices 384");
    }
    TRY(by_hand ? read_by_hand(args, r, e) : read_config(args, r, e));
    TRY(read_numbers(args, &r->wish, e));
    return cost_reckon(&r->wish, &r->sum, e);
}

static status cmd_plan_cost(const cli_args *args, err *e) {
    run_cost r = {.has_laws = false};
    status st = reckon(args, &r, e);
    if (st == ST_OK && args->json) cli_print_json(sum_json(&r));
    if (st == ST_OK && !args->json) print_sum(&r);
    config_free(r.config);
    return st;
}

static const cli_option options[] = {
    {"params", "N", "without a config: parameters, active ones of a mixture of experts"},
    {"tokens", "D", "without a config: tokens"},
    {"hours", "H", "without a config: device-hours of the main run, where they are known"},
    {"devices", "N", "without a config: devices (those of the cluster)"},
    {"tokens-per-second", "R", "without a config: measured tokens a second of all devices"},
    {"mfu", "X", "without a config: share of the peak that 6 N D reach, without attention (0.4)"},
    {"tflops", "X", "without a config: peak of a device (that of the cluster)"},
    {"days", "X", "in how many days it is to be done: how many devices that takes"},
    {"price", "X", "dollars for a device and hour (those of the cluster)"},
    {"spot-price", "X", "dollars for a device and hour that may be taken away"},
    {"pue", "X", "energy of the data centre for each unit that its machines take (1.2)"},
    {"serial", "X", "share of the work that more devices do not make shorter"},
    {"preemptions-per-day", "X", "of the whole group (0)"},
    {"checkpoint-every", "MIN", "minutes between checkpoints (60)"},
    {"checkpoint", "MIN", "minutes for which one stops the run (0)"},
    {"restart", "MIN", "minutes to start again (10)"},
    {"ablations", "H", "device-hours of ablations"},
    {"evaluation", "H", "device-hours of evaluation"},
    {"debugging", "H", "device-hours of debugging, and of runs that were thrown away"},
    {0}};

static const cli_rule rules[] = {
    {"spot-price", CLI_NEEDS, "preemptions-per-day",
     "how often such devices are taken away, of the whole group"},
    {"restart", CLI_NEEDS, "preemptions-per-day", "how often the run is stopped"},
    {"checkpoint-every", CLI_NEEDS, "preemptions-per-day|checkpoint",
     "how often the run is stopped, or how long a checkpoint stops it"},
    {"params", CLI_NEEDS, "tokens", "--tokens D: what it is trained on"},
    {"tokens", CLI_NEEDS, "params|tokens-per-second",
     "--params N, of which FLOPs and MFU follow, or --tokens-per-second R, of which time follows"},
    {"tokens-per-second", CLI_NEEDS, "tokens", "--tokens D: how many there are"},
    {"devices", CLI_NEEDS, "tokens|hours", NULL},
    {"mfu", CLI_NEEDS, "params", NULL},
    {"tflops", CLI_NEEDS, "params", NULL},
    {"serial", CLI_NEEDS, "params", NULL},
    {"mfu", CLI_EXCLUDES, "hours|tokens-per-second", NULL},
    {"serial", CLI_EXCLUDES, "hours|tokens-per-second", NULL},
    {"hours", CLI_EXCLUDES, "tokens-per-second", NULL},
    {0}};

const cli_command command_plan_cost = {
    .name = "plan cost",
    .summary = "what a run takes in device-hours, days, energy and money",
    .usage = "CONFIG cluster=NAME [key=value...] | --params N --tokens D | "
             "--tokens D --tokens-per-second R --devices N | --hours H [cluster=NAME] [--days X] "
             "[--price X] ...",
    .run = cmd_plan_cost,
    .options = options,
    .rules = rules,
    .min_inputs = 0,
    .max_inputs = 1,
    .takes_keys = true};
