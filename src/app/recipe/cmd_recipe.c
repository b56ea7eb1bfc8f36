/* athanor recipe: see recipe.h. */
#include <string.h>

#include "app/frame/cli.h"
#include "app/recipe/recipe.h"
#include "app/train/train_signals.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "run/metrics.h"

static const recipe_class *const recipes[] = {&recipe_miniature};

static status find_recipe(const char *name, const recipe_class **out, err *e) {
    for (int i = 0; i < ARRAY_LEN(recipes); i++) {
        *out = recipes[i];
        if (strcmp(recipes[i]->name, name) == 0) return ST_OK;
    }
    err_at(e, ST_USAGE, "command line", "there is no recipe %s", name);
    return err_hint(e, "athanor recipe list names them");
}

static void list_recipes(bool as_json) {
    json_t *list = json_array();
    for (int i = 0; i < ARRAY_LEN(recipes); i++) {
        const recipe_class *k = recipes[i];
        json_t *stages = json_array();
        for (int j = 0; j < k->n_stages; j++)
            json_array_append_new(stages, json_string(k->stages[j].name));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", k->name, "summary",
                                              k->summary, "stages", stages));
        if (as_json) continue;
        printf("%s: %s\n  stages:", k->name, k->summary);
        for (int j = 0; j < k->n_stages; j++) printf(" %s", k->stages[j].name);
        printf("\n");
    }
    if (as_json)
        cli_print_json(json_pack("{s:o}", "recipes", list));
    else
        json_decref(list);
}

static void print_talk(const recipe *r) {
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(recipe_result(r, "chat"), "turns"), i, v) {
        if (i == 0) fputs("\nIt answers:\n", r->out);
        for (int answer = 0; answer < 2; answer++) {
            const char *text = metrics_text(v, answer ? "assistant" : "user");
            fputs(answer ? "    " : "  > ", r->out);
            cli_print_text(r->out, text, strlen(text));
            fputs("\n", r->out);
        }
    }
}

static void print_end(const recipe *r, double seconds) {
    json_t *list = recipe_promises(r), *v;
    size_t i;
    char time[24];
    fputs("\n", r->out);
    json_array_foreach(list, i, v)
        fprintf(r->out, "%s %s: %s\n", json_is_true(json_object_get(v, "ok")) ? "✓" : "✗",
                json_string_value(json_object_get(v, "name")),
                json_string_value(json_object_get(v, "detail")));
    json_decref(list);
    print_talk(r);
    progress_format_duration(seconds, time);
    fprintf(r->out, "\n%s in this start. The report: %s\nTalk with it:  athanor chat %s\n", time,
            recipe_path(r, "recipe.html"), recipe_path(r, "prefer"));
}

static void print_json(const recipe *r, double seconds) {
    cli_print_json(json_pack("{s:o, s:s, s:o, s:o, s:o, s:O}", "run", json_cstr(r->run), "recipe",
                             r->class->name, "seconds", json_f64(seconds), "report",
                             json_cstr(recipe_path(r, "recipe.html")), "promises",
                             recipe_promises(r), "stages", json_object_get(r->state, "stages")));
}

static status run_recipe(const cli_args *args, recipe *r, err *e) {
    int64_t began = clock_now_ns();
    train_catch_signals();
    TRY(recipe_open(r, cli_value(args, "from"), e));
    TRY(recipe_run_stages(r, e));
    double seconds = clock_since_s(began);
    if (args->json)
        print_json(r, seconds);
    else
        print_end(r, seconds);
    return ST_OK;
}

static status cmd_recipe(const cli_args *args, err *e) {
    if (strcmp(args->inputs[0], "list") == 0) {
        list_recipes(args->json);
        return ST_OK;
    }
    recipe r = {.lock = -1, .out = args->json ? stderr : stdout};
    TRY(find_recipe(args->inputs[0], &r.class, e));
    r.a = arena_new("recipe");
    r.run = args->output ? args->output : arena_printf(r.a, "runs/%s", r.class->name);
    r.text = args->n_inputs > 1 ? args->inputs[1] : NULL;
    r.overrides = args->overrides;
    r.n_overrides = args->n_overrides;
    if (args->json) log_set_quiet(true);
    status st = run_recipe(args, &r, e);
    recipe_close(&r);
    arena_free(r.a);
    return st;
}

static const cli_option options[] = {
    {"from", "STAGE", "do this stage and all after it again; configs that you changed stay"}, {0}};

const cli_command command_recipe = {
    .name = "recipe",
    .summary = "a model through its whole life: pretrain, evaluate, teach, prefer, chat, export",
    .usage = "NAME [TEXT] [-o RUN] [--from STAGE] [STAGE.key=value...]",
    .run = cmd_recipe,
    .options = options,
    .min_inputs = 1,
    .max_inputs = 2,
    .takes_output = true,
    .takes_keys = true,
    .about = "NAME is miniature, or list, which names all recipes and their stages. TEXT is a text "
             "file,\n"
             "a .jsonl file or a folder of them; without it the text is that of `athanor "
             "quickstart`. RUN\n"
             "(default runs/NAME) gets the files of all stages, their configs and recipe.html, the "
             "report.\n"
             "Each stage is a command that you can run yourself (they stand in the report). "
             "Started again,\n"
             "a recipe goes on where it was; a config in RUN/configs may be changed between two "
             "starts.\n"
             "pretrain.train.steps=2000 changes a key of the training of one stage.\n"};
