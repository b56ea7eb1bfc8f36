/* What the option table says to people and editors: JSON Schema, a markdown reference, the list
 * of --help, and a config as commented YAML. */
#include "run/config/config_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/strbuf.h"

static const char NUMBER_WITH_SUFFIX[] = "^[+-]?[0-9.]+([eE][+-]?[0-9]+)?([kKMBGT]|[kKMGT]i)?$";

/* A number in its range, or a text such as 10B or 64Ki. */
static json_t *number_schema(const option *o, const char *type) {
    return json_pack("{s:[{s:s, s:f, s:f}, {s:s, s:s}]}", "anyOf", "type", type, "minimum", o->lo,
                     "maximum", o->hi, "type", "string", "pattern", NUMBER_WITH_SUFFIX);
}

static json_t *words_schema(const char *const *set) {
    json_t *words = json_array();
    for (int i = 0; set[i]; i++) json_array_append_new(words, json_string(set[i]));
    return json_pack("{s:o}", "enum", words);
}

static json_t *type_schema(const char *type) {
    return json_pack("{s:s}", "type", type);
}

static json_t *closed_object(void) {
    return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
}

static json_t *option_schema(const option *o);

/* The object at properties.KEY of an object schema, made where absent. */
static json_t *sub_object(json_t *object, const char *key) {
    json_t *properties = json_object_get(object, "properties");
    json_t *child = json_object_get(properties, key);
    if (child) return child;
    child = closed_object();
    json_object_set_new(properties, key, child);
    return child;
}

static void set_property(json_t *object, const char *path, json_t *schema) {
    size_t n = strcspn(path, ".");
    char key[128];
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    if (path[n])
        set_property(sub_object(object, key), path + n + 1, schema);
    else
        json_object_set_new(json_object_get(object, "properties"), key, schema);
}

static json_t *element_schema(const char *owner) {
    json_t *object = closed_object();
    for (int i = 0; i < config_n_items; i++)
        if (strcmp(config_items[i].owner, owner) == 0)
            set_property(object, config_items[i].path, option_schema(&config_items[i]));
    return object;
}

static json_t *source_schema(const option *o) {
    json_t *element = element_schema(o->path);
    json_object_set_new(element, "required", json_pack("[s]", "path"));
    return json_pack("{s:[{s:s}, o]}", "anyOf", "type", "string", element);
}

static json_t *stage_schema(const option *o) {
    static const char *const sections[] = {"data", "train", "optim", "model"};
    json_t *element = element_schema(o->path);
    for (int i = 0; i < ARRAY_LEN(sections); i++)
        set_property(element, sections[i], type_schema("object"));
    json_object_set_new(element, "required", json_pack("[s]", "name")); /* the last has no end */
    return element;
}

static json_t *bare_schema(const option *o);

/* A text or a source alone stands for a list of one. */
static json_t *list_schema(const option *o) {
    option element;
    (void)config_elements(o, &element);
    json_t *list = json_pack("{s:s, s:o}", "type", "array", "items", bare_schema(&element));
    if (o->type != OPTION_TEXTS && o->type != OPTION_SOURCES) return list;
    return json_pack("{s:[{s:s}, o]}", "anyOf", "type", "string", list);
}

static json_t *bare_schema(const option *o) {
    switch (o->type) {
        case OPTION_BOOL: return type_schema("boolean");
        case OPTION_INT: return number_schema(o, "integer");
        case OPTION_NUM: return number_schema(o, "number");
        case OPTION_TEXT: return type_schema("string");
        case OPTION_CHOICE: return words_schema(o->set);
        case OPTION_AUTO: {
            json_t *schema = number_schema(o, "integer");
            json_array_append_new(json_object_get(schema, "anyOf"),
                                  json_pack("{s:s}", "const", "auto"));
            return schema;
        }
        case OPTION_SOURCE: return source_schema(o);
        case OPTION_STAGE: return stage_schema(o);
        default: return list_schema(o); /* all others are lists */
    }
}

/* null stands for the default everywhere. */
static json_t *option_schema(const option *o) {
    json_t *schema = json_pack("{s:s, s:[o, {s:s}]}", "description", o->help, "anyOf",
                               bare_schema(o), "type", "null");
    json_object_set_new(schema, "default", config_fallback(o));
    return schema;
}

/* A group without keys (`train:`) is null, and has its defaults. */
static void widen_groups(json_t *root) {
    for (int i = 0; i < config_n_groups; i++) {
        json_t *group = root;
        char key[64];
        for (const char *p = config_groups[i]; *p; p += *p == '.') {
            snprintf(key, sizeof key, "%.*s", (int)strcspn(p, "."), p);
            group = sub_object(group, key);
            p += strcspn(p, ".");
        }
        json_object_set_new(group, "type", json_pack("[s, s]", "object", "null"));
    }
}

/* train.precision also takes one word. */
static void widen_precision(json_t *root) {
    json_t *train = json_object_get(sub_object(root, "train"), "properties");
    json_t *full = json_incref(json_object_get(train, "precision"));
    char member[64];
    snprintf(member, sizeof member, "%s.%s", config_short_group, config_short_member);
    json_t *word = words_schema(config_find_option(member)->set);
    json_object_set_new(train, "precision", json_pack("{s:[o, o]}", "anyOf", word, full));
}

