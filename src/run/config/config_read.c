/* JSON values to fields of the config: types, suffixes, ranges, lists. Every error names the key,
 * what stands there and what may stand there. */
#include "run/config/config_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "base/yaml.h"

static status wrong_value(config *c, const option *o, const char *path, const json_t *value,
                          err *e) {
    char want[256];
    strbuf have = {0};
    config_describe(o, want, sizeof want);
    json_format(&have, value, 0);
    config_error(c, e, path, "'%s' must be %s, not %.200s", path, want, strbuf_cstr(&have));
    strbuf_free(&have);
    bool has_default = strcmp(o->fallback, "null") != 0;
    err_hint(e, "it means: %s%s%s", o->help, has_default ? "; the default is " : "",
             has_default ? o->fallback : "");
    return ST_USAGE;
}

static bool int_of(const json_t *value, int64_t *out) {
    if (json_is_string(value)) return text_parse_int(json_string_value(value), out);
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    double v = json_real_value(value);
    if (!json_is_real(value) || v != rint(v) || fabs(v) > 0x1p53) return false;
    *out = (int64_t)v;
    return true;
}

static bool read_int(const option *o, const json_t *value, int64_t *out) {
    return int_of(value, out) && (double)*out >= o->lo && (double)*out <= o->hi;
}

static bool read_num(const option *o, const json_t *value, double *out) {
    bool ok = json_is_number(value);
    if (ok)
        *out = json_number_value(value);
    else
        ok = json_is_string(value) && text_parse_number(json_string_value(value), out);
    return ok && *out >= o->lo && *out <= o->hi;
}

static bool read_choice(const option *o, const json_t *value, int *out) {
    const char *word = json_string_value(value);
    for (int i = 0; word && o->set[i]; i++) {
        *out = i;
        if (strcmp(word, o->set[i]) == 0) return true;
    }
    return false;
}

static bool read_auto(const option *o, const json_t *value, int64_t *out) {
    const char *word = json_string_value(value);
    *out = CONFIG_AUTO;
    return (word && strcmp(word, "auto") == 0) || read_int(o, value, out);
}

/* The members of one list element that items of `owner` declare. */
static status read_items(config *c, const char *owner, void *element, const char *path,
                         const json_t *value, err *e) {
    for (int i = 0; i < config_n_items; i++) {
        const option *o = &config_items[i];
        if (strcmp(o->owner, owner) != 0) continue;
        char member[512];
        snprintf(member, sizeof member, "%s.%s", path, o->path);
        TRY(config_read_value(c, o, element, member, config_walk(value, o->path), e));
    }
    return ST_OK;
}

static status read_source(config *c, const option *o, config_source *source, const char *path,
                          const json_t *value, err *e) {
    TRY(read_items(c, o->path, source, path, value, e));
    if (source->path) return ST_OK;
    return config_error(c, e, path, "'%s' has no path; write {path: SHARDS, weight: 1}", path);
}

/* The rest of a stage: each option it changes is read into a scratch config, which checks it, and is kept as all
 * values are written, so that 1Ki and 1024 do not differ. */
static status read_changes(config *c, config_stage *stage, const char *path, const json_t *value,
                           err *e) {
    config scratch = {.memory = c->memory, .origins = c->origins};
    stage->changes = json_deep_copy(value);
    json_object_del(stage->changes, "name");
    json_object_del(stage->changes, "until");
    for (int i = 0; i < config_n_options; i++) {
        const option *o = &config_options[i];
        const json_t *change = config_walk(value, o->path);
        if (!change || !config_stage_may_change(o->path)) continue;
        char key[600];
        snprintf(key, sizeof key, "%s.%s", path, o->path);
        TRY(config_read_value(&scratch, o, &scratch, key, change, e));
        config_write_value(o, &scratch, stage->changes);
    }
    return ST_OK;
}

