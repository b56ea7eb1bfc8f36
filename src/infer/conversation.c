#include "infer/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "tok/tok_format.h"

static bool has_role(const json_t *message, const char *role) {
    const char *r = json_string_value(json_object_get(message, "role"));
    return r && strcmp(r, role) == 0;
}

static bool begins_with_system(const json_t *messages) {
    return has_role(json_array_get(messages, 0), "system");
}

static json_t *message(const char *role, const char *text, size_t len) {
    return json_pack("{s:s, s:o}", "role", role, "content", json_text(text, len));
}

void conversation_init(conversation *c, generator *gen, const tok *t, const chat_template *template,
                       const generation_settings *settings) {
    time_t now = (time_t)clock_wall_s();
    *c = (conversation){.gen = gen, .tok = t, .template = template};
    c->messages = json_array();
    c->variables = json_object();
    localtime_r(&now, &c->began);
    for (int64_t i = 0; i < settings->end.n; i++) generation_add_end(&c->end, settings->end.id[i]);
    generation_add_end(&c->end, chat_find_stop(template, t, &c->began));
}

void conversation_free(conversation *c) {
    json_decref(c->messages);
    json_decref(c->variables);
    tok_ids_free(&c->end);
}

/* ---- messages ---- */

void conversation_set_system(conversation *c, const char *text) {
    size_t had = begins_with_system(c->messages);
    if (had) json_array_remove(c->messages, 0);
    size_t has = text && *text;
    if (has) json_array_insert_new(c->messages, 0, message("system", text, strlen(text)));
    if (c->first_seen > 0) c->first_seen += has - had;
}

const char *conversation_system(const conversation *c) {
    if (!begins_with_system(c->messages)) return NULL;
    return json_string_value(json_object_get(json_array_get(c->messages, 0), "content"));
}

void conversation_add(conversation *c, const char *role, const char *text, size_t len) {
    json_array_append_new(c->messages, message(role, text, len));
}

void conversation_add_user(conversation *c, const char *text, size_t len) {
    conversation_add(c, "user", text, len);
}

static void cut_to(conversation *c, size_t n) {
    while (json_array_size(c->messages) > n) {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
    if (c->first_seen > n) c->first_seen = 0; /* what was left out may fit again */
}

void conversation_clear(conversation *c) {
    cut_to(c, begins_with_system(c->messages));
    c->first_seen = 0;
}

bool conversation_drop_answer(conversation *c) {
    size_t n = json_array_size(c->messages);
    if (n == 0 || !has_role(json_array_get(c->messages, n - 1), "assistant")) return false;
    cut_to(c, n - 1);
    return true;
}

bool conversation_undo(conversation *c) {
    size_t n = json_array_size(c->messages);
    while (n > 0 && !has_role(json_array_get(c->messages, n - 1), "user")) n--;
    if (n == 0) return false;
    cut_to(c, n - 1);
    return true;
}

int64_t conversation_turns(const conversation *c) {
    int64_t turns = 0;
    size_t i;
    json_t *m;
    json_array_foreach(c->messages, i, m) turns += has_role(m, "user");
    return turns;
}

/* ---- what the model sees ---- */

static json_t *seen_messages(const conversation *c, size_t first_seen) {
    json_t *seen = json_array(), *m;
    size_t i;
    json_array_foreach(c->messages, i, m) {
        bool system = i == 0 && begins_with_system(c->messages);
        if (system || i >= first_seen) json_array_append(seen, m);
    }
    return seen;
}

/* The text of the messages from first_seen on. */
static status render_from(const conversation *c, size_t first_seen, strbuf *text, err *e) {
    json_t *seen = seen_messages(c, first_seen);
    chat_request q = {.messages = seen,
                      .tools = json_object_get(c->variables, "tools"),
                      .extra = c->variables,
                      .add_generation_prompt = true,
                      .now = &c->began};
    strbuf_clear(text);
    status st = chat_render(c->template, &q, text, NULL, e);
    json_decref(seen);
    return st;
}

status conversation_render(const conversation *c, strbuf *text, err *e) {
    return render_from(c, 0, text, e);
}

static status encode_from(const conversation *c, size_t first_seen, tok_ids *ids, strbuf *text,
                          err *e) {
    strbuf own = {0}, *to = text ? text : &own;
    ids->n = 0;
    status st = render_from(c, first_seen, to, e);
    if (st == ST_OK) st = tok_encode(c->tok, strbuf_cstr(to), to->len, 0, ids, e);
    strbuf_free(&own);
    return st;
}

/* The second user message from `first` on begins the turns that are left without the first turn; 0:
 * there is one turn only. */
static size_t next_turn(const conversation *c, size_t first) {
    int users = 0;
    for (size_t i = first; i < json_array_size(c->messages); i++) {
        users += has_role(json_array_get(c->messages, i), "user");
        if (users == 2) return i;
    }
    return 0;
}

static status too_long(const conversation *c, int64_t n, err *e) {
    err_set(e, ST_USAGE,
            "the message needs %ld tokens with what stands around it, the context holds %d",
            (long)n, c->Tmax);
    return err_hint(e, "shorten it, or give more with --ctx");
}

/* Of as many turns as fit. */
status conversation_prompt(conversation *c, int64_t max_new, tok_ids *ids, strbuf *text,
                           int64_t *n_dropped, err *e) {
    int64_t Tmax = c->Tmax, room = max_new < Tmax / 8 ? max_new : Tmax / 8;
    size_t first = c->first_seen;
    *n_dropped = 0;
    TRY(encode_from(c, first, ids, text, e));
    if (ids->n + room > Tmax) room = Tmax / 2;
    while (ids->n + room > Tmax) {
        size_t next = next_turn(c, first);
        if (!next) break;
        first = next;
        ++*n_dropped;
        TRY(encode_from(c, first, ids, text, e));
    }
    if (ids->n >= Tmax) return too_long(c, ids->n, e);
    c->first_seen = first;
    return ST_OK;
}

/* ---- answers ---- */

void conversation_answer_free(conversation_answer *a) {
    strbuf_free(&a->text);
    tok_ids_free(&a->ids);
}

static status generate(conversation *c, const generate_request *options, const tok_ids *prompt,
                       conversation_answer *a, err *e) {
    generate_request rq = *options;
    rq.prompt = prompt->id;
    rq.n_prompt = a->n_prompt = prompt->n;
    rq.end = c->end.id;
    rq.n_end = c->end.n;
    rq.tok = c->tok;
    TRY(c->engine ? engine_write(c->engine, &rq, &a->ids, &a->text, &a->result, e)
                  : generate_run(c->gen, &rq, &a->ids, &a->text, &a->result, e));
    if (a->result.finish == FINISH_INTERRUPT && a->ids.n == 0) return ST_OK;
    json_array_append_new(c->messages, message("assistant", strbuf_cstr(&a->text), a->text.len));
    return ST_OK;
}

status conversation_answer_last(conversation *c, const generate_request *options,
                                conversation_answer *a, err *e) {
    tok_ids prompt = {0};
    size_t first_seen = c->first_seen;
    *a = (conversation_answer){0};
    status st = conversation_prompt(c, options->max_new, &prompt, NULL, &a->n_dropped, e);
    if (st == ST_OK) st = generate(c, options, &prompt, a, e);
    if (st != ST_OK) c->first_seen = first_seen;
    tok_ids_free(&prompt);
    return st;
}
