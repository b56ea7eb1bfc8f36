/* See merge_recipe.h. Every value is checked when the recipe is read, so that finding the value for
 * one of the tensors later cannot fail. */
#include "interchange/merge/merge_recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "io/checkpoint/checkpoint.h"

const char *const merge_method_words[] = {MERGE_METHODS(LIST_WORD) NULL};

enum { LINEAR = 1, SOUP = 2, SLERP = 4, DELTAS = 8, TRIMMED = 16, DRAWN = 32 };

/* A parameter: which methods read it, its range, and its value where nothing is said. */
typedef struct parameter {
    const char *name;
    int methods;
    bool of_model; /* each model may have its own */
    bool is_switch;
    double lo, hi, fallback; /* lo is allowed unless it is the 0 of `density` */
} parameter;

static const parameter parameters[] = {
    {"weight", LINEAR | DELTAS, true, false, -1e6, 1e6, 1},
    {"density", TRIMMED | DRAWN, true, false, 0, 1, 1},
    {"t", SLERP, false, false, 0, 1, NAN},
    {"lambda", DELTAS, false, false, -1e6, 1e6, 1},
    {"normalize", LINEAR | DELTAS, false, true, 0, 1, NAN},
    {"rescale", DRAWN, false, true, 0, 1, 1},
    {"int8_mask", LINEAR | SOUP | SLERP | DELTAS, false, true, 0, 1,
     0}, /* of mergekit: no effect */
};

static int kind_of(merge_method m) {
    if (m == MERGE_LINEAR) return LINEAR;
    if (m == MERGE_SOUP) return SOUP;
    if (m == MERGE_SLERP) return SLERP;
    return DELTAS | (merge_trims(m) ? TRIMMED : 0) | (merge_draws(m) ? DRAWN : 0);
}

/* Sums of differences are divided by their weights in TIES alone, as in its paper and mergekit. */
static double fallback_of(const parameter *p, merge_method m) {
    if (strcmp(p->name, "normalize") == 0) return !merge_uses_base(m) || m == MERGE_TIES;
    return p->fallback;
}

static const parameter *find_parameter(const char *name) {
    for (int i = 0; i < ARRAY_LEN(parameters); i++)
        if (strcmp(parameters[i].name, name) == 0) return &parameters[i];
    return NULL;
}

/* ---- errors ---- */

static const char *origin(const merge_recipe *r, const char *path) {
    const char *where = yaml_origin(r->origins, path);
    return where ? where : r->file;
}

static status wrong(const merge_recipe *r, const char *path, const char *what, err *e) {
    err_set(e, ST_USAGE, "%s %s", path, what);
    return err_where(e, "%s", origin(r, path));
}

/* ---- values ---- */

static bool is_number(const json_t *v, double *out) {
    *out = json_is_number(v) ? json_number_value(v) : json_is_true(v);
    return json_is_number(v) || json_is_boolean(v);
}

static bool matches(const json_t *condition, const char *name) {
    const json_t *filter = json_object_get(condition, "filter");
    const char *word = json_string_value(filter);
    return !word || strcmp(word, "*") == 0 || strstr(name, word) != NULL;
}

/* The value of a checked setting for a tensor; false: no filter lets it through. */
static bool value_at(const json_t *v, const char *name, double place, double *out) {
    if (is_number(v, out)) return true;
    if (json_is_object(v))
        return matches(v, name) && value_at(json_object_get(v, "value"), name, place, out);
    size_t n = json_array_size(v);
    if (n && json_is_object(json_array_get(v, 0))) {
        for (size_t i = 0; i < n; i++)
            if (value_at(json_array_get(v, i), name, place, out)) return true;
        return false;
    }
    double at = place * (double)(n - 1), low, high;
    size_t i = (size_t)at, next = i + 1 < n ? i + 1 : i;
    is_number(json_array_get(v, i), &low);
    is_number(json_array_get(v, next), &high);
    *out = (1 - (at - (double)i)) * low + (at - (double)i) * high;
    return n > 0;
}

