/* An answer under a response_format is one value. One that must call a tool is written as the chat
 * template has calls, each tool's name with arguments of its own schema. With both, and tool_choice
 * "auto", it is one or the other. */
#include "serve/api/limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* ---- response_format ---- */

typedef struct value_spec {
    bool is_json;
    const json_t *schema; /* NULL: any object */
} value_spec;

static status read_schema(const json_t *holder, value_spec *to, api_fault *f) {
    to->schema = json_object_get(holder, "schema");
    if (json_is_object(to->schema) || json_is_boolean(to->schema)) return ST_OK;
    return err_at(&f->e, ST_USAGE, "response_format",
                  "\"response_format\" has no \"schema\" that is an object");
}

static status read_format(const json_t *v, value_spec *to, api_fault *f) {
    const char *type = json_string_value(json_object_get(v, "type"));
    *to = (value_spec){0};
    if (!v || (type && strcmp(type, "text") == 0)) return ST_OK;
    to->is_json = true;
    if (type && strcmp(type, "json_schema") == 0)
        return read_schema(json_object_get(v, "json_schema"), to, f);
    if (type && strcmp(type, "json_object") == 0) /* with a schema, as llama.cpp has it, or without */
        return json_object_get(v, "schema") ? read_schema(v, to, f) : ST_OK;
    return err_at(&f->e, ST_USAGE, "response_format",
                  "the \"type\" of \"response_format\" must be text, json_object or json_schema");
}

/* ---- calls ---- */

typedef struct forms {
    grammar_form *form;
    int n;
    grammar_part *part; /* three of each form */
    strbuf *text;       /* two of each form */
    json_t *no_arguments;
} forms;

static forms new_forms(int most) {
    return (forms){.form = xcalloc((size_t)most, sizeof(grammar_form)),
                   .part = xcalloc((size_t)most * 3, sizeof(grammar_part)),
                   .text = xcalloc((size_t)most * 2, sizeof(strbuf)),
                   .no_arguments = json_pack("{s:s, s:{}, s:b}", "type", "object", "properties",
                                             "additionalProperties", 0)};
}

static void free_forms(forms *v) {
    for (int i = 0; i < v->n * 2; i++) strbuf_free(&v->text[i]);
    json_decref(v->no_arguments);
    free(v->form);
    free(v->part);
    free(v->text);
}

static void add_value(forms *v, const json_t *schema) {
    grammar_part *p = &v->part[v->n * 3];
    p[0] = schema ? (grammar_part){.schema = schema} : (grammar_part){.object = true};
    v->form[v->n++] = (grammar_form){p, 1};
}

static void add_call(forms *v, const call_words *w, const json_t *function) {
    json_t *name = json_object_get(function, "name");
    const json_t *schema = json_object_get(function, "parameters");
    strbuf *before = &v->text[v->n * 2], *behind = before + 1;
    grammar_part *p = &v->part[v->n * 3];
    strbuf_puts(before, w->before_name);
    if (w->name_is_json)
        json_format(before, name, 0);
    else
        strbuf_puts(before, json_string_value(name));
    strbuf_puts(before, w->before_arguments);
    strbuf_puts(behind, w->behind);
    p[0] = (grammar_part){.text = strbuf_cstr(before)};
    p[1] = (grammar_part){.schema = json_is_object(schema) ? schema : v->no_arguments};
    p[2] = (grammar_part){.text = strbuf_cstr(behind)};
    v->form[v->n++] = (grammar_form){p, behind->len ? 3 : 2};
}

static status add_calls(forms *v, const answer *a, const char *name, api_fault *f) {
    call_words words = call_words_of(a->model->template, a->calls);
    int had = v->n;
    for (size_t i = 0; i < json_array_size(a->tools); i++) {
        const json_t *function = json_object_get(json_array_get(a->tools, i), "function");
        const char *has = json_string_value(json_object_get(function, "name"));
        if (!name || strcmp(name, has) == 0) add_call(v, &words, function);
    }
    if (v->n > had) return ST_OK;
    return err_at(&f->e, ST_USAGE, "tool_choice", "there is no tool%s%.100s to call",
                  name ? " " : "", name ? name : "");
}

/* ---- the grammar ---- */

status answer_read_limits(answer *a, bool must_call, const char *name, api_fault *f) {
    value_spec format;
    TRY(read_format(a->params.response_format, &format, f));
    if (!must_call && !format.is_json) return ST_OK;
    forms v = new_forms((int)json_array_size(a->tools) + 1);
    status st = ST_OK;
    if (format.is_json && !must_call) add_value(&v, format.schema);
    if (must_call || a->tools) st = add_calls(&v, a, name, f);
    bool several = must_call && !name && a->params.parallel_calls;
    grammar_spec spec = {.form = v.form,
                         .n_forms = v.n,
                         .most = several ? call_words_of(a->model->template, a->calls).most : 1,
                         .between = "\n"};
    if (st == ST_OK) st = grammar_new(&a->grammar, a->model->words, &spec, &f->e);
    free_forms(&v);
    return st;
}
