/* athanor plan cost: what a run takes in device-hours, days, energy and money. Its step is clocked where a config is given, else
 * an MFU is assumed. */
#include <math.h>
#include <stdio.h>

#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "app/plan/on_cluster.h"
#include "app/plan/plan_laws.h"
#include "base/json.h"
#include "plan/clock/cost.h"
#include "run/config/config_device.h"
#include "train/train.h"

static const double DAY = 86400, PUE = 1.2;

/* ---- what is asked ---- */

static status read_numbers(const cli_args *args, cost_wish *w, err *e) {
    double days, every, restart, write;
    TRY(cli_num(args, "days", 0, 0, 1e6, &days, e));
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
    w->preemptions_per_hour /= 24;
    w->deadline_s = days * DAY;
    w->checkpoint_every_s = every * 60;
    w->checkpoint_s = write * 60;
    w->restart_s = restart * 60;
    return ST_OK;
}

/* Hours that are known, of a run whose FLOPs are known, too: what share of the peak that is. */
static status check_hours(const cost_wish *w, double hours, err *e) {
    if (hours <= 0 || w->params <= 0) return ST_OK;
    double mfu = 6 * w->params * w->tokens / (hours * 3600 * w->peak_flops);
    if (mfu <= 1) return ST_OK;
    err_at(
        e, ST_USAGE, "--hours",
        "%.4g device-hours are too few for it: it would run at %.3g times the peak of %.4g TFLOP/s",
        hours, mfu, w->peak_flops / 1e12);
    return err_hint(e, "at an MFU of 0.4 it takes %.4g", hours * mfu / 0.4);
}

/* --params and --tokens instead of a config, with an MFU; or --hours, where these are known. */
static status read_by_hand(const cli_args *args, cost_wish *w, err *e) {
    int64_t n;
    cluster on;
    const char *name = cli_override(args, "cluster");
    TRY(cluster_find(&on, name ? name : "h100", e));
    w->peak_flops = on.peak_flops[DT_BF16];
    w->dollars_per_hour = on.dollars_per_hour;
    w->watts = on.watts;
    double hours;
    TRY(cli_num(args, "hours", 0, 0.01, 1e12, &hours, e));
    TRY(cli_num(args, "params", 0, 1, 1e15, &w->params, e));
    TRY(cli_num(args, "tokens", 0, 1, 1e18, &w->tokens, e));
    TRY(cli_num(args, "mfu", 0.4, 0.001, 1, &w->mfu, e));
    TRY(cli_num(args, "tflops", w->peak_flops / 1e12, 1e-6, 1e9, &w->peak_flops, e));
    w->peak_flops *= 1e12;
    TRY(cli_int(args, "devices", cluster_devices(&on), 1, 1 << 20, &n, e));
    w->devices = (int)n;
    w->step_s = hours * 3600 / w->devices;
    w->steps = 1;
    snprintf(w->device, sizeof w->device, "%s", on.device_name);
    if (hours > 0 && w->params > 0)
        w->mfu = 6 * w->params * w->tokens / (hours * 3600 * w->peak_flops);
    if (hours > 0 && w->params <= 0) w->mfu = 0;
    return check_hours(w, hours, e);
}

static double steps_of(const config *c, const clock_time *t) {
    if (c->train.tokens) return ceil((double)c->train.tokens / t->tokens);
    return (double)c->train.steps;
}

static status read_clocked(config *c, cost_wish *w, laws_run *laws, err *e) {
    cluster on;
    dev *meta;
    plan *p = NULL;
    TRY(on_cluster_take(c, &on, e));
    TRY(config_open_meta(c, &meta, e));
    status st = train_plan(c, meta, &p, e);
    if (st == ST_OK && (!p->spec.train_B || !(c->train.steps || c->train.tokens))) {
        config_error(c, e, "train.steps", "nothing says how long the run is");
        st = err_hint(e, "set train.tokens or train.steps");
    }
    if (st == ST_OK) {
        clock_time t = clock_step(p, &on);
        w->step_s = t.step_s;
        w->steps = steps_of(c, &t);
        w->devices = t.ranks;
        w->params = (double)model_active_params(&p->spec.model, p->store);
        w->tokens = w->steps * t.tokens;
        w->mfu = clock_mfu(&t);
        if (!plan_laws_run(c, p, laws)) laws->tokens = 0;
        w->dollars_per_hour = on.dollars_per_hour;
        w->watts = on.watts;
        w->peak_flops = t.peak_flops;
        snprintf(w->device, sizeof w->device, "%s", on.device_name);
    }
    plan_free(p);
    dev_close(meta);
    return st;
}