static status check_number(const merge_recipe *r, const parameter *p, const char *path,
                           const json_t *v, err *e) {
    double x;
    if (p->is_switch)
        return json_is_boolean(v) ? ST_OK : wrong(r, path, "must be true or false", e);
    bool above = strcmp(p->name, "density") == 0;
    if (json_is_number(v) && is_number(v, &x) && x >= p->lo && x <= p->hi && !(above && x == 0))
        return ST_OK;
    char text[128];
    snprintf(text, sizeof text, "must be a number %s %g to %g", above ? "above" : "from", p->lo,
             p->hi);
    return wrong(r, path, text, e);
}

/* `depth`: 0 a setting, 1 the value of a filter. */
static status check_setting(const merge_recipe *r, const parameter *p, const char *path,
                            const json_t *v, int depth, err *e) {
    char below[YAML_MAX_PATH];
    if (json_is_object(v) && depth == 0) {
        const char *key;
        json_t *part;
        json_object_foreach(
            (json_t *)v, key,
            part) if (strcmp(key, "filter") != 0 &&
                      strcmp(key, "value") !=
                          0) return wrong(r, path, "has other keys than filter and value", e);
        snprintf(below, sizeof below, "%s.filter", path);
        const json_t *filter = json_object_get(v, "filter");
        if (filter && !json_is_string(filter) && !json_is_null(filter))
            return wrong(r, below, "must be a part of a tensor's name", e);
        snprintf(below, sizeof below, "%s.value", path);
        return check_setting(r, p, below, json_object_get(v, "value"), 1, e);
    }
    if (!json_is_array(v)) return check_number(r, p, path, v, e);
    size_t n = json_array_size(v);
    if (n == 0) return wrong(r, path, "is an empty list", e);
    bool filters = json_is_object(json_array_get(v, 0)) && depth == 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(below, sizeof below, "%s.%zu", path, i);
        const json_t *item = json_array_get(v, i);
        if (filters != json_is_object(item)) return wrong(r, below, "does not fit the others", e);
        TRY(filters ? check_setting(r, p, below, item, 0, e) : check_number(r, p, below, item, e));
    }
    return ST_OK;
}

/* ---- keys ---- */

static status unknown_key(const merge_recipe *r, const char *path, const char *key,
                          const char *const *known, int n, err *e) {
    int near = text_nearest(key, known, n);
    if (strcmp(key, "slices") == 0 || strcmp(key, "modules") == 0)
        err_set(e, ST_USAGE, "%s: models made of slices of others are not made here", key);
    else
        err_set(e, ST_USAGE, "a merge has no key %s", path);
    if (near >= 0) err_hint(e, "did you mean %s?", known[near]);
    return err_where(e, "%s", origin(r, path));
}

static status check_parameter(const merge_recipe *r, const char *path, const char *name,
                              const json_t *v, bool of_model, err *e) {
    const parameter *p = find_parameter(name);
    char text[128];
    if (!(p->methods & kind_of(r->method))) {
        snprintf(text, sizeof text, "does nothing with method %s", merge_method_words[r->method]);
        return wrong(r, path, text, e);
    }
    if (of_model && !p->of_model) return wrong(r, path, "is no parameter of one model", e);
    return check_setting(r, p, path, v, 0, e);
}

/* The keys of an object: parameters, and the words of `others` (ended by NULL). */
static status check_keys(const merge_recipe *r, const char *prefix, const json_t *o, bool of_model,
                         const char *const *others, err *e) {
    const char *known[ARRAY_LEN(parameters) + 16], *key;
    json_t *v;
    int n = 0;
    for (int i = 0; i < ARRAY_LEN(parameters); i++) known[n++] = parameters[i].name;
    for (; *others; others++) known[n++] = *others;
    json_object_foreach((json_t *)o, key, v) {
        char path[YAML_MAX_PATH];
        int i = 0;
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        while (i < n && strcmp(known[i], key) != 0) i++;
        if (i == n) return unknown_key(r, path, key, known, n, e);
        if (i < ARRAY_LEN(parameters)) TRY(check_parameter(r, path, key, v, of_model, e));
    }
    return ST_OK;
}

