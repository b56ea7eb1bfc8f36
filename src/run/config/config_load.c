/* File and overrides to a config: one raw tree first, so that all sources obey the same rules; then
 * unknown keys, then typed values in the order of the table, then checks across values. */
#include "run/config/config_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/yaml.h"

/* A scalar for train.precision stands for its `compute`. */
static void expand_precision(json_t *root, json_t *origins) {
    json_t *group = config_walk(root, config_short_group);
    if (!group || json_is_object(group) || json_is_null(group)) return;
    char member[64];
    snprintf(member, sizeof member, "%s.%s", config_short_group, config_short_member);
    json_t *where = json_object_get(origins, config_short_group), *full = json_object();
    if (where) json_object_set(origins, member, where);
    json_object_set(full, config_short_member, group);
    json_object_set_new(config_walk(root, "train"), "precision", full);
}

static json_t *source_of(json_t *path) {
    json_t *source = json_object();
    json_object_set(source, "path", path);
    return source;
}

/* A path for data.train, or for one of its elements, stands for {path: ...}. */
static void expand_sources(json_t *root) {
    json_t *sources = config_walk(root, "data.train"), *item;
    size_t i;
    if (json_is_string(sources)) {
        json_t *list = json_array();
        json_array_append_new(list, source_of(sources));
        json_object_set_new(config_walk(root, "data"), "train", list);
    }
    json_array_foreach(sources, i, item) {
        if (json_is_string(item)) json_array_set_new(sources, i, source_of(item));
    }
}

/* Brings the short forms (`precision: bf16`, `train: shards/train`) into full form, in place. */
static void expand_short_forms(json_t *root, json_t *origins) {
    json_t *stage;
    size_t i;
    expand_precision(root, origins);
    expand_sources(root);
    json_array_foreach(json_object_get(root, "stages"), i, stage) expand_sources(stage);
}

/* A group is no value, and a null means the default: neither has an origin. */
static void drop_idle_origins(const json_t *root, json_t *origins) {
    for (int i = 0; i < config_n_groups; i++) json_object_del(origins, config_groups[i]);
    for (int i = 0; i < config_n_options; i++) {
        const json_t *value = config_walk(root, config_options[i].path);
        if (!value || json_is_null(value)) json_object_del(origins, config_options[i].path);
    }
}

static status read_tree(config *c, const json_t *root, err *e) {
    TRY(config_check_keys(c, root, e));
    drop_idle_origins(root, c->origins);
    for (int i = 0; i < config_n_options; i++) {
        const option *o = &config_options[i];
        TRY(config_read_value(c, o, c, o->path, config_walk(root, o->path), e));
    }
    const json_t *model = json_object_get(root, "model");
    if (json_is_object(model)) json_object_update(c->model, (json_t *)model);
    return config_check_pairs(c, e);
}

static status apply_overrides(json_t *root, json_t *origins, const char *const *overrides, int n,
                              err *e) {
    expand_short_forms(root, origins);
    for (int i = 0; i < n; i++) {
        TRY(config_apply_override(root, origins, overrides[i], e));
        expand_short_forms(root, origins);
    }
    return ST_OK;
}

status config_from_json(config **out, const json_t *root, const json_t *origins, const char *name,
                        const char *const *overrides, int n_overrides, err *e) {
    arena *memory = arena_new("config");
    config *c = ARENA_NEW(memory, config);
    json_t *tree = json_is_null(root) ? json_object() : json_deep_copy(root);
    c->memory = memory;
    c->source = arena_strdup(memory, name);
    c->model = json_object();
    c->origins = json_object_size(origins) ? json_deep_copy(origins) : json_object();
    if (!json_object_size(origins)) config_set_origins(c->origins, "", root, name);
    status st = apply_overrides(tree, c->origins, overrides, n_overrides, e);
    if (st == ST_OK) st = read_tree(c, tree, e);
    json_decref(tree);
    if (st != ST_OK) config_free(c);
    *out = st == ST_OK ? c : NULL;
    return st;
}

status config_load(config **out, const char *path, const char *const *overrides, int n_overrides,
                   err *e) {
    json_t *root = NULL, *origins = NULL;
    *out = NULL;
    if (path)
        TRY(yaml_load(&root, &origins, path, e));
    else
        root = json_object();
    status st =
        config_from_json(out, root, origins, path ? path : "no file", overrides, n_overrides, e);
    json_decref(root);
    json_decref(origins);
    if (st == ST_OK) st = config_resolve_from(*out, path != NULL, e);
    if (st == ST_OK) st = config_note_idle(*out, e);
    if (st == ST_OK) return ST_OK;
    config_free(*out);
    *out = NULL;
    return st;
}

void config_add_note(config *c, const char *fmt, ...) {
    const char **items = ARENA_ARRAY(c->memory, const char *, c->notes.n + 1);
    va_list args;
    char text[1024];
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (int i = 0; i < c->notes.n; i++) items[i] = c->notes.items[i];
    items[c->notes.n++] = arena_strdup(c->memory, text);
    c->notes.items = items;
}

void config_tell_notes(const config *c) {
    config_tell_from(c);
    for (int i = 0; i < c->notes.n; i++) log_warn("%s", c->notes.items[i]);
}

void config_drop_stages(config *c) {
    for (int i = 0; i < c->stages.n; i++) json_decref(c->stages.items[i].changes);
    c->stages.n = 0;
}

void config_free(config *c) {
    if (!c) return;
    config_drop_stages(c);
    json_decref(c->model);
    json_decref(c->origins);
    arena_free(c->memory); /* c itself lies in it */
}

/* A group in its short form (`precision: bf16`) is where one of its members is. */
const char *config_where(const config *c, const char *path) {
    const char *where = yaml_origin(c->origins, path);
    size_t n = strlen(path);
    for (int i = 0; i < config_n_options && !where; i++) {
        const char *member = config_options[i].path;
        if (strncmp(member, path, n) == 0 && member[n] == '.')
            where = yaml_origin(c->origins, member);
    }
    return where ? where : "default";
}

void config_locate(const config *c, const char *key, err *e) {
    const char *where = yaml_origin(c->origins, key);
    char own[sizeof e->where];
    snprintf(own, sizeof own, "%s", key);
    err_where(e, "%s (%s)", where ? where : c->source ? c->source : "config", own);
}

status config_error(const config *c, err *e, const char *path, const char *fmt, ...) {
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    err_set(e, ST_USAGE, "%s", message);
    config_locate(c, path, e);
    return ST_USAGE;
}
