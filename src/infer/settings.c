#include "infer/settings.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAX_ENDS = 1024 };

void generation_settings_free(generation_settings *s) {
    tok_ids_free(&s->end);
}

void generation_add_end(tok_ids *end, int32_t id) {
    for (int64_t i = 0; i < end->n; i++)
        if (end->id[i] == id) return;
    if (id >= 0) tok_ids_push(end, id);
}

static status wrong(const char *key, const char *want, err *e) {
    return err_at(e, ST_FORMAT, key, "%s is not %s", key, want);
}

static bool is_null(const json_t *j) {
    return !j || json_is_null(j);
}

/* ---- members ---- */

static status add_end(generation_settings *s, const json_t *j, err *e) {
    json_int_t id = json_integer_value(j);
    if (!json_is_integer(j) || id < -1 || id > INT32_MAX)
        return wrong("eos_token_id", "a token id or a list of them", e);
    generation_add_end(&s->end, (int32_t)id);
    return ST_OK;
}

static status read_ends(generation_settings *s, const json_t *j, err *e) {
    if (is_null(j)) return ST_OK;
    if (!json_is_array(j)) return add_end(s, j, e);
    if (json_array_size(j) > MAX_ENDS) return wrong("eos_token_id", "a list of up to 1024 ids", e);
    for (size_t i = 0; i < json_array_size(j); i++) TRY(add_end(s, json_array_get(j, i), e));
    return ST_OK;
}

static status read_number(const json_t *o, const char *key, double lo, double hi, double *out,
                          err *e) {
    const json_t *j = json_object_get(o, key);
    if (is_null(j)) return ST_OK;
    double x = json_number_value(j);
    if (!json_is_number(j) || !(x >= lo && x <= hi)) return wrong(key, "a number in its range", e);
    *out = x;
    return ST_OK;
}

/* The values of transformers' GenerationConfig are the defaults. */
static status read_sampling(generation_settings *s, const json_t *o, err *e) {
    double top_k = 50, ngram = 0;
    const json_t *flag = json_object_get(o, "do_sample");
    if (!is_null(flag) && !json_is_boolean(flag)) return wrong("do_sample", "true or false", e);
    s->samples = json_is_true(flag);
    s->sample = (sample_options){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    TRY(read_number(o, "temperature", 0, 100, &s->sample.temperature, e));
    TRY(read_number(o, "top_k", 0, INT32_MAX, &top_k, e));
    TRY(read_number(o, "top_p", 0, 1, &s->sample.top_p, e));
    TRY(read_number(o, "min_p", 0, 1, &s->sample.min_p, e));
    TRY(read_number(o, "repetition_penalty", 0.01, 100, &s->sample.repetition_penalty, e));
    TRY(read_number(o, "no_repeat_ngram_size", 0, INT32_MAX, &ngram, e));
    s->sample.no_repeat_ngram = (int)ngram;
    s->sample.top_k = (int)top_k;
    return ST_OK;
}

/* ---- files ---- */

static status parse_object(const char *text, json_t **out, err *e) {
    json_error_t je;
    *out = json_loads(text, 0, &je);
    if (json_is_object(*out)) return ST_OK;
    err_set(e, ST_FORMAT, "not a JSON object%s%s", *out ? "" : ": ", *out ? "" : je.text);
    json_decref(*out);
    *out = NULL;
    return ST_FORMAT;
}

static status parse_one(generation_settings *s, const char *text, bool sampling, err *e) {
    json_t *o;
    TRY(parse_object(text, &o, e));
    status st = sampling ? read_sampling(s, o, e) : ST_OK;
    if (st == ST_OK) st = read_ends(s, json_object_get(o, "eos_token_id"), e);
    json_decref(o);
    return st;
}

status generation_settings_parse(generation_settings *s, const char *generation_config,
                                 const char *config, err *e) {
    *s = (generation_settings){0};
    status st = ST_OK;
    if (generation_config) st = parse_one(s, generation_config, true, e);
    if (st != ST_OK) {
        err_context(e, "generation_config.json");
    } else if (config && s->end.n == 0) {
        st = parse_one(s, config, false, e);
        if (st != ST_OK) err_context(e, "config.json");
    }
    if (st != ST_OK) generation_settings_free(s);
    return st;
}

/* The text of a file in a folder; NULL when there is none. */
static status read_text(const char *dir, const char *name, char **text, err *e) {
    arena *a = arena_new("settings path");
    const char *path = path_join(a, dir, name);
    size_t len;
    *text = NULL;
    status st =
        file_exists(path) ? file_read_part(path, FILE_PART_MAX_BYTES, text, &len, e) : ST_OK;
    arena_free(a);
    return st;
}

status generation_settings_read(generation_settings *s, const char *dir, err *e) {
    char *generation_config = NULL, *config = NULL;
    *s = (generation_settings){0};
    if (!file_is_dir(dir)) return ST_OK;
    status st = read_text(dir, "generation_config.json", &generation_config, e);
    if (st == ST_OK) st = read_text(dir, "config.json", &config, e);
    if (st == ST_OK) {
        st = generation_settings_parse(s, generation_config, config, e);
        if (st != ST_OK) err_where(e, "%s", dir);
    }
    free(generation_config);
    free(config);
    return st;
}