static status check_group(const merge_recipe *r, const char *prefix, const json_t *o, bool of_model,
                          err *e) {
    static const char *const none[] = {NULL};
    if (!o || json_is_null(o)) return ST_OK;
    if (!json_is_object(o)) return wrong(r, prefix, "must hold names and values", e);
    return check_keys(r, prefix, o, of_model, none, e);
}

/* ---- models ---- */

static status add_member(merge_recipe *r, const char *where, const char *path, const json_t *own,
                         err *e) {
    if (r->n == MERGE_MAX_MODELS) return wrong(r, where, "is one model too many", e);
    r->member[r->n++] = (merge_member){.path = path, .where = where, .own = own};
    return ST_OK;
}

static status no_checkpoints(const merge_recipe *r, const char *where, const char *run, int n,
                             err *e) {
    err_set(e, ST_USAGE, "%s has %d checkpoint%s, fewer than %s asks for", run, n, text_s(n),
            where);
    return err_where(e, "%s", origin(r, where));
}

/* `checkpoints: 3`, the newest three of a run, or a list of steps. */
static status add_checkpoints(merge_recipe *r, const char *where, const char *run,
                              const json_t *own, err *e) {
    const json_t *which = json_object_get(own, "checkpoints");
    const char *key = arena_printf(r->a, "%s.checkpoints", where);
    int64_t *steps, first;
    int n;
    TRY(checkpoint_list(r->a, run, &steps, &n, e));
    if (json_is_integer(which) && json_integer_value(which) > 0) {
        first = n - json_integer_value(which);
        if (first < 0) return no_checkpoints(r, key, run, n, e);
        for (int64_t i = first; i < n; i++)
            TRY(add_member(r, where, checkpoint_path(r->a, run, steps[i]), own, e));
        return ST_OK;
    }
    if (!json_is_array(which) || json_array_size(which) == 0)
        return wrong(r, key, "must be a number of checkpoints, or a list of steps", e);
    for (size_t i = 0; i < json_array_size(which); i++) {
        const json_t *step = json_array_get(which, i);
        if (!json_is_integer(step)) return wrong(r, key, "must hold steps", e);
        const char *dir = checkpoint_path(r->a, run, json_integer_value(step));
        if (!file_is_dir(dir)) {
            err_set(e, ST_USAGE, "there is no checkpoint %s", dir);
            return err_where(e, "%s", origin(r, key));
        }
        TRY(add_member(r, where, dir, own, e));
    }
    return ST_OK;
}

static status read_member(merge_recipe *r, size_t i, const json_t *v, err *e) {
    static const char *const keys[] = {"model", "parameters", "checkpoints", NULL};
    const char *where = arena_printf(r->a, "models.%zu", i);
    if (json_is_string(v)) return add_member(r, where, json_string_value(v), NULL, e);
    if (!json_is_object(v))
        return wrong(r, where, "must be a model's path, or have the key model", e);
    const char *path = json_string_value(json_object_get(v, "model"));
    if (!path) return wrong(r, where, "has no model", e);
    TRY(check_keys(r, where, v, true, keys, e));
    const char *group = arena_printf(r->a, "%s.parameters", where);
    TRY(check_group(r, group, json_object_get(v, "parameters"), true, e));
    if (json_object_get(v, "checkpoints")) return add_checkpoints(r, where, path, v, e);
    return add_member(r, where, path, v, e);
}

/* Of two names for one key the one that is there. */
static const json_t *either(const merge_recipe *r, const char *a, const char *b) {
    const json_t *v = json_object_get(r->config, a);
    return v ? v : json_object_get(r->config, b);
}

