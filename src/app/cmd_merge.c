/* athanor merge: several models become one. */
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"
#include "interchange/merge/merge.h"
#include "interchange/merge/merge_check.h"
#include "run/config/config.h"

/* ---- options ---- */

static int word_index(const char *word, size_t len) {
    for (int i = 0; i < MERGE_ALLOW_COUNT; i++)
        if (strlen(merge_allow_words[i]) == len && strncmp(merge_allow_words[i], word, len) == 0)
            return i;
    return -1;
}

static status read_allowed(const cli_args *args, unsigned *allow, err *e) {
    for (const char *p = cli_value(args, "allow"); p && *p;) {
        size_t n = strcspn(p, ",");
        int i = word_index(p, n);
        if (i < 0) {
            err_at(e, ST_USAGE, "--allow", "--allow %.*s is no difference that can be allowed",
                   (int)n, p);
            return err_hint(e, "use config, tokenizer or template");
        }
        *allow |= 1u << i;
        p += n + (p[n] == ',');
    }
    return ST_OK;
}

static status read_config(const cli_args *args, json_t **recipe, json_t **origins, err *e) {
    TRY(yaml_load(recipe, origins, args->inputs[0], e));
    for (int i = 0; json_is_object(*recipe) && i < args->n_overrides; i++)
        TRY(config_apply_override(*recipe, *origins, args->overrides[i], e));
    return ST_OK;
}

/* ---- output ---- */

static void show_progress(void *ctx, int done, int tensors) {
    (void)ctx;
    if (!progress_is_live(stderr)) return;
    char line[64];
    snprintf(line, sizeof line, "%d of %d tensors", done, tensors);
    if (done < tensors)
        progress_show(stderr, line);
    else
        progress_clear(stderr);
}

static json_t *report_json(const merge_report *r, const char *path) {
    json_t *o = json_pack("{s:o, s:s, s:s, s:s, s:I, s:I, s:i, s:O}", "path", json_cstr(path),
                          "method", r->method, "model_type", r->model_type, "dtype", r->format,
                          "params", (json_int_t)r->params, "bytes", (json_int_t)r->bytes, "files",
                          r->files, "models", r->models);
    json_object_set(o, "layers", r->layers);
    json_object_set_new(o, "tensors", json_integer(r->tensors));
    json_object_set_new(o, "taken_up", json_integer(r->taken_up));
    json_object_set_new(o, "was_done", json_boolean(r->was_done));
    json_object_set_new(o, "runs", where_runs_json(&r->where));
    json_object_set_new(o, "notes", json_cstr(strbuf_cstr(&r->notes)));
    return o;
}

static void print_layers(const merge_report *r) {
    size_t i, k;
    json_t *v, *d;
    printf("how far it lies from each model (|result - model| / |model|):\n");
    json_array_foreach(r->models, i, v)
        printf("  %c  %s\n", (char)('A' + i % 26), json_string_value(json_object_get(v, "path")));
    printf("%10s", "layer");
    for (i = 0; i < json_array_size(r->models); i++) printf("%12c", (char)('A' + i % 26));
    json_array_foreach(r->layers, i, v) {
        const json_t *layer = json_object_get(v, "layer");
        if (json_is_integer(layer))
            printf("\n%10lld", (long long)json_integer_value(layer));
        else
            printf("\n%10s", "outside");
        json_array_foreach(json_object_get(v, "distance"), k, d)
            printf("%12.4g", json_number_value(d));
    }
    printf("\n");
}

static void print_report(const merge_report *r, const char *path) {
    if (r->was_done) printf("%s stands there already: nothing was done\n", path);
    printf("%s: %s, %lld parameters, %s, merged by %s from %zu models\n", path, r->model_type,
           (long long)r->params, r->format, r->method, json_array_size(r->models));
    if (r->taken_up)
        printf("%d of %d tensors were there from an earlier start\n", r->taken_up, r->tensors);
    cli_print_text(stdout, strbuf_cstr(&r->notes), r->notes.len);
    print_layers(r);
    strbuf text = {0};
    where_runs_describe(&r->where, &text);
    printf("where it runs:\n%s", strbuf_cstr(&text));
    strbuf_free(&text);
}

/* ---- the command ---- */

static status cmd_merge(const cli_args *args, err *e) {
    merge_options opt = {.force = cli_has(args, "force"), .license = cli_value(args, "license")};
    json_t *recipe = NULL, *origins = NULL;
    merge_report r = {0};
    TRY(read_allowed(args, &opt.allow, e));
    TRY(cli_shard_bytes(args, &opt.max_shard_bytes, e));
    status st = read_config(args, &recipe, &origins, e);
    if (st == ST_OK)
        st = merge_run(recipe, origins, args->inputs[0], args->output, &opt, show_progress, NULL,
                       &r, e);
    if (st == ST_OK && args->json)
        cli_print_json(report_json(&r, args->output));
    else if (st == ST_OK)
        print_report(&r, args->output);
    merge_report_free(&r);
    json_decref(recipe);
    json_decref(origins);
    return st;
}

static const cli_option options[] = {
    {"allow", "A,B",
     "merge although these differ: config, tokenizer (ids must be equal), template"},
    {"max-shard-size", "SIZE", "bytes in one file of weights (5GB)"},
    {"license", "NAME", "for the model card (that of all models, else unknown)"},
    {"force", NULL, "replace a model that stands there"},
    {0}};

const cli_command command_merge = {
    .name = "merge",
    .summary = "several models of one shape as one, by linear, SLERP, TIES, DARE, soup",
    .usage = "CONFIG -o DST [key.path=value...] [--allow A,B] [--option value]",
    .run = cmd_merge,
    .options = options,
    .needs_output = true,
    .takes_keys = true,
    .about =
        "CONFIG is YAML in the words of mergekit:\n\n"
        "  method: ties      # linear, soup, slerp, task_arithmetic, ties, dare_linear, dare_ties\n"
        "  base: FOLDER      # what the models were made from; not for linear and soup\n"
        "  models:\n"
        "    - {model: FOLDER, weight: 0.9, density: 0.5}\n"
        "    - {model: RUN, checkpoints: 3}   # the newest three of a run\n"
        "  parameters: {normalize: true}\n"
        "  dtype: bf16       # as stored when omitted\n"
        "  seed: 0           # of what DARE drops\n\n"
        "Started again, a merge that was killed goes on. docs/merging.md says the rest.\n"};
