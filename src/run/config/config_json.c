/* Values back to JSON: the resolved config, one key of it, and the difference of two. */
#include "run/config/config_int.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

static json_t *member_json(const option *o, const void *base);

/* Sets a dotted path in an object, making the objects on the way. */
static void set_dotted(json_t *object, const char *path, json_t *value) {
    size_t n = strcspn(path, ".");
    char key[128];
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    if (path[n] == '\0') {
        json_object_set_new(object, key, value);
        return;
    }
    if (!json_object_get(object, key)) json_object_set_new(object, key, json_object());
    set_dotted(json_object_get(object, key), path + n + 1, value);
}

static json_t *element_json(const char *owner, const void *element) {
    json_t *object = json_object();
    for (int i = 0; i < config_n_items; i++) {
        const option *o = &config_items[i];
        if (strcmp(o->owner, owner) != 0) continue;
        json_t *value = member_json(o, element);
        if (json_is_null(value))
            json_decref(value);
        else
            set_dotted(object, o->path, value);
    }
    return object;
}

static json_t *stage_json(const option *o, const config_stage *s) {
    json_t *stage = element_json(o->path, s);
    json_object_update(stage, s->changes);
    return stage;
}

static json_t *list_json(const option *o, const void *field) {
    json_t *array = json_array();
    option element;
    option_list list;
    size_t bytes = config_elements(o, &element);
    memcpy(&list, field, sizeof list);
    for (int i = 0; i < list.n; i++)
        json_array_append_new(array, member_json(&element, (char *)list.items + bytes * (size_t)i));
    return array;
}

/* A number without a default is null in JSON while it is 0, that is, was not given. */
static bool is_unset(const option *o, double value) {
    return value == 0 && strcmp(o->fallback, "null") == 0;
}

static json_t *member_json(const option *o, const void *base) {
    const void *field = (const char *)base + o->offset;
    switch (o->type) {
        case OPTION_BOOL: return json_boolean(*(const bool *)field);
        case OPTION_NUM: {
            double value = *(const double *)field;
            return is_unset(o, value) ? json_null() : json_f64(value);
        }
        case OPTION_TEXT: return json_cstr(*(const char *const *)field);
        case OPTION_CHOICE: return json_string(o->set[*(const int *)field]);
        case OPTION_AUTO:
            if (*(const int64_t *)field == CONFIG_AUTO) return json_string("auto");
            return json_integer(*(const int64_t *)field);
        case OPTION_INT: {
            int64_t value = *(const int64_t *)field;
            return is_unset(o, (double)value) ? json_null() : json_integer(value);
        }
        case OPTION_SOURCE: return element_json(o->path, field);
        case OPTION_STAGE: return stage_json(o, field);
        default: return list_json(o, field); /* all others are lists */
    }
}

/* A precision whose other members are all auto is written in its short form. */
static void shorten_precision(json_t *root, const config *c) {
    bool plain = c->train.precision.arithmetic == CONFIG_ARITHMETIC_AUTO &&
                 c->train.precision.params == CONFIG_PRECISION_AUTO &&
                 c->train.precision.grads == CONFIG_PRECISION_AUTO &&
                 c->train.precision.optim == CONFIG_PRECISION_AUTO;
    if (plain)
        set_dotted(root, config_short_group,
                   json_string(config_precision_name(c->train.precision.compute)));
}

void config_write_value(const option *o, const void *base, json_t *tree) {
    set_dotted(tree, o->path, member_json(o, base));
}

json_t *config_to_json(const config *c) {
    json_t *root = json_object();
    json_object_set_new(root, "run", json_null()); /* holds its place before the model */
    json_object_set_new(root, "model", json_deep_copy(c->model));
    for (int i = 0; i < config_n_options; i++) config_write_value(&config_options[i], c, root);
    shorten_precision(root, c);
    return root;
}

json_t *config_get_json(const config *c, const char *path) {
    const option *o = config_find_option(path);
    if (o) return member_json(o, c);
    json_t *root = config_to_json(c), *value = json_incref(config_walk(root, path));
    json_decref(root);
    return value;
}

json_t *config_default(const char *path) {
    const option *o = config_find_option(path);
    CHECK(o, "%s is no option", path);
    return config_fallback(o);
}

static void add_difference(json_t *out, const char *key, json_t *a, json_t *b) {
    json_array_append_new(out, json_pack("{s:s, s:O?, s:O?}", "key", key, "a", a, "b", b));
}

static void diff_values(json_t *out, const char *path, json_t *a, json_t *b);

/* Stages one by one, so that a change names its stage: "stages.2.optim.lr". */
static void diff_stages(json_t *out, const char *path, json_t *a, json_t *b) {
    size_t n = json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);
    for (size_t i = 0; i < n; i++) {
        char below[1024];
        snprintf(below, sizeof below, "%s.%zu", path, i);
        json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
        if (x && y)
            diff_values(out, below, x, y);
        else
            add_difference(out, below, x, y);
    }
}

static void diff_values(json_t *out, const char *path, json_t *a, json_t *b) {
    if (json_equal(a, b)) return;
    if (strcmp(path, "stages") == 0) {
        diff_stages(out, path, a, b);
        return;
    }
    if (!json_is_object(a) || !json_is_object(b)) {
        add_difference(out, path, a, b);
        return;
    }
    const char *key, *dot = *path ? "." : "";
    char below[1024];
    json_t *value;
    json_object_foreach(a, key, value) {
        snprintf(below, sizeof below, "%s%s%s", path, dot, key);
        diff_values(out, below, value, json_object_get(b, key));
    }
    json_object_foreach(b, key, value) {
        snprintf(below, sizeof below, "%s%s%s", path, dot, key);
        if (!json_object_get(a, key)) add_difference(out, below, NULL, value);
    }
}

json_t *config_diff(const config *a, const config *b) {
    json_t *x = config_to_json(a), *y = config_to_json(b), *out = json_array();
    diff_values(out, "", x, y);
    json_decref(x);
    json_decref(y);
    return out;
}
