#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "app/chat/chat.h"
#include "base/text.h"

/* A number that can be set; `offset` is that of a double, int or (u)int64 in generate_request. */
typedef struct setting {
    const char *name;
    enum { SET_DOUBLE, SET_INT, SET_INT64 } kind;
    size_t offset;
    double lo, hi;
} setting;

#define SAMPLE(member) offsetof(generate_request, sample.member)
static const setting settings_table[] = {
    {"temperature", SET_DOUBLE, SAMPLE(temperature), 0, 100},
    {"top_k", SET_INT, SAMPLE(top_k), 0, INT32_MAX},
    {"top_p", SET_DOUBLE, SAMPLE(top_p), 0, 1},
    {"min_p", SET_DOUBLE, SAMPLE(min_p), 0, 1},
    {"repetition_penalty", SET_DOUBLE, SAMPLE(repetition_penalty), 0.01, 100},
    {"no_repeat_ngram", SET_INT, SAMPLE(no_repeat_ngram), 0, INT32_MAX},
    {"seed", SET_INT64, SAMPLE(seed), 0, 9e15},
    {"max_new", SET_INT64, offsetof(generate_request, max_new), 1, 1 << 24},
};
enum { SETTINGS = ARRAY_LEN(settings_table) };

static double get(const generate_request *rq, const setting *s) {
    const char *at = (const char *)rq + s->offset;
    switch (s->kind) {
        case SET_DOUBLE: return *(const double *)(const void *)at;
        case SET_INT: return *(const int *)(const void *)at;
        case SET_INT64: return (double)*(const int64_t *)(const void *)at;
    }
    return 0;
}

static void put(generate_request *rq, const setting *s, double x) {
    void *at = (char *)rq + s->offset;
    switch (s->kind) {
        case SET_DOUBLE: *(double *)at = x; break;
        case SET_INT: *(int *)at = (int)x; break;
        case SET_INT64: *(int64_t *)at = (int64_t)x; break;
    }
}

static status set_number(chat *c, const setting *s, const char *value, err *e) {
    double x;
    int64_t whole;
    bool integer = s->kind != SET_DOUBLE;
    bool ok = text_parse_number(value, &x) && x >= s->lo && x <= s->hi;
    if (ok && (!integer || text_parse_int(value, &whole))) {
        put(&c->options, s, x);
        return ST_OK;
    }
    return err_at(e, ST_USAGE, s->name, "%s must be %s from %.10g to %.10g, not '%s'", s->name,
                  integer ? "an integer" : "a number", s->lo, s->hi, value);
}

/* ---- the command line ---- */

/* The name of the option: with dashes. */
static void option_name(const setting *s, char out[32]) {
    snprintf(out, 32, "%s", s->name);
    for (char *p = out; *p; p++)
        if (*p == '_') *p = '-';
}

status chat_read_options(chat *c, const cli_args *args, const generation_settings *settings,
                         err *e) {
    c->options.max_new = 2048;
    c->options.sample =
        settings->samples
            ? settings->sample
            : (sample_options){
                  .temperature = 0.6, .top_p = 0.9, .min_p = 0.05, .repetition_penalty = 1};
    for (int i = 0; i < SETTINGS; i++) {
        char name[32];
        option_name(&settings_table[i], name);
        const char *value = cli_value(args, name);
        if (!value) continue;
        if (set_number(c, &settings_table[i], value, e) != ST_OK) return err_where(e, "--%s", name);
    }
    c->stop = cli_value(args, "stop");
    c->options.stop = &c->stop;
    c->options.n_stop = c->stop && *c->stop;
    if (cli_has(args, "think") || cli_has(args, "no-think"))
        json_object_set_new(c->talk.variables, "enable_thinking",
                            json_boolean(cli_has(args, "think")));
    return ST_OK;
}

/* ---- /set ---- */

static status set_think(chat *c, const char *value, err *e) {
    bool on = strcmp(value, "on") == 0 || strcmp(value, "true") == 0;
    if (!on && strcmp(value, "off") != 0 && strcmp(value, "false") != 0)
        return err_set(e, ST_USAGE, "think is on or off, not '%s'", value);
    json_object_set_new(c->talk.variables, "enable_thinking", json_boolean(on));
    return ST_OK;
}

static status unknown_key(const char *key, err *e) {
    const char *names[SETTINGS + 1] = {[SETTINGS] = "think"};
    for (int i = 0; i < SETTINGS; i++) names[i] = settings_table[i].name;
    int near = text_nearest(key, names, SETTINGS + 1);
    err_set(e, ST_USAGE, "there is no '%s' to set", key);
    return near < 0 ? err_hint(e, "/help lists the keys")
                    : err_hint(e, "did you mean '%s'?", names[near]);
}

status chat_set(chat *c, const char *text, err *e) {
    char key[64];
    size_t n = strcspn(text, "= ");
    const char *value = text + n;
    value += strspn(value, "= ");
    snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : sizeof key - 1), text);
    for (char *p = key; *p; p++)
        if (*p == '-') *p = '_';
    if (!*value) {
        err_set(e, ST_USAGE, "/set needs a key and a value");
        return err_hint(e, "for example: /set temperature=0.2");
    }
    if (strcmp(key, "think") == 0) return set_think(c, value, e);
    for (int i = 0; i < SETTINGS; i++)
        if (strcmp(key, settings_table[i].name) == 0)
            return set_number(c, &settings_table[i], value, e);
    return unknown_key(key, e);
}

void chat_describe_options(const chat *c, strbuf *out) {
    for (int i = 0; i < SETTINGS; i++)
        strbuf_printf(out, "%s%s %.10g", i ? ", " : "", settings_table[i].name,
                      get(&c->options, &settings_table[i]));
    const json_t *think = json_object_get(c->talk.variables, "enable_thinking");
    if (think) strbuf_printf(out, ", think %s", json_is_true(think) ? "on" : "off");
}
