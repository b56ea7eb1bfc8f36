/* athanor plan MODEL|CONFIG: what a run will need, from the program that will run. */
#include <stdio.h>
#include <string.h>

#include "app/cli.h"
#include "base/file.h"
#include "model/presets.h"
#include "train/train.h"

/* A preset name, a Hugging Face folder or a config.json become a config whose `model:` they are. */
static status load(const cli_args *args, config **c, err *e) {
    const char *in = args->inputs[0];
    char key[4200];
    const char *name = path_base(in);
    bool folder = file_is_dir(in), model_file = strcmp(name, "config.json") == 0;
    if (!preset_json(in) && !folder && !model_file)
        return config_load(c, in, args->overrides, args->n_overrides, e);
    if (preset_json(in))
        snprintf(key, sizeof key, "model.preset=%s", in);
    else if (folder)
        snprintf(key, sizeof key, "model.from=\"%s\"", in);
    else
        snprintf(key, sizeof key, "model.from=\"%.*s\"", (int)(name - in > 0 ? name - in - 1 : 1),
                 name - in > 0 ? in : ".");
    const char *overrides[128];
    int n = 0;
    overrides[n++] = key;
    for (int i = 0; i < args->n_overrides && n < ARRAY_LEN(overrides); i++)
        overrides[n++] = args->overrides[i];
    return config_load(c, NULL, overrides, n, e);
}

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
    TRY(load(args, &c, e));
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
