/* athanor plan MODEL|CONFIG: what a run will need, from the program that will run. */
#include <stdio.h>

#include "app/cli.h"
#include "app/model_arg.h"
#include "train/train.h"

/* That a plan does not fit the memory this machine happens to have free is an answer; that it
 * breaks a limit which was given is a failure. */
static status say_too_large(const cli_args *args, bool limit_given, err *e) {
    if (!args->json && !limit_given) printf("  does not fit: %s\n  %s\n", e->message, e->hint);
    if (args->json) e->message[0] = '\0'; /* `fits: false` has said it */
    return limit_given ? ST_MEMORY : ST_OK;
}

static status cmd_plan(const cli_args *args, err *e) {
    config *c;
    dev *meta;
    plan *p = NULL;
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    status st = dev_open(&meta, DEV_META, (int)c->train.threads, e);
    if (st == ST_OK) {
        st = train_plan(c, meta, &p, e);
        if (p && args->json)
            cli_print_json(plan_json(p, c->train.memory_limit));
        else if (p)
            plan_print(p);
        if (p && st == ST_MEMORY) st = say_too_large(args, c->train.memory_limit > 0, e);
        plan_free(p);
        dev_close(meta);
    }
    config_free(c);
    return st;
}

const cli_command command_plan = {.name = "plan",
                                  .summary = "what a run will need, before it runs",
                                  .usage = "MODEL|CONFIG [key=value...]",
                                  .run = cmd_plan,
                                  .min_inputs = 1,
                                  .max_inputs = 1,
                                  .takes_keys = true};