json_t *config_schema(void) {
    json_t *root = closed_object();
    set_property(root, "run", json_null()); /* holds its place before the model */
    set_property(root, "model",
                 json_pack("{s:s, s:s}", "type", "object", "description",
                           "preset, or model_type and the names of Hugging Face config.json"));
    for (int i = 0; i < config_n_options; i++)
        set_property(root, config_options[i].path, option_schema(&config_options[i]));
    widen_groups(root);
    widen_precision(root);
    json_t *out = json_pack("{s:s, s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema",
                            "title", "athanor config");
    json_object_update(out, root);
    json_decref(root);
    return out;
}

char *config_reference_markdown(void) {
    strbuf out = {0};
    strbuf_puts(&out, "| key | value | default | on resume | meaning |\n|---|---|---|---|---|\n");
    for (int i = 0; i < config_n_options; i++) {
        const option *o = &config_options[i];
        char want[256];
        config_describe(o, want, sizeof want);
        strbuf_printf(&out, "| `%s` | %s | `%s` | %s | %s |\n", o->path, want, o->fallback,
                      o->free_on_resume ? "may change" : "fixed", o->help);
    }
    return out.data;
}

char *config_help(void) {
    strbuf out = {0};
    strbuf_puts(&out, "keys, with their defaults:\n");
    strbuf_puts(&out,
                "  model.*                        what the model is: `athanor config schema` lists "
                "its keys, docs/models.md explains them\n");
    for (int i = 0; i < config_n_options; i++) {
        const option *o = &config_options[i];
        strbuf_printf(&out, "  %-30s %s [%s]\n", o->path, o->help, o->fallback);
    }
    return out.data;
}

/* A text that YAML reads back as itself without quotes. */
static bool is_plain_text(const char *s) {
    static const char *const typed[] = {"true", "false", "null", "yes", "no",
                                        "on",   "off",   "y",    "n"};
    if (!isalpha((unsigned char)*s)) return false;
    for (int i = 0; i < ARRAY_LEN(typed); i++)
        if (strcasecmp(s, typed[i]) == 0) return false;
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")] == 0;
}

/* A comment ends with its line. */
static void yaml_comment(strbuf *out, const char *s) {
    strbuf text = {0};
    json_put_text(&text, s);
    strbuf_append(out, text.data + 1, text.len - 2);
    strbuf_free(&text);
}

static void yaml_word(strbuf *out, const char *s) {
    if (is_plain_text(s))
        strbuf_puts(out, s);
    else
        json_put_text(out, s);
}

/* 1e-08 is a text to readers of YAML 1.1, 1.0e-08 a number to all. */
static void yaml_real(strbuf *out, const json_t *value) {
    strbuf text = {0};
    json_format(&text, value, 0);
    const char *s = strbuf_cstr(&text);
    size_t n = strcspn(s, "e");
    bool needs_point = s[n] && !memchr(s, '.', n);
    strbuf_printf(out, "%.*s%s%s", (int)n, s, needs_point ? ".0" : "", s + n);
    strbuf_free(&text);
}

/* On one line. */
static void yaml_value(strbuf *out, const json_t *value) {
    const char *key, *between = "";
    size_t i;
    json_t *item;
    switch (json_typeof(value)) {
        case JSON_STRING: json_put_text(out, json_string_value(value)); return;
        case JSON_REAL: yaml_real(out, value); return;
        case JSON_ARRAY:
            strbuf_putc(out, '[');
            json_array_foreach(value, i, item) {
                strbuf_puts(out, i ? ", " : "");
                yaml_value(out, item);
            }
            strbuf_putc(out, ']');
            return;
        case JSON_OBJECT:
            strbuf_putc(out, '{');
            json_object_foreach((json_t *)value, key, item) {
                strbuf_puts(out, between);
                json_put_text(out, key);
                strbuf_puts(out, ": ");
                yaml_value(out, item);
                between = ", ";
            }
            strbuf_putc(out, '}');
            return;
        default: json_format(out, value, 0); return;
    }
}

static void yaml_line(const config *c, strbuf *out, const char *path, int level, const char *key,
                      const json_t *value) {
    strbuf line = {0};
    strbuf_printf(&line, "%*s", 2 * level, "");
    yaml_word(&line, key);
    strbuf_puts(&line, ": ");
    if (json_is_string(value))
        yaml_word(&line, json_string_value(value));
    else
        yaml_value(&line, value);
    strbuf_printf(out, "%-48s # ", strbuf_cstr(&line));
    yaml_comment(out, config_where(c, path));
    strbuf_putc(out, '\n');
    strbuf_free(&line);
}

static void yaml_object(const config *c, strbuf *out, const char *path, int level,
                        const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const char *below = arena_printf(c->memory, "%s%s%s", path, *path ? "." : "", key);
        if (json_object_size(value) > 0) {
            strbuf_printf(out, "%*s", 2 * level, "");
            yaml_word(out, key);
            strbuf_puts(out, ":\n");
            yaml_object(c, out, below, level + 1, value);
        } else {
            yaml_line(c, out, below, level, key, value);
        }
    }
}

char *config_to_yaml(const config *c) {
    strbuf out = {0};
    json_t *root = config_to_json(c);
    yaml_object(c, &out, "", 0, root);
    json_decref(root);
    return out.data;
}