static status read_models(merge_recipe *r, err *e) {
    const json_t *models = json_object_get(r->config, "models");
    if (!json_is_array(models) || json_array_size(models) == 0)
        return wrong(r, "models", "must be a list of models", e);
    for (size_t i = 0; i < json_array_size(models); i++)
        TRY(read_member(r, i, json_array_get(models, i), e));
    return ST_OK;
}

static char *real_path(const merge_recipe *r, const char *path) {
    char *dir = NULL;
    err none;
    return realpath(checkpoint_resolve(r->a, path, &dir, &none) == ST_OK ? dir : path, NULL);
}

/* One model has several names: a run and its newest checkpoint, with a slash at the end or without, by a link. */
static bool is_same(const merge_recipe *r, const char *a, const char *b) {
    if (strcmp(a, b) == 0) return true;
    char *x = real_path(r, a), *y = real_path(r, b);
    bool same = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

/* mergekit's configs list the base among the models: it has no difference from itself. */
static void leave_out_base(merge_recipe *r) {
    int kept = 0;
    for (int i = 0; i < r->n; i++)
        if (!is_same(r, r->member[i].path, r->base)) r->member[kept++] = r->member[i];
    r->n = kept;
}

static status order_slerp(merge_recipe *r, err *e) {
    if (r->n != 2) return wrong(r, "models", "must be two for slerp", e);
    if (!r->base || is_same(r, r->base, r->member[0].path)) return ST_OK;
    if (!is_same(r, r->base, r->member[1].path))
        return wrong(r, "base", "must be one of the two models of slerp", e);
    merge_member first = r->member[0];
    r->member[0] = r->member[1];
    r->member[1] = first;
    return ST_OK;
}

static status check_models(merge_recipe *r, err *e) {
    if (r->method == MERGE_SLERP) return order_slerp(r, e);
    if (!merge_uses_base(r->method))
        return r->n >= 2 ? ST_OK : wrong(r, "models", "must be two at least", e);
    if (!r->base) {
        wrong(r, "method", "needs a base", e);
        return err_hint(e, "add `base: FOLDER`, the model that the others were made from");
    }
    leave_out_base(r);
    return r->n ? ST_OK : wrong(r, "models", "has nothing but the base", e);
}

/* ---- the rest ---- */

static status read_method(merge_recipe *r, err *e) {
    static const char METHODS[] =
        "use linear, soup, slerp, task_arithmetic, ties, dare_linear or dare_ties";
    const char *word = json_string_value(either(r, "method", "merge_method"));
    if (!word) {
        (void)wrong(r, "method", "is missing", e);
        return err_hint(e, "a config of a merge has method and models: %s", METHODS);
    }
    for (int i = 0; i < MERGE_METHOD_COUNT; i++) {
        r->method = (merge_method)i;
        if (strcmp(merge_method_words[i], word) == 0) return ST_OK;
    }
    err_set(e, ST_USAGE, "there is no method of merging %s", word);
    err_hint(e, "%s", METHODS);
    return err_where(e, "%s", origin(r, "method"));
}

static status read_dtype(merge_recipe *r, err *e) {
    static const char *const long_words[] = {"float32", "float16", "bfloat16"};
    static const dtype formats[] = {DT_F32, DT_F16, DT_BF16};
    const json_t *v = either(r, "out_dtype", "dtype");
    const char *word = json_string_value(v);
    r->dt = DT_COUNT;
    if (!v || json_is_null(v)) return ST_OK;
    for (int i = 0; word && i < ARRAY_LEN(formats); i++) {
        dtype dt = DT_COUNT;
        if (strcmp(word, long_words[i]) == 0 || (dtype_parse(word, &dt) && dt == formats[i])) {
            r->dt = formats[i];
            return ST_OK;
        }
    }
    return wrong(r, "dtype", "must be f32, f16 or bf16", e);
}

/* `base` and `union` are words of mergekit; a union would make new rows, which a merge does not. */
static status read_tokenizer_source(merge_recipe *r, err *e) {
    const json_t *v = json_object_get(r->config, "tokenizer_source");
    r->dress = json_string_value(v);
    if (!v || json_is_null(v)) return ST_OK;
    if (r->dress && strcmp(r->dress, "base") == 0) r->dress = r->base ? r->base : r->member[0].path;
    const char *named = r->dress;
    for (int i = 0; named && i <= r->n; i++) {
        r->dress = i < r->n ? r->member[i].path : r->base;
        if (r->dress && is_same(r, named, r->dress)) return ST_OK;
    }
    return wrong(r, "tokenizer_source", "must be the path of one of the models", e);
}

static status read_seed(merge_recipe *r, err *e) {
    const json_t *v = either(r, "seed", "random_seed");
    if (v && (!json_is_integer(v) || json_integer_value(v) < 0))
        return wrong(r, "seed", "must be a whole number from 0", e);
    r->seed = (uint64_t)json_integer_value(v);
    return ST_OK;
}

/* A parameter that has no value that would serve all. */
static status check_given(const merge_recipe *r, err *e) {
    double ignored;
    const json_t *group = json_object_get(r->config, "parameters");
    const json_t *t =
        json_object_get(group, "t") ? json_object_get(group, "t") : json_object_get(r->config, "t");
    if (r->method != MERGE_SLERP || (t && value_at(t, "", 0, &ignored))) return ST_OK;
    if (t) return wrong(r, "t", "has no value for tensors that no filter names", e);
    wrong(r, "t", "is missing", e);
    return err_hint(e, "add `t: 0.5`: 0 is the first model, 1 the second");
}

status merge_recipe_read(merge_recipe *r, arena *a, const json_t *config, const json_t *origins,
                         const char *file, err *e) {
    static const char *const keys[] = {
        "method", "merge_method", "base", "base_model",  "models",           "parameters",
        "dtype",  "out_dtype",    "seed", "random_seed", "tokenizer_source", NULL};
    *r = (merge_recipe){.a = a, .config = config, .origins = origins, .file = file};
    if (!json_is_object(config)) {
        err_set(e, ST_USAGE, "%s holds no config of a merge", file);
        return err_where(e, "%s", file);
    }
    TRY(read_method(r, e));
    TRY(check_keys(r, "", config, false, keys, e));
    TRY(check_group(r, "parameters", json_object_get(config, "parameters"), false, e));
    const json_t *base = either(r, "base", "base_model");
    r->base = json_string_value(base);
    if (base && !r->base) return wrong(r, "base", "must be a model's path", e);
    TRY(read_models(r, e));
    TRY(check_models(r, e));
    TRY(read_tokenizer_source(r, e));
    TRY(read_dtype(r, e));
    TRY(read_seed(r, e));
    return check_given(r, e);
}

/* ---- one tensor ---- */

static double find_value(const merge_recipe *r, const json_t *own, const char *name,
                         const char *tensor, double place) {
    const json_t *places[] = {own, json_object_get(own, "parameters"), r->config,
                              json_object_get(r->config, "parameters")};
    double value;
    for (int i = 0; i < ARRAY_LEN(places); i++) {
        const json_t *v = json_object_get(places[i], name);
        if (v && value_at(v, tensor, place, &value)) return value;
    }
    return fallback_of(find_parameter(name), r->method);
}

void merge_recipe_fill(const merge_recipe *r, double place, merge_tensor *m) {
    m->method = r->method;
    m->seed = r->seed;
    m->n = r->n;
    for (int i = 0; i < r->n; i++) {
        const json_t *own = r->member[i].own;
        m->in[i].weight = find_value(r, own, "weight", m->name, place);
        m->in[i].density = find_value(r, own, "density", m->name, place);
    }
    m->t = r->method == MERGE_SLERP ? find_value(r, NULL, "t", m->name, place) : 0;
    m->lambda = find_value(r, NULL, "lambda", m->name, place);
    m->normalize = find_value(r, NULL, "normalize", m->name, place) != 0;
    m->rescale = find_value(r, NULL, "rescale", m->name, place) != 0;
}
