/* The keys of rotary scaling in config.json: read, checked against the rest, written (see rope.h).
 * Every kind has its own fields; one that belongs to another kind stops, since transformers would
 * ignore it and its author would not know. */
#include "model/rope.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/config_keys.h"

enum { FIELDS_MAX = 512 }; /* numbers in a list: half of the widest head */

/* What transformers calls each kind ("su" is an old name of longrope), its fields beside those of all
 * kinds, and those without which it says nothing. In some kinds factor follows from two lengths. */
static const struct {
    const char *name, *fields, *needed;
} kinds[] = {
    [ROPE_PLAIN] = {"default", "", ""},
    [ROPE_LINEAR] = {"linear", "factor", "factor"},
    [ROPE_DYNAMIC] = {"dynamic", "factor", "factor"},
    [ROPE_DOUBLING] = {"doubling", "", "original_max_position_embeddings"},
    [ROPE_LLAMA3] = {"llama3", "factor low_freq_factor high_freq_factor",
                     "factor low_freq_factor high_freq_factor"},
    [ROPE_YARN] = {"yarn",
                   "factor beta_fast beta_slow mscale mscale_all_dim attention_factor truncate",
                   ""},
    [ROPE_LONGROPE] = {"longrope", "factor attention_factor short_factor long_factor",
                       "short_factor long_factor"},
};

static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    {"factor", offsetof(rope_scaling, factor)},
    {"low_freq_factor", offsetof(rope_scaling, low_freq_factor)},
    {"high_freq_factor", offsetof(rope_scaling, high_freq_factor)},
    {"beta_fast", offsetof(rope_scaling, beta_fast)},
    {"beta_slow", offsetof(rope_scaling, beta_slow)},
    {"mscale", offsetof(rope_scaling, mscale)},
    {"mscale_all_dim", offsetof(rope_scaling, mscale_all_dim)},
    {"attention_factor", offsetof(rope_scaling, attention_factor)},
};

/* Fields of all kinds. original_max_position_embeddings stands beside rope_scaling in some files,
 * whatever its kind; "finetuned" is a remark of early YaRN models. */
static const char common[] =
    "rope_type type rope_theta partial_rotary_factor original_max_position_embeddings finetuned";

static status at_field(err *e, const char *key, const char *field) {
    err_where(e, "model.%s.%s", key, field);
    return ST_USAGE;
}

static status read_kind(const json_t *o, const char *key, rope_kind *kind, err *e) {
    const json_t *v = json_object_get(o, "rope_type");
    const char *field = "rope_type", *names[ARRAY_LEN(kinds)];
    if (!v || json_is_null(v)) v = json_object_get(o, field = "type");
    *kind = ROPE_PLAIN;
    if (!v || json_is_null(v)) return ST_OK;
    const char *word = json_string_value(v);
    if (word && strcmp(word, "su") == 0) word = "longrope";
    for (int i = 0; i < ARRAY_LEN(kinds); i++) {
        names[i] = kinds[i].name;
        if (!word || strcmp(kinds[i].name, word) != 0) continue;
        *kind = (rope_kind)i;
        return ST_OK;
    }
    int near = word ? text_nearest(word, names, ARRAY_LEN(kinds)) : -1;
    err_set(e, ST_USAGE, "there is no rotary scaling '%s'", word ? word : "(not a string)");
    if (near >= 0)
        err_hint(e, "nearest: %s", names[near]);
    else
        err_hint(e, "use default, linear, dynamic, doubling, llama3, yarn or longrope");
    return at_field(e, key, field);
}

static status read_positive(const json_t *v, const char *key, const char *field, double *out,
                            err *e) {
    double x = json_number_value(v);
    if (json_is_number(v) && x >= 1e-15 && x <= 1e15) { /* so that all angles are finite */
        *out = x;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "%s of %s must be a positive number", field, key);
    err_hint(e, "write it like 8.0");
    return at_field(e, key, field);
}

