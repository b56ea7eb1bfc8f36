/* athanor plan MODEL|CONFIG: what a run will need, from the program that will run. */
#include <stdio.h>

#include "app/cli.h"
#include "app/model_arg.h"
#include "io/where_runs.h"
#include "train/train.h"

/* That a plan does not fit the memory this machine happens to have free is an answer; that it
 * breaks a limit which was given is a failure. */
static status say_too_large(const cli_args *args, bool limit_given, err *e) {
    if (!args->json && !limit_given) printf("  does not fit: %s\n  %s\n", e->message, e->hint);
    if (args->json) e->message[0] = '\0'; /* `fits: false` has said it */
    return limit_given ? ST_MEMORY : ST_OK;
}

/* Which programs will load the model. A tokenizer that cannot be read is told elsewhere. */
static where_runs where_of(const config *c, const plan *p) {
    tok *t = NULL;
    err unread;
    if (c->tokenizer && tok_load(&t, c->tokenizer, &unread) != ST_OK) t = NULL;
    where_runs w = where_runs_of(&p->spec.model, t);
    tok_free(t);
    return w;
}

static void print_plan(const cli_args *args, const config *c, const plan *p) {
    where_runs w = where_of(c, p);
    if (args->json) {
        json_t *o = plan_json(p, c->train.memory_limit);
        json_object_set_new(o, "runs", where_runs_json(&w));
        cli_print_json(o);
        return;
    }
    strbuf text = {0};
    plan_print(p);
    where_runs_describe(&w, &text);
    printf("  where it will run\n%s", strbuf_cstr(&text));
    strbuf_free(&text);
}

static status cmd_plan(const cli_args *args, err *e) {
    config *c;
    dev *meta;
    plan *p = NULL;
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    status st = dev_open(&meta, DEV_META, (int)c->train.threads, e);
    if (st == ST_OK) {
        st = train_plan(c, meta, &p, e);
        if (p) print_plan(args, c, p);
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
