/* athanor config print|schema|diff|why: a config made visible. */
#include <stdio.h>
#include <stdlib.h>

#include "app/frame/cli.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "model/config.h"
#include "run/config/config.h"

static status print_config(const cli_args *args, err *e) {
    config *c;
    TRY(config_load(&c, args->inputs[0], args->overrides, args->n_overrides, e));
    config_tell_notes(c);
    if (args->json) {
        cli_print_json(config_to_json(c));
    } else {
        char *text = config_to_yaml(c);
        fputs(text, stdout);
        free(text);
    }
    config_free(c);
    return ST_OK;
}

/* `model:` is an open object to the config; the model module knows its keys. */
static json_t *full_schema(void) {
    json_t *schema = config_schema();
    json_object_set_new(json_object_get(schema, "properties"), "model", model_config_schema());
    return schema;
}

static status print_schema(const cli_args *args, err *e) {
    if (args->n_inputs > 0) {
        err_set(e, ST_USAGE, "'athanor config schema' has no use for '%s'", args->inputs[0]);
        return err_hint(e, "the schema is that of all configs");
    }
    if (cli_has(args, "markdown")) {
        char *text = config_reference_markdown();
        fputs(text, stdout);
        free(text);
    } else if (args->json) {
        cli_print_json(full_schema());
    } else {
        cli_print_json_pretty(full_schema());
    }
    return ST_OK;
}

static void print_value(const json_t *value) {
    strbuf text = {0};
    if (value) json_format(&text, value, 0);
    printf("%s", value ? strbuf_cstr(&text) : "(absent)");
    strbuf_free(&text);
}

static void print_differences(const json_t *list) {
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) {
        printf("%s: ", json_string_value(json_object_get(row, "key")));
        print_value(json_object_get(row, "a"));
        printf(" -> ");
        print_value(json_object_get(row, "b"));
        printf("\n");
    }
}

static status print_diff(const cli_args *args, err *e) {
    config *c[2] = {0};
    status st = ST_OK;
    for (int i = 0; i < 2 && st == ST_OK; i++)
        st = config_load(&c[i], args->inputs[i], args->overrides, args->n_overrides, e);
    if (st == ST_OK) {
        json_t *list = config_diff(c[0], c[1]);
        if (args->json)
            cli_print_json(json_pack("{s:O}", "differences", list));
        else
            print_differences(list);
        json_decref(list);
    }
    config_free(c[0]);
    config_free(c[1]);
    return st;
}

static status print_origin(const cli_args *args, const config *c, const char *key, err *e) {
    json_t *value = config_get_json(c, key);
    if (!value) {
        config_error(c, e, key, "there is no key '%s' in this config", key);
        return err_hint(e, "athanor config print %s shows all keys", args->inputs[0]);
    }
    const char *where = config_where(c, key);
    if (args->json) {
        cli_print_json(
            json_pack("{s:s, s:o, s:o}", "key", key, "value", value, "origin", json_cstr(where)));
        return ST_OK;
    }
    printf("%s = ", key);
    print_value(value);
    printf("  # %s\n", where);
    json_decref(value);
    return ST_OK;
}

static status print_why(const cli_args *args, err *e) {
    config *c;
    TRY(config_load(&c, args->inputs[0], args->overrides, args->n_overrides, e));
    status st = print_origin(args, c, args->inputs[1], e);
    config_free(c);
    return st;
}

const cli_command command_config_print = {
    .name = "config print",
    .summary = "the resolved config, with the origin of each value",
    .usage = "CONFIG [key.path=value...]",
    .run = print_config,
    .takes_keys = true,
    .details = config_help,
};

static const cli_option schema_options[] = {
    {"markdown", NULL, "a table for people instead of JSON Schema"}, {0}};

static const cli_rule schema_rules[] = {
    {"markdown", CLI_EXCLUDES, "json", "one is for people, the other for programs"}, {0}};

const cli_command command_config_schema = {
    .name = "config schema",
    .summary = "the JSON Schema of configs, for editors and checks",
    .usage = "[--markdown]",
    .run = print_schema,
    .options = schema_options,
    .rules = schema_rules,
    .max_inputs = 1,
};

const cli_command command_config_diff = {
    .name = "config diff",
    .summary = "what differs between two configs, defaults included",
    .usage = "CONFIG CONFIG [key.path=value...]",
    .run = print_diff,
    .min_inputs = 2,
    .max_inputs = 2,
    .takes_keys = true,
};

const cli_command command_config_why = {
    .name = "config why",
    .summary = "where a value comes from: default, file and line, or command line",
    .usage = "CONFIG KEY [key.path=value...]",
    .run = print_why,
    .min_inputs = 2,
    .max_inputs = 2,
    .takes_keys = true,
};