static status read_list(arena *a, const json_t *v, const char *key, const char *field,
                        const double **out, int *n, err *e) {
    size_t len = json_array_size(v);
    if (!json_is_array(v) || len == 0 || len > FIELDS_MAX) {
        err_set(e, ST_USAGE, "%s of %s must be a list of 1 to %d numbers", field, key, FIELDS_MAX);
        err_hint(e, "one number for each pair of rotated columns");
        return at_field(e, key, field);
    }
    double *list = ARENA_ARRAY(a, double, len);
    for (size_t i = 0; i < len; i++)
        TRY(read_positive(json_array_get(v, i), key, field, &list[i], e));
    if (*n > 0 && *n != (int)len) {
        err_set(e, ST_USAGE, "short_factor and long_factor of %s differ in length", key);
        err_hint(e, "one number in each for each pair of rotated columns");
        return at_field(e, key, field);
    }
    *n = (int)len;
    *out = list;
    return ST_OK;
}

static status unknown_field(const char *key, const char *field, rope_kind kind, err *e) {
    char words[256], *rest = words;
    const char *names[32];
    int n = 0;
    snprintf(words, sizeof words, "%s %s", common, kinds[kind].fields);
    for (char *word; (word = strsep(&rest, " ")) && n < ARRAY_LEN(names);) names[n++] = word;
    int near = text_nearest(field, names, n);
    err_set(e, ST_USAGE, "%s of kind %s has no field '%s'", key, kinds[kind].name, field);
    if (near >= 0)
        err_hint(e, "nearest: %s", names[near]);
    else
        err_hint(e, "leave it out; if it stands in a config.json: model.ignore_keys=[\"%s.%s\"]",
                 key, field);
    return at_field(e, key, field);
}

/* A field that the kind has of its own. */
static status read_own(arena *a, const json_t *v, const char *key, const char *field,
                       rope_scaling *s, err *e) {
    for (int i = 0; i < ARRAY_LEN(numbers); i++) {
        if (strcmp(numbers[i].name, field) != 0) continue;
        double *member = (double *)((char *)s + numbers[i].offset);
        /* zero says "not given" for YaRN's mscale in published files */
        if (strncmp(field, "mscale", 6) == 0 && json_is_number(v) && json_number_value(v) == 0)
            return ST_OK;
        return read_positive(v, key, field, member, e);
    }
    if (strcmp(field, "short_factor") == 0)
        return read_list(a, v, key, field, &s->short_factor, &s->n_factors, e);
    if (strcmp(field, "long_factor") == 0)
        return read_list(a, v, key, field, &s->long_factor, &s->n_factors, e);
    if (json_is_boolean(v)) {
        s->keep_fractions = json_is_false(v);
        return ST_OK;
    }
    err_set(e, ST_USAGE, "%s of %s must be true or false", field, key);
    return at_field(e, key, field);
}

static status read_common(const json_t *v, const char *key, const char *field, rope_scaling *s,
                          double *theta, double *partial, err *e) {
    if (strcmp(field, "rope_theta") == 0) return read_positive(v, key, field, theta, e);
    if (strcmp(field, "partial_rotary_factor") == 0)
        return read_positive(v, key, field, partial, e);
    if (strcmp(field, "original_max_position_embeddings") != 0) return ST_OK;
    double x = 0;
    TRY(read_positive(v, key, field, &x, e));
    if (x < 1 || x > 0x1p40 || x != floor(x)) {
        err_set(e, ST_USAGE, "%s of %s must be a whole number", field, key);
        return at_field(e, key, field);
    }
    s->original_max_position_embeddings = (int64_t)x;
    return ST_OK;
}

static status check_complete(const json_t *o, const char *key, rope_kind kind, err *e) {
    char missing[64];
    for (const char *needed = kinds[kind].needed; key_next_word(&needed, missing);) {
        const json_t *v = json_object_get(o, missing);
        if (v && !json_is_null(v)) continue;
        err_set(e, ST_USAGE, "%s of kind %s needs %s", key, kinds[kind].name, missing);
        err_hint(e, "add model.%s.%s", key, missing);
        return at_field(e, key, missing);
    }
    return ST_OK;
}

status rope_read(arena *a, const json_t *o, const char *key, rope_scaling *s, double *theta,
                 double *partial, err *e) {
    const char *field;
    json_t *v;
    *s = (rope_scaling){0};
    if (!json_is_object(o)) {
        err_set(e, ST_USAGE, "%s must be an object or null", key);
        err_hint(e, "write it like {rope_type: linear, factor: 2.0}");
        err_where(e, "model.%s", key);
        return ST_USAGE;
    }
    TRY(read_kind(o, key, &s->kind, e));
    json_object_foreach((json_t *)o, field, v) {
        if (json_is_null(v)) continue;
        if (key_in_words(common, field))
            TRY(read_common(v, key, field, s, theta, partial, e));
        else if (key_in_words(kinds[s->kind].fields, field))
            TRY(read_own(a, v, key, field, s, e));
        else
            return unknown_field(key, field, s->kind, e);
    }
    return check_complete(o, key, s->kind, e);
}

