/* A conversation to text: what transformers does around the template. */
#include <stdio.h>
#include <string.h>

#include "tok/chat/template_int.h"

/* ---- which template ---- */

static const jinja_template *by_name(const chat_template *t, const char *name) {
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->item[i].name, name) == 0) return t->item[i].jinja;
    }
    return NULL;
}

/* NULL when there is none of the name that is asked for. */
static const jinja_template *pick(const chat_template *t, const chat_request *q) {
    if (q->name) return by_name(t, q->name);
    const jinja_template *tools = q->tools ? by_name(t, "tool_use") : NULL;
    return tools ? tools : by_name(t, "default");
}

bool chat_marks_generation(const chat_template *t, const chat_request *q) {
    const jinja_template *j = pick(t, q);
    return j && jinja_has_generation(j);
}

bool chat_mentions(const chat_template *t, const char *text) {
    for (int i = 0; i < t->n; i++)
        if (jinja_mentions(t->item[i].jinja, text)) return true;
    return false;
}

static status no_template(const chat_template *t, const chat_request *q, err *e) {
    char names[400] = "";
    for (int i = 0; i < t->n; i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", t->item[i].name);
    }
    err_set(e, ST_USAGE, "there is no chat template \"%.80s\"", q->name ? q->name : "default");
    return err_hint(e, "name one of: %s", names);
}

/* ---- messages ---- */

/* Names that the reasoning of a message goes by; the first is what templates read. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

static json_t *reasoning_of(const json_t *message) {
    for (int i = 0; i < ARRAY_LEN(reasoning_names); i++) {
        json_t *j = json_object_get(message, reasoning_names[i]);
        if (j && !json_is_null(j)) return j;
    }
    return NULL;
}

/* A copy without members that are null (templates would print "None"), in which the reasoning has
 * the names that templates read. */
static json_t *prepared(const json_t *message) {
    json_t *reasoning = reasoning_of(message), *copy = json_object(), *value;
    const char *key;
    size_t len;
    if (reasoning) json_object_set(copy, "thinking", reasoning);
    json_object_keylen_foreach((json_t *)message, key, len, value) {
        if (!json_is_null(value)) json_object_setn(copy, key, len, value);
    }
    if (reasoning) json_object_set(copy, "reasoning_content", reasoning);
    return copy;
}

static status prepare_messages(const json_t *messages, json_t **out, err *e) {
    const json_t *message;
    size_t i;
    if (!json_is_array(messages)) {
        return err_set(e, ST_USAGE, "the messages of a conversation are a list of objects");
    }
    *out = json_array();
    json_array_foreach((json_t *)messages, i, message) {
        if (!json_is_object(message)) {
            return err_set(e, ST_USAGE, "message %zu is not an object", i);
        }
        json_array_append_new(*out, prepared(message));
    }
    return ST_OK;
}

/* ---- a last message that stays open ---- */

/* Written behind the last message, looked for in the output. */
static const char open_mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { MARK = sizeof(open_mark) - 1 };

static json_t *marked(const json_t *text) {
    strbuf b = {0};
    strbuf_append(&b, json_string_value(text), json_string_length(text));
    strbuf_puts(&b, open_mark);
    json_t *j = json_stringn(strbuf_cstr(&b), b.len);
    strbuf_free(&b);
    return j;
}

static bool is_reasoning(const char *field) {
    for (int i = 0; i < ARRAY_LEN(reasoning_names); i++) {
        if (strcmp(field, reasoning_names[i]) == 0) return true;
    }
    return false;
}

/* Whether a field is one that is continued: reasoning is, under each name it has. */
static bool continues(const json_t *last, const char *field, const char *asked) {
    if (strcmp(field, asked) == 0) return true;
    return is_reasoning(asked) && is_reasoning(field) &&
           json_equal(json_object_get(last, field), json_object_get(last, asked));
}

/* Marks the last text of a list of parts, in a copy of the list. */
static status mark_parts(json_t *last, const char *field, json_t **final, err *e) {
    json_t *parts = json_deep_copy(json_object_get(last, field));
    json_object_set_new(last, field, parts);
    for (size_t i = json_array_size(parts); i > 0; i--) {
        json_t *part = json_array_get(parts, i - 1), *text = json_object_get(part, "text");
        if (!json_is_string(text)) continue;
        *final = json_incref(text);
        json_object_set_new(part, "text", marked(text));
        return ST_OK;
    }
    return err_set(e, ST_USAGE, "the last message has no text to continue");
}

static status mark_fields(const jinja_template *j, json_t *last, const char *asked, err *e) {
    const char *fields[4] = {asked};
    bool mentioned = false;
    int n = 1;
    for (int i = 0; i < ARRAY_LEN(reasoning_names) && is_reasoning(asked); i++) {
        bool other = strcmp(asked, reasoning_names[i]) != 0;
        if (other && continues(last, reasoning_names[i], asked)) fields[n++] = reasoning_names[i];
    }
    for (int i = 0; i < n; i++) {
        mentioned = mentioned || jinja_mentions(j, fields[i]);
        const json_t *text = json_object_get(last, fields[i]);
        if (json_is_string(text)) json_object_set_new(last, fields[i], marked(text));
    }
    if (mentioned) return ST_OK;
    return err_set(e, ST_USAGE, "the template does not read the field \"%s\" that is continued",
                   asked);
}