static status read_config(const cli_args *args, cost_wish *w, laws_run *laws, err *e) {
    config *c;
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    status st = ST_OK;
    if (!c->cluster) {
        err_at(e, ST_USAGE, "cluster", "for which cluster? The config names none");
        st = err_hint(e, "add cluster=h100-64, for example");
    }
    if (st == ST_OK) st = read_clocked(c, w, laws, e);
    config_free(c);
    return st;
}

/* ---- what is said ---- */

static json_t *sum_json(const cost_wish *w, const cost_sum *s, const laws_run *laws) {
    json_t *o = json_pack(
        "{s:f,s:f,s:f,s:f,s:i,s:o,s:o,s:o,s:f,s:o,s:o,s:o}", "flops", s->flops, "tokens", w->tokens,
        "params", w->params, "tokens_per_param", s->tokens_per_param, "devices", w->devices, "days",
        json_f64(s->run_s / DAY), "device_hours", json_f64(s->device_hours), "all_hours",
        json_f64(s->all_hours), "overhead_hours", s->overhead_hours, "kwh", json_f64(s->kwh),
        "dollars", json_f64(s->dollars), "lost_share", json_f64(1 - s->ideal_s / s->run_s));
    json_object_set_new(o, "device", json_cstr(w->device));
    if (w->mfu > 0) json_object_set_new(o, "mfu", json_f64(w->mfu));
    if (s->devices_needed)
        json_object_set_new(o, "devices_needed", json_integer(s->devices_needed));
    if (s->speed_up > 0)
        json_object_set_new(
            o, "amdahl", json_pack("{s:f,s:f}", "speed_up", s->speed_up, "limit", s->speed_limit));
    if (s->staying_dollars > 0)
        json_object_set_new(o, "spot",
                            json_pack("{s:f,s:f}", "staying_dollars", s->staying_dollars,
                                      "even_preemptions_per_day", 24 * s->even_per_hour));
    if (laws->params > 0 && laws->tokens > 0) json_object_set_new(o, "laws", laws_json(laws));
    if (s->best_checkpoint_s > 0)
        json_object_set_new(o, "best_checkpoint_minutes", json_real(s->best_checkpoint_s / 60));
    return o;
}

static void print_money(const cost_wish *w, const cost_sum *s) {
    bool spot = w->spot_per_hour > 0;
    if (s->dollars > 0)
        printf("  %-22s %12.0f dollars, at %.2f for a device and hour\n", "money", s->dollars,
               spot ? w->spot_per_hour : w->dollars_per_hour);
    if (!spot || s->staying_dollars <= 0) return;
    printf("  %-22s %12.0f dollars at %.2f on devices that stay: spot is %.0f %% %s", "",
           s->staying_dollars, w->dollars_per_hour, 100 * fabs(1 - s->dollars / s->staying_dollars),
           s->dollars < s->staying_dollars ? "cheaper" : "dearer");
    if (s->even_per_hour > 0) printf(", up to %.1f preemptions a day", 24 * s->even_per_hour);
    printf("\n");
}

static void print_laws(const laws_run *r) {
    strbuf text = {0};
    if (r->params <= 0 || r->tokens <= 0) return;
    laws_describe(r, &text);
    printf("%s", strbuf_cstr(&text));
    strbuf_free(&text);
}

/* How often to save is best is known where a checkpoint takes time. */
static void print_lost(const cost_wish *w, const cost_sum *s) {
    double lost = 1 - s->ideal_s / s->run_s;
    if (lost <= 0) return;
    printf("  %-22s %12.1f %% of that are lost to %scheckpoints", "", 100 * lost,
           w->preemptions_per_hour > 0 ? "preemptions and " : "");
    if (w->preemptions_per_hour <= 0)
        printf(", one each %.7g minutes\n", w->checkpoint_every_s / 60);
    else if (s->best_checkpoint_s > 0)
        printf("; one each %.0f minutes is best\n", s->best_checkpoint_s / 60);
    else
        printf("; with --checkpoint (minutes for one) it says how often is best\n");
}