/* The base and the number of columns each kind divides by. */
static const char *bad_shape(const rope_spec *s) {
    const rope_scaling *c = &s->scaling;
    double original =
        (double)(c->original_max_position_embeddings > 0 ? c->original_max_position_embeddings
                                                         : s->max_positions);
    if ((c->kind == ROPE_DYNAMIC || c->kind == ROPE_DOUBLING) && s->rotary_dim <= 2)
        return "needs more than 2 rotated columns";
    if (c->kind == ROPE_YARN && s->theta <= 1) return "needs a rope_theta above 1";
    if (c->kind == ROPE_LLAMA3 && c->high_freq_factor <= c->low_freq_factor)
        return "needs a high_freq_factor above low_freq_factor";
    if (c->kind == ROPE_LONGROPE && original <= 1)
        return "needs an original_max_position_embeddings above 1";
    return NULL;
}

status rope_check(const rope_spec *s, err *e) {
    const rope_scaling *c = &s->scaling;
    if (s->rotary_dim < 2 || s->rotary_dim % 2 || s->rotary_dim / 2 > FIELDS_MAX) {
        err_at(e, ST_USAGE, "model.partial_rotary_factor",
               "rotary positions turn pairs, but %d columns of a head are rotated", s->rotary_dim);
        return err_hint(e, "make head_dim * partial_rotary_factor an even number from 2 to %d",
                        2 * FIELDS_MAX);
    }
    const char *bad = bad_shape(s);
    if (bad) {
        err_at(e, ST_USAGE, "model.rope_scaling", "rotary scaling of kind %s %s",
               kinds[c->kind].name, bad);
        return err_hint(e, "compare it with the published config.json of the model");
    }
    if (c->kind == ROPE_LONGROPE && c->n_factors != s->rotary_dim / 2) {
        err_at(e, ST_USAGE, "model.rope_scaling.short_factor",
               "short_factor and long_factor have %d numbers for %d rotated columns", c->n_factors,
               s->rotary_dim);
        return err_hint(e, "one number for each pair: %d", s->rotary_dim / 2);
    }
    return ST_OK;
}

static json_t *list_json(const double *list, int n) {
    json_t *o = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(o, json_f64(list[i]));
    return o;
}

json_t *rope_json(const rope_spec *s, bool with_theta) {
    const rope_scaling *c = &s->scaling;
    if (!with_theta && c->kind == ROPE_PLAIN) return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "rope_type", json_string(kinds[c->kind].name));
    if (with_theta) json_object_set_new(o, "rope_theta", json_f64(s->theta));
    int64_t original = c->original_max_position_embeddings > 0 ? c->original_max_position_embeddings
                                                               : s->max_positions;
    bool needs_original = c->kind == ROPE_DOUBLING || c->kind == ROPE_LLAMA3 ||
                          c->kind == ROPE_YARN || c->kind == ROPE_LONGROPE;
    if (needs_original)
        json_object_set_new(o, "original_max_position_embeddings", json_integer(original));
    for (int i = 0; i < ARRAY_LEN(numbers); i++) {
        double x = *(const double *)((const char *)c + numbers[i].offset);
        if (x > 0) json_object_set_new(o, numbers[i].name, json_f64(x));
    }
    if (c->kind == ROPE_YARN && c->factor == 0) /* transformers asks for it */
        json_object_set_new(o, "factor", json_f64((double)s->max_positions / (double)original));
    if (c->keep_fractions) json_object_set_new(o, "truncate", json_false());
    if (c->kind == ROPE_LONGROPE) {
        /* or transformers 4 would derive it from the two lengths, whatever the factor */
        if (c->attention_factor == 0)
            json_object_set_new(o, "attention_factor", json_f64(rope_amplitude(s)));
        json_object_set_new(o, "short_factor", list_json(c->short_factor, c->n_factors));
        json_object_set_new(o, "long_factor", list_json(c->long_factor, c->n_factors));
    }
    return o;
}
