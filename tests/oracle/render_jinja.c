/* Renders templates for compare_jinja.py: each line of standard input is
 *   {"template": "...", "context": {...}, "spans": bool}
 * and gives a line {"text", "spans"} or {"error", "where"}. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jinja/jinja.h"

static json_t *failure(const err *e) {
    return json_pack("{s:s, s:s}", "error", e->message, "where", e->where);
}

static json_t *success(const strbuf *out, const jinja_spans *spans) {
    json_t *list = json_array(), *reply = json_object();
    for (int64_t i = 0; i < spans->n; i++) {
        json_array_append_new(list, json_pack("[I, I]", (json_int_t)spans->span[i].start,
                                              (json_int_t)spans->span[i].end));
    }
    json_object_set_new(reply, "text", json_stringn(strbuf_cstr(out), out->len));
    json_object_set_new(reply, "spans", list);
    return reply;
}

static json_t *render(const json_t *job) {
    const json_t *text = json_object_get(job, "template");
    time_t now = time(NULL);
    jinja_limits limits = {.now = localtime(&now)};
    jinja_template *t = NULL;
    jinja_spans spans = {0};
    strbuf out = {0};
    err e = {0};
    status st = jinja_parse(&t, json_string_value(text), json_string_length(text), &e);
    bool marks = json_is_true(json_object_get(job, "spans"));
    if (st == ST_OK) {
        st = jinja_render(t, json_object_get(job, "context"), &limits, &out, marks ? &spans : NULL,
                          &e);
    }
    json_t *reply = st == ST_OK ? success(&out, &spans) : failure(&e);
    jinja_free(t);
    strbuf_free(&out);
    free(spans.span);
    return reply;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_t *job = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        json_t *reply = job ? render(job) : json_pack("{s:s}", "error", "no JSON");
        char *text = json_dumps(reply, JSON_COMPACT);
        puts(text ? text : "{\"error\": \"the text is no UTF-8\"}");
        fflush(stdout);
        free(text);
        json_decref(reply);
        json_decref(job);
    }
    free(line);
    return 0;
}
