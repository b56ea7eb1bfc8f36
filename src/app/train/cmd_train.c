/* athanor train: runs a config, as JSON lines or as a live page of text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "app/ranks/ranks.h"
#include "app/train/train_signals.h"
#include "base/log.h"
#include "run/config/config_device.h"
#include "train/train.h"

static void print_event_json(void *ctx, const json_t *event) {
    (void)ctx;
    cli_print_json(json_incref((json_t *)event));
}

static status dump_gradients(const cli_args *args, config *c, err *e) {
    double loss;
    TRY(train_dump_gradients(c, cli_value(args, "ids-file"), cli_value(args, "dump-grads"), &loss,
                             e));
    if (args->json)
        cli_print_json(json_pack("{s:f}", "loss", loss));
    else
        printf("loss %.9g\n", loss);
    return ST_OK;
}

static void print_plan(const plan *p) {
    strbuf text = {0};
    plan_describe(p, &text);
    progress_put_rows(stdout, strbuf_cstr(&text));
    strbuf_free(&text);
}

static status dry_run(const cli_args *args, config *c, err *e) {
    dev *meta;
    TRY(config_open_meta(c, &meta, e));
    plan *p = NULL;
    train_options opt = {.fork = cli_value(args, "fork"), .fresh = cli_has(args, "fresh")};
    status st = train_plan_start(c, &opt, meta, &p, e);
    if (p && args->json) cli_print_json(plan_json(p, c->train.memory_limit));
    if (p && !args->json) print_plan(p);
    plan_free(p);
    dev_close(meta);
    return st;
}

static status train(const cli_args *args, config *c, comm_world *world, err *e) {
    ranks_set_timeout(world, c);
    bool speaks = comm_world_rank(world) == 0;
    int64_t trace_steps;
    TRY(cli_int(args, "trace-steps", 3, 1, 1000, &trace_steps, e));
    progress view;
    progress_init(&view, stdout);
    train_options opt = {.fork = cli_value(args, "fork"),
                         .fresh = cli_has(args, "fresh"),
                         .trace = cli_value(args, "trace"),
                         .trace_steps = trace_steps,
                         .copy = getenv("ATHANOR_COPY"),
                         .restart = getenv("ATHANOR_RESTART"),
                         .stop = train_stop_flag(),
                         .world = comm_world_size(world) > 1 ? world : NULL,
                         .on_event = args->json ? print_event_json : progress_event,
                         .on_plan = args->json ? NULL : progress_plan,
                         .on_task = args->json ? NULL : progress_task,
                         .ctx = &view};
    status st = train_run(c, &opt, e);
    if (!args->json && speaks) progress_end(&view);
    return st;
}

static status check_input(const cli_args *args, const comm_world *world, err *e) {
    int ranks = comm_world_size(world);
    if (ranks == 1 || strcmp(args->inputs[0], "-") != 0) return ST_OK;
    err_at(e, ST_USAGE, "command line",
           "each of %d ranks reads the config, and standard input can be read once", ranks);
    return err_hint(e, "put it into a file");
}

static status run(const cli_args *args, comm_world *world, err *e) {
    config *c;
    TRY(check_input(args, world, e));
    TRY(config_load(&c, args->inputs[0], args->overrides, args->n_overrides, e));
    if (comm_world_rank(world) == 0) config_tell_notes(c);
    status st = cli_has(args, "dump-grads") ? dump_gradients(args, c, e)
                : cli_has(args, "dry-run")  ? dry_run(args, c, e)
                                            : train(args, c, world, e);
    config_free(c);
    return st;
}

/* The world comes first: what all ranks find wrong with the config is told once. */
static status cmd_train(const cli_args *args, err *e) {
    if (args->json) log_set_quiet(true);
    comm_world *world;
    train_catch_signals();
    TRY(comm_open_environment(&world, e));
    status st = ranks_end(world, run(args, world, e), e, args->json);
    comm_close(world);
    return st;
}

static const cli_option options[] = {
    {"dry-run", NULL, "plan the run, print the plan, change nothing"},
    {"fresh", NULL, "start anew although the run folder holds a run"},
    {"fork", "NEW",
     "go on from the newest checkpoint in a new run folder; any key may change but the optimizer "
     "and the sizes of weights"},
    {"trace", "OUT.json", "write a timeline of computation and communication of all ranks"},
    {"trace-steps", "N", "steps in it, from the second that is trained (default 3)"},
    {"dump-grads", "OUT", "write loss and gradients of one batch as safetensors; no update"},
    {"ids-file", "FILE",
     "the batch for --dump-grads: int32 [B,T+1]; with an encoder an .npz of input_ids and labels"},
    {0}};

static const cli_rule rules[] = {
    {"fresh", CLI_EXCLUDES, "fork", "a fork is new already: leave --fresh out"},
    {"dump-grads", CLI_NEEDS, "ids-file", "add the batch: --ids-file F.npy (int32 [B,T+1])"},
    {"ids-file", CLI_NEEDS, "dump-grads", "add --dump-grads OUT.safetensors"},
    {"trace-steps", CLI_NEEDS, "trace", "add --trace OUT.json"},
    {"dump-grads", CLI_EXCLUDES, "dry-run|fresh|fork|trace",
     "it looks at one batch and touches no run"},
    {0}};

const cli_command command_train = {.name = "train",
                                   .summary = "train a model, or go on with a run",
                                   .usage =
                                       "CONFIG [key=value...] [--dry-run] [--fresh | --fork NEW]",
                                   .run = cmd_train,
                                   .options = options,
                                   .rules = rules,
                                   .takes_keys = true,
                                   .details = config_help};
