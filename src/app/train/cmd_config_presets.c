/* athanor config presets: the published shapes that a config, `plan` and `bench` can name. */
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "base/arena.h"
#include "model/family.h"
#include "model/presets.h"

typedef struct row {
    const char *name;
    model_config mc;
    int64_t params;
} row;

static status read_preset(arena *a, const char *name, row *r, err *e) {
    json_t *o = json_pack("{s:s}", "preset", name);
    r->name = name;
    status st = model_config_read(a, o, 0, &r->mc, e);
    json_decref(o);
    TRY(st);
    param_store *s = param_store_new(a, DT_F32);
    model_declare(&r->mc, s);
    r->params = param_store_sizes(s).elems;
    return ST_OK;
}

static json_t *row_json(const row *r) {
    const model_config *m = &r->mc;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", r->name,
                     "model_type", m->family->model_type, "params", (json_int_t)r->params,
                     "num_hidden_layers", (json_int_t)m->num_hidden_layers, "hidden_size",
                     (json_int_t)m->hidden_size, "num_attention_heads",
                     (json_int_t)m->num_attention_heads, "num_key_value_heads",
                     (json_int_t)m->num_key_value_heads, "intermediate_size",
                     (json_int_t)m->intermediate_size, "vocab_size", (json_int_t)m->vocab_size,
                     "max_position_embeddings", (json_int_t)m->max_position_embeddings);
}

static void print_head(void) {
    printf("%-29s  %-11s  %12s  %6s  %6s  %5s  %5s  %6s  %7s  %8s\n", "name", "family",
           "parameters", "layers", "width", "heads", "KV", "MLP", "vocab", "context");
}

static void print_row(const row *r) {
    const model_config *m = &r->mc;
    printf("%-29s  %-11s  %12lld  %6lld  %6lld  %5lld  %5lld  %6lld  %7lld  %8lld\n", r->name,
           m->family->model_type, (long long)r->params, (long long)m->num_hidden_layers,
           (long long)m->hidden_size, (long long)m->num_attention_heads,
           (long long)m->num_key_value_heads, (long long)m->intermediate_size,
           (long long)m->vocab_size, (long long)m->max_position_embeddings);
}

/* Whether the name begins with one of the words, or there is none. */
static bool is_wanted(const cli_args *args, const char *name) {
    for (int i = 0; i < args->n_inputs; i++) {
        const char *word = preset_listed_name(args->inputs[i]);
        if (strncmp(name, word, strlen(word)) == 0) return true;
    }
    return args->n_inputs == 0;
}

/* Adds a preset to the list, and prints it where people look on. */
static status show(const cli_args *args, const char *name, json_t *list, err *e) {
    row r;
    arena *a = arena_new("preset");
    status st = read_preset(a, name, &r, e);
    if (st == ST_OK) {
        if (!args->json && json_array_size(list) == 0) print_head();
        if (!args->json) print_row(&r);
        json_array_append_new(list, row_json(&r));
    }
    arena_free(a);
    return st;
}

static status print_presets(const cli_args *args, err *e) {
    json_t *list = json_array();
    status st = ST_OK;
    for (int i = 0; preset_name(i) && st == ST_OK; i++)
        if (is_wanted(args, preset_name(i))) st = show(args, preset_name(i), list, e);
    if (st == ST_OK && json_array_size(list) == 0) {
        st = err_set(e, ST_USAGE, "no preset begins with '%s'", args->inputs[0]);
        err_hint(e, "athanor config presets shows all");
    }
    if (st == ST_OK && args->json) cli_print_json(json_pack("{s:O}", "presets", list));
    json_decref(list);
    return st;
}

const cli_command command_config_presets = {
    .name = "config presets",
    .summary = "published models by name: shapes and exact parameter counts",
    .usage = "[BEGINNING...]",
    .run = print_presets,
    .max_inputs = -1,
    .about =
        "Heads, key/value heads and the width of the MLP are the largest of any layer. A config "
        "takes\n"
        "a preset as model.preset: NAME, and its keys beside it: model.num_hidden_layers: 6.\n",
};
