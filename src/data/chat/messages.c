/* Messages of all forms to the one that templates read: role and content; the assistant's tool_calls, each
 * {"type": "function", "function": {"name", "arguments": object}}; a tool's result with the role
 * "tool". What else a message has stays. */
#include "data/chat/sample.h"

#include <string.h>

#include "base/arena.h"

/* Names of roles in the wild, and ours. */
static const struct {
    const char *name, *role;
} ROLES[] = {
    {"system", "system"},       {"developer", "developer"},
    {"user", "user"},           {"human", "user"},
    {"assistant", "assistant"}, {"gpt", "assistant"},
    {"chatgpt", "assistant"},   {"bard", "assistant"},
    {"bing", "assistant"},      {"model", "assistant"},
    {"function_call", "call"},  {"tool_call", "call"},
    {"tool", "tool"},           {"observation", "tool"},
    {"function", "tool"},       {"function_response", "tool"},
    {"tool_response", "tool"},  {"ipython", "tool"},
};

static const char *role_of(const char *name) {
    for (int i = 0; i < ARRAY_LEN(ROLES); i++)
        if (strcmp(ROLES[i].name, name) == 0) return ROLES[i].role;
    return NULL;
}

json_t *chat_message(const char *role, json_t *content) {
    return json_pack("{s:s,s:o}", "role", role, "content", content);
}

bool chat_is_learned(const json_t *message) {
    const json_t *weight = json_object_get(message, "weight");
    return chat_is_role(message, "assistant") &&
           !(json_is_number(weight) && json_number_value(weight) == 0);
}

bool chat_is_role(const json_t *message, const char *role) {
    const char *have = json_string_value(json_object_get(message, "role"));
    return have && strcmp(have, role) == 0;
}

/* ---- nested values ---- */