static status read_stage(config *c, config_stage *stage, const char *path, const json_t *value,
                         err *e) {
    TRY(read_items(c, "stages", stage, path, value, e));
    if (!stage->name) return config_error(c, e, path, "'%s' has no name", path);
    return read_changes(c, stage, path, value, e);
}

static bool read_text(config *c, const json_t *value, const char **out) {
    if (!json_is_string(value)) return false;
    *out = arena_strdup(c->memory, json_string_value(value));
    return true;
}

/* After a wrong word in a choice the nearest right one is the hint; but one letter of three is no ground to take a gpu
 * for a cpu. */
static status wrong_choice(config *c, const option *o, const char *path, const json_t *value,
                           err *e) {
    wrong_value(c, o, path, value, e);
    int n = 0;
    while (o->set[n]) n++;
    const char *word = json_string_value(value);
    int nearest = word && strlen(word) > 3 ? text_nearest(word, o->set, n) : -1;
    if (nearest >= 0) err_hint(e, "did you mean '%s'?", o->set[nearest]);
    return ST_USAGE;
}

json_t *config_fallback(const option *o) {
    json_t *value;
    err e;
    status st = yaml_parse(&value, NULL, "default", o->fallback, strlen(o->fallback), &e);
    CHECK(st == ST_OK, "default of %s: %s", o->path, e.message);
    return value;
}

static status read_given(config *c, const option *o, void *field, const char *path,
                         const json_t *value, err *e);

/* A text alone stands for a list of one. An error names the element where that is an object, else
 * the whole list. */
static status read_list(config *c, const option *o, void *field, const char *path,
                        const json_t *value, err *e) {
    option element;
    size_t bytes = config_elements(o, &element);
    bool single = o->type == OPTION_TEXTS && json_is_string(value);
    bool objects = element.type == OPTION_SOURCE || element.type == OPTION_STAGE;
    if (!single && !json_is_array(value)) return wrong_value(c, o, path, value, e);
    option_list list = {.n = single ? 1 : (int)json_array_size(value)};
    list.items = ARENA_ARRAY(c->memory, char, bytes *(size_t)list.n);
    memcpy(field, &list, sizeof list);
    for (int i = 0; i < list.n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%s.%d", path, i);
        const json_t *item = single ? value : json_array_get(value, (size_t)i);
        status st = read_given(c, &element, (char *)list.items + bytes * (size_t)i, name, item, e);
        if (st != ST_OK) return objects ? st : wrong_value(c, o, path, value, e);
    }
    return ST_OK;
}

static status read_given(config *c, const option *o, void *field, const char *path,
                         const json_t *value, err *e) {
    bool ok = false;
    switch (o->type) {
        case OPTION_BOOL:
            *(bool *)field = json_is_true(value);
            ok = json_is_boolean(value);
            break;
        case OPTION_INT: ok = read_int(o, value, field); break;
        case OPTION_NUM: ok = read_num(o, value, field); break;
        case OPTION_TEXT: ok = read_text(c, value, field); break;
        case OPTION_CHOICE:
            return read_choice(o, value, field) ? ST_OK : wrong_choice(c, o, path, value, e);
        case OPTION_AUTO: ok = read_auto(o, value, field); break;
        case OPTION_SOURCE: return read_source(c, o, field, path, value, e);
        case OPTION_STAGE: return read_stage(c, field, path, value, e);
        default: return read_list(c, o, field, path, value, e); /* all others are lists */
    }
    return ok ? ST_OK : wrong_value(c, o, path, value, e);
}

status config_read_value(config *c, const option *o, void *base, const char *path,
                         const json_t *value, err *e) {
    void *field = (char *)base + o->offset;
    if (value && !json_is_null(value)) return read_given(c, o, field, path, value, e);
    json_t *fallback = config_fallback(o);
    status st = ST_OK;
    if (!json_is_null(fallback)) st = read_given(c, o, field, path, fallback, e);
    json_decref(fallback);
    return st;
}
