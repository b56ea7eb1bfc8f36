/* "key.path=value" on the raw tree, before anything is typed.
 *
 * The value is YAML in flow form, except where the key takes a text: there the words are taken as
 * they stand, so that `sample.prompts.0=Once: upon` needs no quotes. Where the file does not give a
 * list, `optim.betas.1=0.99` changes that element of the list's default. */
#include "run/config/config_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/yaml.h"

/* The part of "N.rest" or "N" after a list index: "" for "N"; NULL when there is no index. */
static const char *after_index(const char *s) {
    size_t n = s ? strspn(s, "0123456789") : 0;
    if (n == 0 || (s[n] && s[n] != '.')) return NULL;
    return s[n] ? s + n + 1 : s + n;
}

static bool takes_text(const char *path) {
    const option *o = config_find_option(path);
    if (o) return o->type == OPTION_TEXT;
    for (int i = 0; i < config_n_options; i++) {
        const char *rest = after_index(config_path_below(path, config_options[i].path));
        if (rest && config_options[i].type == OPTION_TEXTS) return *rest == '\0';
    }
    for (int i = 0; i < config_n_items; i++) {
        const char *rest = after_index(config_path_below(path, config_items[i].owner));
        if (rest && strcmp(rest, config_items[i].path) == 0)
            return config_items[i].type == OPTION_TEXT;
    }
    return false;
}

static status parse_override_value(const char *path, const char *text, json_t **value, err *e) {
    bool verbatim = takes_text(path), open = config_path_below(path, "model") != NULL;
    status st = yaml_parse(value, NULL, CONFIG_COMMAND_LINE, text, strlen(text), e);
    if (st != ST_OK && !verbatim && !open) return err_context(e, "%s=%s", path, text);
    if (st == ST_OK && (!verbatim || json_is_string(*value) || json_is_null(*value))) return ST_OK;
    json_decref(*value);
    *value = json_string(text);
    if (*value) return ST_OK;
    return err_set(e, ST_USAGE, "the value of %s is not valid UTF-8", path);
}

static json_t *new_container(const char *path) {
    const option *o = config_find_option(path);
    json_t *fallback = o ? config_fallback(o) : NULL;
    if (json_is_array(fallback)) return fallback;
    json_decref(fallback);
    return json_object();
}

/* The child to descend into, made where absent; NULL when `node` cannot have it. */
static json_t *descend(json_t *node, const char *key, const char *path_so_far) {
    json_t *child = config_walk(node, key);
    if (child && !json_is_null(child)) return child;
    if (!json_is_object(node)) return NULL;
    child = new_container(path_so_far);
    json_object_set_new(node, key, child);
    return child;
}

static bool set_child(json_t *node, const char *key, json_t *value) {
    if (json_is_object(node)) return json_object_set(node, key, value) == 0;
    if (!json_is_array(node) || !isdigit((unsigned char)*key)) return false;
    char *end;
    unsigned long i = strtoul(key, &end, 10);
    if (*end) return false;
    return (i == json_array_size(node) ? json_array_append(node, value)
                                       : json_array_set(node, i, value)) == 0;
}

static status set_path(json_t *root, const char *path, json_t *value, err *e) {
    json_t *node = root;
    for (const char *p = path; node;) {
        char key[256], so_far[YAML_MAX_PATH];
        size_t n = strcspn(p, ".");
        if (n == 0 || n >= sizeof key) break;
        snprintf(key, sizeof key, "%.*s", (int)n, p);
        p += n;
        snprintf(so_far, sizeof so_far, "%.*s", (int)(p - path), path);
        if (*p == '\0') {
            if (set_child(node, key, value)) return ST_OK;
            break;
        }
        p++;
        node = descend(node, key, so_far);
    }
    err_at(e, ST_USAGE, CONFIG_COMMAND_LINE, "there is no place for the key '%s'", path);
    return err_hint(
        e, "list elements are written as data.train.0.weight=2, counted from 0, without gaps");
}

static void forget_origins(json_t *origins, const char *path) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(origins, next, key, value) {
        if (strcmp(key, path) == 0 || config_path_below(key, path)) json_object_del(origins, key);
    }
}

void config_set_origins(json_t *origins, const char *path, const json_t *value, const char *where) {
    char below[YAML_MAX_PATH];
    const char *dot = *path ? "." : "", *key;
    json_t *item;
    size_t i;
    if (*path) json_object_set_new(origins, path, json_string(where));
    json_object_foreach((json_t *)value, key, item) {
        snprintf(below, sizeof below, "%s%s%s", path, dot, key);
        config_set_origins(origins, below, item, where);
    }
    json_array_foreach(value, i, item) {
        snprintf(below, sizeof below, "%s%s%zu", path, dot, i);
        config_set_origins(origins, below, item, where);
    }
}

/* Containers that an override made come from the command line too. */
static void set_parent_origins(json_t *origins, const char *path) {
    char parent[YAML_MAX_PATH];
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(dot - path), path);
        if (!yaml_origin(origins, parent))
            json_object_set_new(origins, parent, json_string(CONFIG_COMMAND_LINE));
    }
}

/* A length of the run on the command line replaces another one in the file. */
static void replace_length(json_t *root, json_t *origins, const char *path) {
    static const char *const lengths[] = {"train.steps", "train.tokens", "train.epochs"};
    bool is_length = false;
    for (int i = 0; i < 3; i++) is_length |= strcmp(path, lengths[i]) == 0;
    if (!is_length || json_is_null(config_walk(root, path))) return;
    for (int i = 0; i < 3; i++) {
        const char *where = json_string_value(json_object_get(origins, lengths[i]));
        if (!where || strcmp(where, CONFIG_COMMAND_LINE) == 0) continue;
        json_object_del(config_walk(root, "train"), lengths[i] + strlen("train."));
        json_object_del(origins, lengths[i]);
    }
}

status config_apply_override(json_t *root, json_t *origins, const char *text, err *e) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || equals - text >= YAML_MAX_PATH) {
        return err_at(e, ST_USAGE, CONFIG_COMMAND_LINE, "'%s' is not of the form key.path=value",
                      text);
    }
    char path[YAML_MAX_PATH];
    json_t *value;
    snprintf(path, sizeof path, "%.*s", (int)(equals - text), text);
    TRY(parse_override_value(path, equals + 1, &value, e));
    status st = set_path(root, path, value, e);
    if (st == ST_OK) {
        forget_origins(origins, path);
        set_parent_origins(origins, path);
        config_set_origins(origins, path, value, CONFIG_COMMAND_LINE);
        replace_length(root, origins, path);
    }
    json_decref(value);
    return st;
}
