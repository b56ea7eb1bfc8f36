/* /v1/chat/completions: messages to a prompt by the model's own template. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "data/chat/sample.h"
#include "serve/api/api.h"
#include "serve/api/limits.h"

/* ---- messages ---- */

/* Parts of text become one text, as lines. Pictures and sounds are refused by name. */
static status join_parts(json_t *message, err *e) {
    const json_t *parts = json_object_get(message, "content");
    if (!json_is_array(parts)) return ST_OK;
    strbuf text = {0};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *t = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        bool other = type && strcmp(type, "text") != 0;
        if (other || !json_is_string(t)) {
            strbuf_free(&text);
            if (!other)
                return err_at(e, ST_USAGE, "messages",
                              "part %zu of a message is no {\"type\": \"text\", \"text\": ...}", i);
            return err_at(e, ST_USAGE, "messages",
                          "a part of a message has the type \"%.40s\"; only text can be read",
                          type);
        }
        if (i) strbuf_putc(&text, '\n');
        strbuf_append(&text, json_string_value(t), json_string_length(t));
    }
    json_object_set_new(message, "content", json_text(strbuf_cstr(&text), text.len));
    strbuf_free(&text);
    return ST_OK;
}

static status read_messages(const json_t *given, json_t *out, err *e) {
    size_t i;
    json_t *m;
    if (json_array_size(given) == 0)
        return err_at(e, ST_USAGE, "messages",
                      "\"messages\" must be a list of messages, one at least");
    if (json_array_size(given) > CHAT_MAX_MESSAGES)
        return err_at(e, ST_USAGE, "messages", "there are %zu messages, at most %d are possible",
                      json_array_size(given), CHAT_MAX_MESSAGES);
    status st = chat_add_messages(out, given, "user", "messages", e);
    if (st != ST_OK) {
        err_context(e, "the request");
        return err_where(e, "messages");
    }
    json_array_foreach(out, i, m) {
        TRY(join_parts(m, e));
        /* OpenAI's newer name, which templates of other makers do not know */
        if (chat_is_role(m, "developer")) json_object_set_new(m, "role", json_string("system"));
    }
    return ST_OK;
}

static status no_template(const served *m, api_fault *f) {
    err_at(&f->e, ST_USAGE, "model", "%s has no chat template, so it cannot chat", m->name);
    err_hint(&f->e, "continue a text with /v1/completions");
    return api_fault_as(f, 400, "no_chat_template");
}

/* What a template refuses is the request's: the place in the template is part of what is told. */
static status render(const chat_template *t, const chat_request *q, strbuf *text, err *e) {
    status st = chat_render(t, q, text, NULL, e);
    if (st == ST_OK) return ST_OK;
    if (!e->hint[0] && e->where[0]) err_hint(e, "look at %s of the template", e->where);
    return err_where(e, "messages");
}

status api_render(const served *m, const api_params *p, const json_t *tools, tok_ids *ids,
                  strbuf *text, api_fault *f) {
    if (!m->template) return no_template(m, f);
    struct tm now;
    time_t seconds = (time_t)clock_wall_s();
    localtime_r(&seconds, &now);
    json_t *messages = json_array();
    chat_request q = {.messages = messages,
                      .tools = tools,
                      .documents = p->documents,
                      .extra = p->template_variables,
                      .continue_field = p->continue_last ? "content" : NULL,
                      .add_generation_prompt = p->begin_answer,
                      .now = &now};
    status st = read_messages(p->messages, messages, &f->e);
    if (st == ST_OK) st = render(m->template, &q, text, &f->e);
    if (st == ST_OK) st = tok_encode(m->model.tok, strbuf_cstr(text), text->len, 0, ids, &f->e);
    json_decref(messages);
    return st;
}

/* ---- tools ---- */

static status check_tools(const json_t *tools, err *e) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || !*name)
            return err_at(e, ST_USAGE, "tools", "tool %zu has no \"function\" with a \"name\"", i);
    }
    return ST_OK;
}

/* What tool_choice says of the tools: whether they are offered, and which must be called. */
typedef struct choice {
    bool offered, must_call;
    const char *name; /* NULL: any */
} choice;

