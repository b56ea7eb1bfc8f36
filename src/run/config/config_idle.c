/* Keys that the user gave and that do nothing: those of another schedule, a patience without
 * validation. The rows ONLY_WITH of options.def say on which other option a key depends. Such a key
 * is no error, as configs are edited and overridden in parts; it is told by name, once.
 *
 * Not told: a default, or a value that switches something off (0, false, empty), which asks for
 * nothing; and keys of a file whose other option was changed on the command line, on purpose. */
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "run/config/config_int.h"

typedef struct dependence {
    const char *key, *other; /* "a", or "a or b": one of these options is enough */
    const char *words;       /* of `other`; "": it must be set; ">1": it must be above 1 */
} dependence;

#define SET ""
#define SEVERAL ">1"
#define ONLY_WITH(key, other, when) {#key, #other, when},
static const dependence DEPENDENCES[] = {
#include "run/config/options.def"
};

/* The configs that hold one after the other: those of the stages, or the only one. */
typedef struct in_force {
    config *const *each;
    int n;
} in_force;

static bool is_nothing(const json_t *v) {
    bool empty = (json_is_array(v) && json_array_size(v) == 0) || json_is_null(v);
    return empty || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
}

static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && strncmp(p, word, n) == 0) return true;
        p += len;
    }
    return false;
}

enum { PATH_BYTES = 64 };

/* Takes the next option off "a or b". False: there is none left. */
static bool next_option(const char **others, char path[PATH_BYTES]) {
    static const char OR[] = " or ";
    const char *end = strstr(*others, OR);
    size_t n = end ? (size_t)(end - *others) : strlen(*others);
    snprintf(path, PATH_BYTES, "%.*s", (int)n, *others);
    *others += end ? n + sizeof OR - 1 : n;
    return n > 0;
}

static bool is_as_said(const config *c, const char *other, const char *words) {
    json_t *v = config_get_json(c, other);
    const char *word = json_string_value(v);
    bool ok = *words == '\0'                ? !is_nothing(v)
              : strcmp(words, SEVERAL) == 0 ? json_number_value(v) > 1
                                            : word && has_word(words, word);
    json_decref(v);
    return ok;
}

static bool holds(const dependence *d, const config *c) {
    char path[PATH_BYTES];
    for (const char *others = d->other; next_option(&others, path);)
        if (is_as_said(c, path, d->words)) return true;
    return false;
}

/* Whether the value asks for something that is not so anyway. */
static bool asks(const config *c, const char *key) {
    json_t *v = config_get_json(c, key), *usual = config_default(key);
    bool numbers = json_is_number(v) && json_is_number(usual);
    bool same = numbers ? json_number_value(v) == json_number_value(usual) : json_equal(v, usual);
    bool nothing = is_nothing(v);
    json_decref(v);
    json_decref(usual);
    return !same && !nothing;
}

/* What is not in bf16 is multiplied in fp32, and a run writes so: nothing is asked for that is not so. */
static bool is_so_anyway(const config *c, const dependence *d) {
    return strcmp(d->key, "train.precision.arithmetic") == 0 &&
           c->train.precision.arithmetic == CONFIG_ARITHMETIC_FP32;
}

static bool is_overridden(const config *c, const char *path) {
    return strcmp(config_where(c, path), CONFIG_COMMAND_LINE) == 0;
}

static bool other_is_overridden(const config *c, const dependence *d) {
    char path[PATH_BYTES];
    for (const char *others = d->other; next_option(&others, path);)
        if (is_overridden(c, path)) return true;
    return false;
}

static void note(config *c, const dependence *d, const config *last, const char *path) {
    const char *where = config_where(c, path);
    json_t *v = config_get_json(last, d->other);
    if (*d->words == '\0')
        config_add_note(c, "%s (%s) does nothing without %s", path, where, d->other);
    else if (json_is_string(v))
        config_add_note(c, "%s (%s) does nothing where %s is %s", path, where, d->other,
                        json_string_value(v));
    else
        config_add_note(c, "%s (%s) does nothing unless %s is above 1", path, where, d->other);
    json_decref(v);
}

/* The key as given for the whole run (stage -1), or by a stage, from which on it holds. */
static void look_at(config *c, const in_force *f, const dependence *d, int stage) {
    int first = stage < 0 ? 0 : stage;
    char path[256] = "";
    if (stage >= 0) snprintf(path, sizeof path, "stages.%d.", stage);
    strncat(path, d->key, sizeof path - strlen(path) - 1);
    if (!json_object_get(c->origins, path) || !asks(f->each[first], d->key)) return;
    if (other_is_overridden(c, d) && !is_overridden(c, path)) return;
    for (int i = first; i < f->n; i++)
        if (holds(d, f->each[i]) || is_so_anyway(f->each[i], d)) return;
    note(c, d, f->each[f->n - 1], path);
}

/* Keys of published config.json files that change nothing of the model, in `model:`. */
static void look_at_model(config *c) {
    json_t *keys = model_config_idle_keys(c->model), *key;
    size_t i;
    json_array_foreach(keys, i, key) {
        const char *path = arena_printf(c->memory, "model.%s", json_string_value(key));
        config_add_note(c, "%s (%s) does nothing: it changes no weight and no output", path,
                        config_where(c, path));
    }
    json_decref(keys);
}

status config_note_idle(config *c, err *e) {
    status st = ST_OK;
    int n = c->stages.n;
    config **each = ARENA_ARRAY(c->memory, config *, n + 1);
    each[0] = c;
    for (int i = 0; i < n && st == ST_OK; i++) st = config_of_stage(c, i, &each[i], e);
    if (st == ST_OK) {
        in_force f = {each, n ? n : 1};
        for (int i = 0; i < ARRAY_LEN(DEPENDENCES); i++)
            for (int stage = -1; stage < n; stage++) look_at(c, &f, &DEPENDENCES[i], stage);
        look_at_model(c);
    }
    for (int i = 0; i < n; i++)
        if (each[i] != c) config_free(each[i]);
    return st;
}