/* The JSON in a text; NULL when it is none. */
static json_t *parse_text(const json_t *text) {
    return json_loadb(json_string_value(text), json_string_length(text),
                      JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* A list or an object that is not empty, or the one that a text holds, as tables keep nested values; *out NULL
 * where there is none. False: it is something else. */
static bool value_or_text(const json_t *value, json_type type, json_t **out) {
    bool empty = json_is_string(value) && json_string_length(value) == 0;
    *out = NULL;
    if (!value || empty) return true;
    json_t *v = json_is_string(value) ? parse_text(value) : json_incref((json_t *)value);
    bool fits = v && json_typeof(v) == type, none = v && json_is_null(v);
    if (fits && json_array_size(v) + json_object_size(v) > 0) *out = json_incref(v);
    json_decref(v);
    return fits || none;
}

status chat_read_column(const json_t *value, const char *name, json_type type, json_t **out,
                        err *e) {
    if (value_or_text(value, type, out)) return ST_OK;
    err_set(e, ST_USAGE, "its \"%s\" is neither %s nor the JSON of one as a text", name,
            type == JSON_ARRAY ? "a list" : "an object");
    return err_hint(e, "mend the record, or leave \"%s\" out of all", name);
}

/* ---- tools ---- */

static json_t *wrap_function(const json_t *o) {
    if (json_object_get(o, "function") || !json_object_get(o, "name"))
        return json_incref((json_t *)o);
    return json_pack("{s:s,s:O}", "type", "function", "function", o);
}

/* Arguments that are the text of an object become that object. */
static json_t *call_of(const json_t *given) {
    json_t *outer = wrap_function(given), *call = json_deep_copy(outer);
    json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *parsed = json_is_string(arguments) ? parse_text(arguments) : NULL;
    if (json_is_object(parsed)) json_object_set(function, "arguments", parsed);
    json_decref(parsed);
    json_decref(outer);
    return call;
}

/* A list of calls from one, from a list, or from the text of either. False: it is something else. */
static bool read_calls(const json_t *value, json_t **out) {
    json_t *calls, *item;
    size_t i;
    *out = json_array();
    if (!value_or_text(value, JSON_ARRAY, &calls) && !value_or_text(value, JSON_OBJECT, &calls))
        return false;
    if (json_is_object(calls)) json_array_append_new(*out, call_of(calls));
    json_array_foreach(calls, i, item) if (json_is_object(item))
        json_array_append_new(*out, call_of(item));
    bool all = !json_is_array(calls) || json_array_size(*out) == json_array_size(calls);
    json_decref(calls);
    return all;
}

status chat_read_tools(const json_t *value, json_t **out, err *e) {
    json_t *tools, *item;
    size_t i;
    *out = NULL;
    TRY(chat_read_column(value, "tools", JSON_ARRAY, &tools, e));
    if (tools) *out = json_array();
    json_array_foreach(tools, i, item) json_array_append_new(*out, wrap_function(item));
    json_decref(tools);
    return ST_OK;
}

/* ---- one message ---- */

static status no_role(const char *column, size_t number, const char *name, err *e) {
    if (!name)
        return err_set(e, ST_USAGE,
                       "message %zu of its \"%s\" has no role: neither \"role\" nor \"from\"",
                       number + 1, column);
    return err_set(e, ST_USAGE,
                   "message %zu of its \"%s\" has the role \"%.40s\", which is not known",
                   number + 1, column, name);
}

/* A message that is a call as a text, as LLaMA-Factory has them: {"name", "arguments"} or a list. */
static status text_to_calls(json_t *m, const char *column, size_t number, err *e) {
    json_t *calls;
    if (!read_calls(json_object_get(m, "content"), &calls) || json_array_size(calls) == 0) {
        json_decref(calls);
        return err_set(e, ST_USAGE,
                       "message %zu of its \"%s\" is a tool call, but its text is no JSON",
                       number + 1, column);
    }
    json_object_set_new(m, "role", json_string("assistant"));
    json_object_set_new(m, "content", json_string(""));
    json_object_set_new(m, "tool_calls", calls);
    return ST_OK;
}

static status normalize_calls(json_t *m, const char *column, size_t number, err *e) {
    json_t *calls;
    bool good = read_calls(json_object_get(m, "tool_calls"), &calls);
    if (json_array_size(calls) > 0)
        json_object_set(m, "tool_calls", calls);
    else
        json_object_del(m, "tool_calls");
    json_decref(calls);
    if (!good)
        return err_set(e, ST_USAGE,
                       "message %zu of its \"%s\" has \"tool_calls\" that are no calls: neither "
                       "objects nor the JSON of them as a text",
                       number + 1, column);
    if (json_object_get(m, "tool_calls") && !json_is_string(json_object_get(m, "content")))
        json_object_set_new(m, "content", json_string(""));
    return ST_OK;
}

/* Moves a key to its usual name. */
static void rename_key(json_t *m, const char *from, const char *to) {
    json_t *value = json_object_get(m, from);
    if (!value || json_object_get(m, to)) return;
    json_object_set(m, to, value);
    json_object_del(m, from);
}

static status add_message(json_t *out, const json_t *given, const char *column, size_t number,
                          err *e) {
    if (!json_is_object(given))
        return err_set(e, ST_USAGE, "message %zu of its \"%s\" is not an object", number + 1,
                       column);
    json_t *m = json_copy((json_t *)given);
    json_array_append_new(out, m);
    rename_key(m, "from", "role");
    rename_key(m, "value", "content");
    const char *name = json_string_value(json_object_get(m, "role"));
    const char *role = name ? role_of(name) : NULL;
    if (!role) return no_role(column, number, name, e);
    if (strcmp(role, "call") == 0) return text_to_calls(m, column, number, e);
    json_object_set_new(m, "role", json_string(role));
    TRY(normalize_calls(m, column, number, e));
    const json_t *content = json_object_get(m, "content");
    if (json_is_string(content) || json_is_array(content) || json_object_get(m, "tool_calls"))
        return ST_OK;
    return err_set(e, ST_USAGE, "message %zu of its \"%s\" has no \"content\"", number + 1, column);
}

status chat_add_messages(json_t *out, const json_t *value, const char *role, const char *column,
                         err *e) {
    size_t i;
    json_t *item;
    if (json_is_string(value)) {
        json_array_append_new(out, chat_message(role, json_incref((json_t *)value)));
        return ST_OK;
    }
    if (json_is_object(value)) return add_message(out, value, column, 0, e);
    if (!json_is_array(value))
        return err_set(e, ST_USAGE, "its \"%s\" is neither a text nor a list of messages", column);
    json_array_foreach((json_t *)value, i, item) TRY(add_message(out, item, column, i, e));
    return ST_OK;
}