static status read_choice(const json_t *v, choice *c, err *e) {
    const char *word = json_string_value(v);
    *c = (choice){.offered = true};
    if (!v || (word && strcmp(word, "auto") == 0)) return ST_OK;
    if (word && strcmp(word, "none") == 0) {
        c->offered = false;
        return ST_OK;
    }
    c->must_call = true;
    if (word && strcmp(word, "required") == 0) return ST_OK;
    c->name = json_string_value(json_object_get(json_object_get(v, "function"), "name"));
    if (c->name) return ST_OK;
    return err_at(e, ST_USAGE, "tool_choice",
                  "\"tool_choice\" must be \"none\", \"auto\", \"required\" or "
                  "{\"type\": \"function\", \"function\": {\"name\": ...}}");
}

static status offer_tools(answer *a, api_fault *f) {
    TRY(chat_read_tools(a->params.tools, &a->tools, &f->e));
    TRY(check_tools(a->tools, &f->e));
    if (a->tools) a->calls = a->model->calls;
    if (!a->tools || a->calls != CALLS_NONE) return ST_OK;
    err_at(&f->e, ST_USAGE, "tools", "the chat template of %s knows no tools", a->model->name);
    err_hint(&f->e, "leave \"tools\" out, or set \"tool_choice\" to \"none\"");
    return api_fault_as(f, 400, "no_tools");
}

static status read_tools(answer *a, api_fault *f) {
    choice c;
    TRY(read_choice(a->params.tool_choice, &c, &f->e));
    if (c.offered) TRY(offer_tools(a, f));
    return answer_read_limits(a, c.must_call, c.name, f);
}

/* ---- the answer ---- */

/* Whether the tokenizer drops the mark as a special token, so that the text would lack it. */
static bool is_special(const tok *k, const char *mark) {
    int32_t id = *mark ? tok_id(k, mark) : -1;
    strbuf text = {0};
    err e;
    bool hidden = id >= 0 && tok_decode(k, &id, 1, true, &text, &e) == ST_OK && text.len == 0;
    strbuf_free(&text);
    return hidden;
}

/* The template has opened a thought, or the message that is continued has. */
static bool begins_in_thought(const api_params *p, const thought_marks *t, const strbuf *prompt) {
    const char *s = strbuf_cstr(prompt);
    size_t n = prompt->len, len = strlen(t->open), last = json_array_size(p->messages) - 1;
    jinja_strip(&s, &n, false, true);
    if (n >= len && memcmp(s + n - len, t->open, len) == 0) return true;
    const char *text =
        json_string_value(json_object_get(json_array_get(p->messages, last), "content"));
    const char *open = p->continue_last && text ? strstr(text, t->open) : NULL;
    return open && !strstr(open, t->close);
}

static void find_marks(answer *a, const strbuf *prompt) {
    const tok *k = a->model->model.tok;
    const thought_marks *t = a->thought = a->grammar ? NULL : a->model->thought;
    a->thinks = t && begins_in_thought(&a->params, t, prompt);
    bool call = a->calls != CALLS_NONE && is_special(k, call_form_sign(a->calls));
    bool thought = t && (is_special(k, t->open) || is_special(k, t->close));
    if (call || thought) a->params.skip_special = false;
}

status api_make_chat(answer *a, api_fault *f) {
    strbuf text = {0};
    a->prompts = xcalloc(1, sizeof *a->prompts);
    a->n_prompts = 1;
    TRY(read_tools(a, f));
    status st = api_render(a->model, &a->params, a->tools, &a->prompts[0], &text, f);
    if (st == ST_OK) find_marks(a, &text);
    strbuf_free(&text);
    return st == ST_OK ? answer_prepare(a, f) : st;
}

void api_chat(void *ctx, const http_request *rq, http_reply *reply) {
    api_fault f = {0};
    answer *a = api_begin(ctx, rq, reply, API_CHAT, &f);
    http_reply_drop_body(reply); /* its JSON has copies */
    api_finish(ctx, a, reply, a ? api_make_chat(a, &f) : ST_USAGE, &f);
}