static void print_sum(const cost_wish *w, const cost_sum *s, const laws_run *laws) {
    if (s->flops > 0)
        printf("%.3g FLOPs (6 N D: %.3g parameters, %.3g tokens, %.0f for each parameter)\n",
               s->flops, w->params, w->tokens, s->tokens_per_param);
    printf("  %-22s %12.1f days on %d x %s\n", "main run", s->run_s / DAY, w->devices, w->device);
    if (w->mfu > 0)
        printf("  %-22s %12.1f %% of %.4g TFLOP/s%s\n", "MFU", 100 * w->mfu, w->peak_flops / 1e12,
               w->step_s > 0 ? "" : ", assumed");
    print_lost(w, s);
    printf("  %-22s %12.0f\n", "device-hours", s->device_hours);
    if (s->overhead_hours > 0)
        printf("  %-22s %12.0f, %.0f %% of the main run; %.0f in all\n", "beside it",
               s->overhead_hours, 100 * s->overhead_hours / s->device_hours, s->all_hours);
    if (s->kwh > 0)
        printf(
            "  %-22s %12.0f kWh, at %.0f W for a device with its share of the machine and a PUE of "
            "%.3g\n",
            "energy", s->kwh, w->watts, w->pue);
    print_money(w, s);
    if (s->devices_needed)
        printf("  %-22s %12d devices for %.7g days%s\n", "to be done in time", s->devices_needed,
               w->deadline_s / DAY, w->serial > 0 ? ", if all work were shared" : "");
    if (s->speed_up > 0)
        printf("  %-22s %12.2f times one device, at most %.1f (Amdahl)\n", "with serial work",
               s->speed_up, s->speed_limit);
    if (s->overhead_hours <= 0)
        printf("No hours are set aside for ablations, evaluation and debugging: in a published run "
               "of 3B they took 58 %% of\n"
               "the main run (--ablations, --evaluation, --debugging).\n");
    print_laws(laws);
}

static status cmd_plan_cost(const cli_args *args, err *e) {
    cost_wish w = {.devices = 0};
    cost_sum s;
    laws_run laws = {.tokens = 0};
    static const char *const keys[] = {"cluster", NULL};
    bool hours = cli_has(args, "hours"), by_hand = hours || cli_has(args, "params");
    if (by_hand == (args->n_inputs == 1) || (!hours && by_hand != cli_has(args, "tokens"))) {
        err_set(e, ST_USAGE, "of which run? A config, or --params with --tokens, or --hours");
        return err_hint(e, "athanor plan cost --params 3B --tokens 11T --devices 384");
    }
    if (by_hand) TRY(cli_check_overrides(args, keys, e));
    TRY(by_hand ? read_by_hand(args, &w, e) : read_config(args, &w, &laws, e));
    if (by_hand) laws = (laws_run){.params = w.params, .tokens = w.tokens};
    TRY(read_numbers(args, &w, e));
    TRY(cost_reckon(&w, &s, e));
    if (isinf(s.run_s)) {
        err_set(e, ST_FAILED,
                "it never ends: between preemptions less is done than each of them loses");
        return err_hint(e, "save more often (--checkpoint-every), or start faster (--restart)");
    }
    if (args->json)
        cli_print_json(sum_json(&w, &s, &laws));
    else
        print_sum(&w, &s, &laws);
    return ST_OK;
}

static const cli_option options[] = {
    {"params", "N", "without a config: parameters, active ones of a mixture of experts"},
    {"tokens", "D", "without a config: tokens"},
    {"hours", "H", "without a config: device-hours of the main run, where they are known"},
    {"devices", "N", "without a config: devices (those of the cluster)"},
    {"mfu", "X", "without a config: share of the peak that is reached (0.4)"},
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

static const cli_rule rules[] = {{"spot-price", CLI_NEEDS, "preemptions-per-day",
                                  "how often such devices are taken away, of the whole group"},
                                 {"devices", CLI_NEEDS, "params|hours", NULL},
                                 {"mfu", CLI_NEEDS, "params", NULL},
                                 {"tflops", CLI_NEEDS, "params", NULL},
                                 {"serial", CLI_NEEDS, "params", NULL},
                                 {"mfu", CLI_EXCLUDES, "hours", NULL},
                                 {"serial", CLI_EXCLUDES, "hours", NULL},
                                 {0}};

const cli_command command_plan_cost = {
    .name = "plan cost",
    .summary = "what a run takes in device-hours, days, energy and money",
    .usage = "CONFIG cluster=NAME [key=value...] | --params N --tokens D | --hours H "
             "[cluster=NAME] [--days X] [--price X] ...",
    .run = cmd_plan_cost,
    .options = options,
    .rules = rules,
    .min_inputs = 0,
    .max_inputs = 1,
    .takes_keys = true};