/* Marks the last message; `final` gets the text that must stand in the output. */
static status mark_last(const jinja_template *j, json_t *messages, const char *field,
                        json_t **final, err *e) {
    size_t n = json_array_size(messages);
    if (n == 0) return err_set(e, ST_USAGE, "there is no last message to continue");
    json_t *last = json_array_get(messages, n - 1), *text = json_object_get(last, field);
    if (json_is_array(text)) return mark_parts(last, field, final, e);
    if (!json_is_string(text)) {
        return err_set(e, ST_USAGE, "the last message has no \"%s\" to continue", field);
    }
    *final = json_incref(text);
    return mark_fields(j, last, field, e);
}

static const char *find_last(const char *s, size_t n, const char *word, size_t len) {
    for (size_t at = n + 1 - (len <= n ? len : n + 1); at-- > 0;) {
        if (memcmp(s + at, word, len) == 0) return s + at;
    }
    return NULL;
}

/* Cuts the output where the last message ends. */
static status cut_open(strbuf *out, size_t start, const json_t *final, err *e) {
    const char *text = strbuf_cstr(out) + start, *want = json_string_value(final);
    size_t n = out->len - start, want_len = json_string_length(final);
    jinja_strip(&want, &want_len, true, true);
    const char *mark = find_last(text, n, open_mark, MARK - 1);
    if (!mark || !memmem(text, n, want, want_len)) {
        return err_set(e, ST_FORMAT,
                       "the last message does not stand in the text of the template "
                       "as it is, so that it cannot be continued");
    }
    size_t keep = (size_t)(mark - text);
    bool whole = n - keep >= MARK && mark[MARK - 1] == ' ';
    if (!whole) jinja_strip(&text, &keep, false, true); /* the template trimmed the message */
    strbuf_truncate(out, start + keep);
    return ST_OK;
}

static void clamp_spans(jinja_spans *spans, int64_t from, size_t len) {
    for (int64_t i = from; spans && i < spans->n; i++) {
        if (spans->span[i].end > len) spans->span[i].end = len;
        if (spans->span[i].start > len) spans->span[i].start = len;
    }
}

/* ---- the render ---- */

static json_t *context_of(const chat_template *t, const chat_request *q, json_t *messages) {
    json_t *c = json_object();
    json_object_update(c, t->tokens);
    json_object_set(c, "messages", messages);
    json_object_set_new(c, "tools", q->tools ? json_incref((json_t *)q->tools) : json_null());
    json_object_set_new(c, "documents",
                        q->documents ? json_incref((json_t *)q->documents) : json_null());
    json_object_set_new(c, "add_generation_prompt", json_boolean(q->add_generation_prompt));
    if (q->extra) json_object_update(c, (json_t *)q->extra);
    return c;
}

static status render(const chat_template *t, const jinja_template *j, const chat_request *q,
                     json_t *messages, strbuf *out, jinja_spans *generation, err *e) {
    jinja_limits limits = {.now = q->now};
    json_t *context = context_of(t, q, messages);
    status st = jinja_render(j, context, &limits, out, generation, e);
    if (st != ST_OK) err_context(e, "chat template");
    json_decref(context);
    return st;
}

static status render_open(const chat_template *t, const jinja_template *j, const chat_request *q,
                          json_t *messages, strbuf *out, jinja_spans *generation, err *e) {
    json_t *final = NULL;
    size_t start = out->len;
    int64_t spans = generation ? generation->n : 0;
    status st = mark_last(j, messages, q->continue_field, &final, e);
    if (st == ST_OK) st = render(t, j, q, messages, out, generation, e);
    if (st == ST_OK) st = cut_open(out, start, final, e);
    if (st == ST_OK) clamp_spans(generation, spans, out->len - start);
    json_decref(final);
    return st;
}

status chat_render(const chat_template *t, const chat_request *q, strbuf *out,
                   jinja_spans *generation, err *e) {
    const jinja_template *j = pick(t, q);
    json_t *messages = NULL;
    size_t start = out->len;
    int64_t spans = generation ? generation->n : 0;
    if (!j) return no_template(t, q, e);
    if (q->continue_field && q->add_generation_prompt) {
        return err_set(e, ST_USAGE, "an answer is either continued or begun, not both");
    }
    status st = prepare_messages(q->messages, &messages, e);
    if (st == ST_OK) {
        st = (q->continue_field ? render_open : render)(t, j, q, messages, out, generation, e);
    }
    json_decref(messages);
    if (st != ST_OK) {
        strbuf_truncate(out, start);
        if (generation) generation->n = spans;
    }
    return st;
}
