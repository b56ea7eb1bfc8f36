/* Unknown keys of the raw tree, with the nearest known one.
 *
 * `prefix` is "" or "stages.N.": inside a stage the same keys mean the same options. */
#include "run/config/config_int.h"

#include <string.h>

#include "base/text.h"
#include "model/config_keys.h"

enum { MAX_WORDS = 256 };

/* Option and group paths and "model"; with a parent only the last segments of its children. */
static int known_words(const char *parent, const char **words) {
    int n = 0;
    if (!parent || !*parent) words[n++] = "model";
    for (int i = 0; i < config_n_groups + config_n_options && n < MAX_WORDS; i++) {
        const char *path =
            i < config_n_groups ? config_groups[i] : config_options[i - config_n_groups].path;
        const char *word = !parent || !*parent ? path : config_path_below(path, parent);
        if (word && (!parent || !strchr(word, '.'))) words[n++] = word;
    }
    return n;
}

static const char *last_segment(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Nearest full path of an unknown one: a sibling, else the same word elsewhere, else any path. */
static const char *nearest_path(arena *memory, const char *path) {
    const char *words[MAX_WORDS], *leaf = last_segment(path);
    const char *parent = arena_strndup(memory, path, leaf > path ? (size_t)(leaf - path - 1) : 0);
    int n = known_words(parent, words), i = text_nearest(leaf, words, n);
    if (i >= 0) return arena_printf(memory, "%s%s%s", parent, *parent ? "." : "", words[i]);
    n = known_words(NULL, words);
    for (i = 0; i < n; i++)
        if (strcmp(last_segment(words[i]), leaf) == 0) return words[i];
    i = text_nearest(path, words, n);
    return i >= 0 ? words[i] : NULL;
}

/* Keys with which a config.json of Hugging Face begins. */
static bool is_of_hugging_face(const char *key) {
    return key_in_words("architectures model_type _name_or_path auto_map", key);
}

static status unknown_key(const config *c, const char *prefix, const char *path, err *e) {
    const char *shown = arena_printf(c->memory, "%s%s", prefix, path);
    const char *where = config_where(c, shown), *near = nearest_path(c->memory, path);
    if (is_of_hugging_face(shown)) {
        err_set(e, ST_USAGE, "unknown key '%s' (%s)", shown, where);
        err_hint(e, "keys of a model stand under model:, and a file of Hugging Face is read where "
                    "it is called config.json");
    } else if (near) {
        err_set(e, ST_USAGE, "unknown key '%s' (%s); nearest: %s%s", shown, where, prefix, near);
        err_hint(e, "did you mean '%s%s'?", prefix, near);
    } else {
        err_set(e, ST_USAGE, "unknown key '%s' (%s)", shown, where);
        err_hint(e, "athanor config schema --markdown lists all keys");
    }
    return err_where(e, "%s", where);
}

/* The key by which a group is mostly chosen: what a single word in its place was meant for. */
static const char *main_key(const config *c, const char *group) {
    static const char *const words[] = {"kind", "name"};
    if (strcmp(group, "model") == 0) return "preset";
    for (int i = 0; i < ARRAY_LEN(words); i++)
        if (config_find_option(arena_printf(c->memory, "%s.%s", group, words[i]))) return words[i];
    return NULL;
}

/* `group` as it is declared; `path` may be that of a stage's. */
static status not_an_object(const config *c, const char *path, const char *group, err *e) {
    const char *key = main_key(c, group);
    config_error(c, e, path, "'%s' must be an object of keys and values", path);
    return key ? err_hint(e, "write `%s: {%s: ...}`", last_segment(group), key) : ST_USAGE;
}

/* The members that items of a list declare, as a list of words. */
static const char *item_words(const config *c, const char *owner) {
    const char *words = "";
    for (int i = 0; i < config_n_items; i++)
        if (strcmp(config_items[i].owner, owner) == 0)
            words =
                arena_printf(c->memory, "%s%s%s", words, *words ? ", " : "", config_items[i].path);
    return words;
}

/* A member of a list's element, at `path` below it: an item, or an object on the way to some. */
static status check_item(const config *c, const char *owner, const char *prefix, const char *path,
                         const json_t *value, err *e) {
    const char *key, *shown = arena_printf(c->memory, "%s%s", prefix, path);
    json_t *member;
    bool on_the_way = false;
    for (int i = 0; i < config_n_items; i++) {
        const option *o = &config_items[i];
        if (strcmp(o->owner, owner) != 0) continue;
        if (strcmp(o->path, path) == 0) return ST_OK;
        on_the_way |= config_path_below(o->path, path) != NULL;
    }
    if (!on_the_way)
        return config_error(c, e, shown, "unknown key '%s'; known: %s", shown,
                            item_words(c, owner));
    if (!json_is_object(value)) return not_an_object(c, shown, "", e);
    json_object_foreach((json_t *)value, key, member)
        TRY(check_item(c, owner, prefix, arena_printf(c->memory, "%s.%s", path, key), member, e));
    return ST_OK;
}

static status check_member(const config *c, const json_t *value, const char *prefix,
                           const char *path, err *e);

static status refuse_in_stage(const config *c, const char *path, const char *name, err *e) {
    config_error(c, e, path, "a stage cannot change '%s'", name);
    return err_hint(e, "it holds for the whole run: say it once, outside `stages`; a stage has "
                       "name, until and keys of data, train, optim, model.rope_theta");
}

static status check_stage_key(const config *c, const option *o, const char *prefix, const char *key,
                              const json_t *value, err *e) {
    bool theta = json_object_size(value) == 1 && json_object_get(value, "rope_theta");
    if (strcmp(key, "name") == 0 || strcmp(key, "until") == 0)
        return check_item(c, o->path, prefix, key, value, e);
    if (strcmp(key, "model") == 0 && theta) return ST_OK;
    if (!strcmp(key, "data") || !strcmp(key, "train") || !strcmp(key, "optim"))
        return check_member(c, value, prefix, key, e);
    const char *path = arena_printf(c->memory, "%s%s", prefix, key);
    if (config_is_group(key) || config_find_option(key) || strcmp(key, "model") == 0)
        return refuse_in_stage(c, path, path, e);
    static const char *const keys[] = {"name", "until", "data", "train", "optim", "model"};
    int near = text_nearest(key, keys, ARRAY_LEN(keys));
    config_error(c, e, path, "unknown key '%s'; a stage has name, until, data, train, optim, model",
                 path);
    return near >= 0 ? err_hint(e, "did you mean '%s%s'?", prefix, keys[near]) : ST_USAGE;
}

/* One element of data.train or stages. */
static status check_element(const config *c, const option *o, const char *prefix,
                            const json_t *element, err *e) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)element, key, value)
        TRY(o->type == OPTION_STAGES ? check_stage_key(c, o, prefix, key, value, e)
                                     : check_item(c, o->path, prefix, key, value, e));
    return ST_OK;
}

