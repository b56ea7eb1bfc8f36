#include "app/frame/model_arg.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "model/layer.h"
#include "model/presets.h"
#include "run/folder.h"

/* The override that says what `input` is: model.preset=... or model.from=...; NULL: a config, as a
 * run's config.json is. */
static const char *model_override(arena *a, const char *input) {
    const char *name = path_base(input), *folder = input;
    if (preset_json(input)) return arena_printf(a, "model.preset=%s", input);
    if (!file_is_dir(input)) {
        if (strcmp(name, "config.json") != 0) return NULL;
        folder = name == input ? "." : arena_printf(a, "%.*s", (int)(name - input), input);
        if (run_is_run(folder)) return NULL;
    }
    return arena_printf(a, "model.from=%s", json_quoted(a, folder));
}

static bool is_given(const config *c, const char *key) {
    return strcmp(config_where(c, key), "default") != 0;
}

/* A sequence length that the user did not give is at most the model's number of positions, and an objective is that of its head. */
static status fit_model(config *c, err *e) {
    arena *a = arena_new("model");
    model_config m;
    status st = model_config_read(a, c->model, 1, &m, e);
    if (st == ST_OK && m.num_labels && !is_given(c, "train.objective"))
        c->train.objective = CONFIG_OBJECTIVE_CLASSIFY;
    if (st == ST_OK && c->train.seq_len > model_max_tokens(&m) && !is_given(c, "train.seq_len"))
        c->train.seq_len = model_max_tokens(&m);
    arena_free(a);
    return st;
}

static bool names_file(const char *input) {
    static const char *const ends[] = {".yaml", ".yml", ".json"};
    size_t n = strlen(input);
    for (int i = 0; i < ARRAY_LEN(ends); i++)
        if (n > strlen(ends[i]) && strcmp(input + n - strlen(ends[i]), ends[i]) == 0) return true;
    return strchr(input, '/') || strcmp(input, "-") == 0 || file_exists(input);
}

/* Defaults alone would be a Llama of 7B, which nobody asked for. */
static status load_config(const char *input, const cli_args *args, config **out, err *e) {
    TRY(config_load(out, input, args->overrides, args->n_overrides, e));
    if (json_object_size((*out)->model) > 0) return ST_OK;
    config_free(*out);
    *out = NULL;
    err_at(e, ST_USAGE, input, "%s says nothing of a model", input);
    return err_hint(
        e, "name a preset: `model: {preset: smollm2-135m}`, or add model.preset=smollm2-135m");
}

static status load_file(const char *input, const cli_args *args, config **out, err *e) {
    if (names_file(input)) return load_config(input, args, out, e);
    const char *near = preset_nearest(input);
    err_at(e, ST_USAGE, input, "there is no preset, folder or config '%s'", input);
    return err_hint(e, near ? "nearest preset: %s" : "athanor config presets shows their names",
                    near);
}

/* The model of a preset or a folder, and what fits it. */
static status load_model(const char *key, const cli_args *args, config **out, err *e) {
    const char **overrides = xcalloc((size_t)args->n_overrides + 1, sizeof *overrides);
    overrides[0] = key;
    for (int i = 0; i < args->n_overrides; i++) overrides[i + 1] = args->overrides[i];
    status st = config_load(out, NULL, overrides, args->n_overrides + 1, e);
    free(overrides);
    if (st != ST_OK) return st;
    st = fit_model(*out, e);
    if (st != ST_OK) config_free(*out);
    return st;
}

status model_arg_load(const char *input, const cli_args *args, config **out, err *e) {
    arena *a = arena_new("model argument");
    const char *key = model_override(a, input);
    status st = key ? load_model(key, args, out, e) : load_file(input, args, out, e);
    arena_free(a);
    return st;
}
