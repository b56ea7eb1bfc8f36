/* Heads of labels (sequence classification, regression) in configs. transformers says by the name of its class that a model has
 * one, and by id2label, an object of names by their numbers, how many labels it has. Here that is num_labels and a list, `labels`. */
#include <string.h>

#include "model/config_file.h"

static status bad_labels(err *e, const char *key, const char *why) {
    err_at(e, ST_USAGE, key, "%s", why);
    return err_hint(e, "such as model.labels=[ham,spam]");
}

static bool is_classifier(const json_t *base) {
    static const char end[] = "ForSequenceClassification";
    const char *name = json_string_value(json_array_get(json_object_get(base, "architectures"), 0));
    size_t n = name ? strlen(name) : 0, m = sizeof end - 1;
    return n > m && strcmp(name + n - m, end) == 0;
}

/* The names of labels 0 to n - 1; NULL: it does not name these. */
static json_t *names_of(const json_t *id2label, int64_t n) {
    json_t *list = json_array();
    char key[24];
    for (int64_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%lld", (long long)i);
        json_t *name = json_object_get(id2label, key);
        if (json_is_string(name)) json_array_append(list, name);
    }
    if ((int64_t)json_array_size(list) == n) return list;
    json_decref(list);
    return NULL;
}

status config_merge_head(json_t *all, const json_t *base, err *e) {
    static const char *const keys[] = {"num_labels", "problem_type", "labels"};
    const json_t *named = json_object_get(base, "id2label"), *count, *kind;
    for (int i = 0; i < ARRAY_LEN(keys); i++) json_object_del(all, keys[i]);
    if (!is_classifier(base)) return ST_OK;
    count = json_object_get(base, "num_labels");
    int64_t n = json_is_object(named) ? (int64_t)json_object_size(named) : 2;
    if (json_is_integer(count)) n = json_integer_value(count);
    if (n < 1) return bad_labels(e, "model.id2label", "config.json names a head without labels");
    json_object_set_new(all, "num_labels", json_integer(n));
    kind = json_object_get(base, "problem_type");
    if (json_is_string(kind)) json_object_set(all, "problem_type", (json_t *)kind);
    json_t *names = n <= (int64_t)json_object_size(named) ? names_of(named, n) : NULL;
    if (names) json_object_set_new(all, "labels", names);
    return ST_OK;
}

status config_count_labels(json_t *all, const json_t *obj, err *e) {
    const json_t *given = json_object_get(obj, "labels"),
                 *count = json_object_get(obj, "num_labels");
    size_t n = json_array_size(given);
    if (given && n == 0) return bad_labels(e, "model.labels", "model.labels is no list of names");
    if (given && count && json_integer_value(count) != (json_int_t)n)
        return bad_labels(e, "model.labels",
                          "model.labels names another number than model.num_labels");
    if (given) json_object_set_new(all, "num_labels", json_integer((json_int_t)n));
    if (!given && count) json_object_del(all, "labels");
    return ST_OK;
}

/* A number or a truth that YAML has read as such is meant as the word it was written by. */
static const char *word_of(arena *a, const json_t *v) {
    if (json_is_integer(v)) return arena_printf(a, "%lld", (long long)json_integer_value(v));
    if (json_is_boolean(v)) return json_is_true(v) ? "true" : "false";
    const char *text = json_string_value(v);
    return text ? arena_strdup(a, text) : NULL;
}

status config_read_labels(arena *a, const json_t *all, model_config *mc, err *e) {
    const json_t *list = json_object_get(all, "labels");
    int n = (int)mc->num_labels;
    if (mc->num_labels == 0 || !list) return ST_OK;
    if ((int64_t)json_array_size(list) != mc->num_labels)
        return bad_labels(e, "model.labels",
                          "model.labels names another number than model.num_labels");
    const char **names = ARENA_ARRAY(a, const char *, n);
    json_t *seen = json_object();
    for (int i = 0; i < n; i++) {
        names[i] = word_of(a, json_array_get(list, (size_t)i));
        if (names[i]) json_object_set_new(seen, names[i], json_true());
    }
    bool all_differ = (int)json_object_size(seen) == n;
    json_decref(seen);
    if (!all_differ)
        return bad_labels(e, "model.labels", "model.labels has a name twice, or what is no name");
    mc->labels = names;
    return ST_OK;
}

void config_put_head(const model_config *mc, json_t *o) {
    json_t *names = json_object(), *numbers = json_object(), *list = json_array();
    char key[24], other[40];
    for (int64_t i = 0; i < mc->num_labels; i++) {
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(other, sizeof other, "LABEL_%s", key);
        const char *name = mc->labels ? mc->labels[i] : other;
        json_object_set_new(names, key, json_string(name));
        json_object_set_new(numbers, name, json_integer(i));
        json_array_append_new(list, json_string(name));
    }
    json_object_set_new(o, "id2label", names);
    json_object_set_new(o, "label2id", numbers);
    static const char *const kinds[] = {NULL, "regression", "single_label_classification",
                                        "multi_label_classification"};
    if (mc->problem_type != PROBLEM_AUTO)
        json_object_set_new(o, "problem_type", json_string(kinds[mc->problem_type]));
    json_t *own = json_object_get(o, "athanor"); /* where transformers has no such class */
    if (own && !mc->family->classifier) json_object_set(own, "labels", list);
    json_decref(list);
}