static status check_elements(const config *c, const option *o, const char *outer,
                             const json_t *list, err *e) {
    size_t i;
    json_t *element;
    json_array_foreach(list, i, element) {
        const char *path = arena_printf(c->memory, "%s%s.%zu", outer, o->path, i);
        if (!json_is_object(element)) return not_an_object(c, path, "", e);
        TRY(check_element(c, o, arena_printf(c->memory, "%s.", path), element, e));
    }
    return ST_OK;
}

/* `train.steps: 5` in a file: values are looked for in groups, so this one would be passed over. */
static status dotted_key(const config *c, const char *prefix, const char *path, const char *key,
                         err *e) {
    const char *dot = strchr(key, '.');
    config_error(c, e, arena_printf(c->memory, "%s%s", prefix, path),
                 "the key '%s' has a dot, and in a file each group stands by itself", key);
    return err_hint(e, "write '%.*s:', and '%s: ...' indented in the line below", (int)(dot - key),
                    key, dot + 1);
}

static status check_object(const config *c, const json_t *node, const char *prefix,
                           const char *path, err *e) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)node, key, value) {
        const char *below = arena_printf(c->memory, "%s%s%s", path, *path ? "." : "", key);
        TRY(check_member(c, value, prefix, below, e));
        if (strchr(key, '.')) return dotted_key(c, prefix, below, key, e);
    }
    return ST_OK;
}

static status check_member(const config *c, const json_t *value, const char *prefix,
                           const char *path, err *e) {
    const option *o = config_find_option(path);
    bool model = strcmp(path, "model") == 0;
    if (!o && !model && !config_is_group(path)) return unknown_key(c, prefix, path, e);
    const char *shown = arena_printf(c->memory, "%s%s", prefix, path);
    bool section = *prefix && !strchr(path, '.'); /* of a stage */
    if (*prefix && !section && !config_stage_may_change(path))
        return refuse_in_stage(c, shown, path, e);
    if (o && (o->type == OPTION_SOURCES || o->type == OPTION_STAGES))
        return check_elements(c, o, prefix, value, e);
    if (o || (json_is_null(value) && !section)) return ST_OK;
    if (!json_is_object(value)) return not_an_object(c, shown, path, e);
    return model ? ST_OK : check_object(c, value, prefix, path, e);
}

status config_check_keys(const config *c, const json_t *root, err *e) {
    if (json_is_null(root)) return ST_OK;
    if (!json_is_object(root)) {
        return err_at(e, ST_USAGE, c->source,
                      "%s is not a config: it must be an object of keys and values", c->source);
    }
    return check_object(c, root, "", "", e);
}
