/* See encode.h. Reading order: rendering, trained stretches, roles, tokens, chat_encode. */
#include "data/chat/encode.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "data/chat/checks.h"

void chat_document_free(chat_document *d) {
    tok_ids_free(&d->ids);
    free(d->marks);
    *d = (chat_document){0};
}

/* One conversation at work. */
typedef struct encoding {
    const chat_encoder *k;
    const chat_sample *s;
    const json_t *messages;
    size_t n;
    strbuf text;
    jinja_spans trained;
    bool stable, system_kept, tools_kept;
    bool failed;      /* the template did */
    uint8_t *roles;   /* [text.len] of each byte */
    tok_spans places; /* beside the ids */
} encoding;

/* ---- rendering ---- */

static status render_with(encoding *x, json_t *messages, json_t *tools, bool prompt, strbuf *out,
                          jinja_spans *spans, err *e) {
    json_t *extra = json_object();
    if (x->k->variables) json_object_update(extra, (json_t *)x->k->variables);
    if (x->s->variables) json_object_update(extra, x->s->variables);
    chat_request q = {.messages = messages,
                      .tools = tools,
                      .documents = x->s->documents,
                      .extra = extra,
                      .add_generation_prompt = prompt,
                      .now = x->k->now};
    status st = chat_render(x->k->template, &q, out, spans, e);
    json_decref(extra);
    if (st == ST_OK) return ST_OK;
    x->failed = true;
    err why = *e;
    return chat_check_error(CHECK_TEMPLATE_FAILS, why.message, e);
}

static json_t *messages_of(const encoding *x, size_t from, size_t to) {
    json_t *part = json_array();
    for (size_t i = from; i < to; i++) json_array_append(part, json_array_get(x->messages, i));
    return part;
}

/* Another text in place of a message's, which no text has. */
static const char OTHER[] = "\1";

static void put_other(json_t *messages, size_t i) {
    json_t *m = json_copy(json_array_get(messages, i));
    json_object_set_new(m, "content", json_string(OTHER));
    json_array_set_new(messages, i, m);
}

/* The same of all that an answer says: its thoughts, too, and the names of its calls. */
static void put_other_answer(json_t *messages, size_t i) {
    const json_t *was = json_array_get(messages, i);
    json_t *m = json_copy((json_t *)was),
           *calls = json_deep_copy(json_object_get(was, "tool_calls"));
    const char *key;
    json_t *v;
    size_t k;
    json_object_foreach((json_t *)was, key, v) {
        bool says = json_is_string(v) && strcmp(key, "role") != 0;
        if (says || strcmp(key, "content") == 0) json_object_set_new(m, key, json_string(OTHER));
    }
    json_array_foreach(calls, k, v)
        json_object_set_new(json_object_get(v, "function"), "name", json_string(OTHER));
    if (calls) json_object_set_new(m, "tool_calls", calls);
    json_array_set_new(messages, i, m);
}

/* Messages from..to of the conversation, with the generation prompt or without. */
static status render(encoding *x, size_t from, size_t to, bool prompt, strbuf *out,
                     jinja_spans *spans, err *e) {
    json_t *part = messages_of(x, from, to);
    status st = render_with(x, part, x->s->tools, prompt, out, spans, e);
    json_decref(part);
    return st;
}

/* How many bytes the text has in common with that of other messages, from the start; -1: the template fails on them.
 * Takes the messages. */
static int64_t common_with(encoding *x, json_t *messages, json_t *tools, bool *all) {
    strbuf other = {0};
    err why = {0};
    const char *text = strbuf_cstr(&x->text);
    status st = render_with(x, messages, tools, false, &other, NULL, &why);
    json_decref(messages);
    x->failed = false; /* nobody asked for these messages */
    size_t n = 0;
    while (n < other.len && n < x->text.len && other.data[n] == text[n]) n++;
    *all = st == ST_OK && n == other.len && n == x->text.len;
    strbuf_free(&other);
    return st == ST_OK ? (int64_t)n : -1;
}

/* True when the text is the same with these messages and tools: what they lack is not written. */
static bool is_text_of(encoding *x, json_t *messages, json_t *tools) {
    bool all;
    common_with(x, messages, tools, &all);
    return all;
}

static bool marks_generation(const encoding *x) {
    chat_request q = {.tools = x->s->tools};
    return chat_marks_generation(x->k->template, &q);
}

/* ---- what is trained ---- */

static void add_stretch(jinja_spans *v, size_t start, size_t end) {
    jinja_span span = {start, end};
    if (end > start) VEC_PUSH(v->span, v->n, v->cap, span);
}

/* How many bytes of the text the first n messages are, as the template writes them alone. What
 * follows where the two part is not the prompt. */
static status prefix_length(encoding *x, size_t n, bool prompt, size_t *out, err *e) {
    strbuf part = {0};
    const char *text = strbuf_cstr(&x->text);
    status st = render(x, 0, n, prompt, &part, NULL, e);
    size_t most = part.len < x->text.len ? part.len : x->text.len;
    *out = 0;
    while (*out < most && part.data[*out] == text[*out]) ++*out;
    if (st == ST_OK && *out < part.len) x->stable = false;
    while (*out > 0 && *out < x->text.len && (text[*out] & 0xc0) == 0x80) --*out;
    strbuf_free(&part);
    return st;
}

/* Where answer i begins. Before a conversation's first message no template can be asked: what another first answer
 * leaves as it is stands before it. */
static status answer_start(encoding *x, size_t i, size_t *out, err *e) {
    if (i > 0) return prefix_length(x, i, true, out, e);
    bool all;
    json_t *messages = messages_of(x, 0, x->n);
    put_other(messages, 0);
    int64_t n = common_with(x, messages, x->s->tools, &all);
    *out = n > 0 ? (size_t)n : 0;
    return ST_OK;
}

static status find_answer(encoding *x, size_t i, err *e) {
    size_t start, end = x->text.len;
    TRY(answer_start(x, i, &start, e));
    if (i + 1 < x->n) TRY(prefix_length(x, i + 1, false, &end, e));
    add_stretch(&x->trained, start, end);
    return ST_OK;
}

static status find_answers(encoding *x, err *e) {
    bool last_only = x->k->train == CHAT_TRAIN_LAST;
    for (size_t i = x->n; i-- > 0;) {
        if (!chat_is_learned(json_array_get(x->messages, i))) continue;
        TRY(find_answer(x, i, e));
        if (last_only) break;
    }
    return ST_OK;
}

static bool is_same(const strbuf *a, jinja_span x, const strbuf *b, jinja_span y) {
    return x.end - x.start == y.end - y.start &&
           memcmp(strbuf_cstr(a) + x.start, strbuf_cstr(b) + y.start, x.end - x.start) == 0;
}

/* Marked stretches that are not those of message i: drops[k] is set for those that change with what it says. */
static status drop_answer(encoding *x, size_t i, const jinja_spans *marked, bool *drops, err *e) {
    strbuf text = {0};
    jinja_spans other = {0};
    json_t *messages = messages_of(x, 0, x->n);
    put_other_answer(messages, i);
    status st = render_with(x, messages, x->s->tools, false, &text, &other, e);
    int64_t from = 0, to = marked->n, end = other.n;
    while (from < to && from < end &&
           is_same(&x->text, marked->span[from], &text, other.span[from]))
        from++;
    while (to > from && end > from &&
           is_same(&x->text, marked->span[to - 1], &text, other.span[end - 1]))
        to--, end--;
    for (; st == ST_OK && from < to; from++) drops[from] = true;
    json_decref(messages);
    strbuf_free(&text);
    free(other.span);
    return st;
}

/* What the template marks, but for answers that are only read. */
static status find_marked(encoding *x, const jinja_spans *marked, err *e) {
    bool *drops = xcalloc((size_t)marked->n + 1, sizeof *drops);
    status st = ST_OK;
    for (size_t i = 0; i < x->n && st == ST_OK; i++) {
        const json_t *m = json_array_get(x->messages, i);
        if (chat_is_role(m, "assistant") && !chat_is_learned(m))
            st = drop_answer(x, i, marked, drops, e);
    }
    for (int64_t k = marked->n; st == ST_OK && k-- > 0;) {
        if (drops[k]) continue;
        add_stretch(&x->trained, marked->span[k].start, marked->span[k].end);
        if (x->k->train == CHAT_TRAIN_LAST) break;
    }
    free(drops);
    return st;
}

static status find_trained(encoding *x, const jinja_spans *marked, err *e) {
    size_t start;
    if (x->s->n_prompt > 0) {
        TRY(prefix_length(x, x->s->n_prompt, true, &start, e));
        add_stretch(&x->trained, start, x->text.len);
        return ST_OK;
    }
    return marks_generation(x) ? find_marked(x, marked, e) : find_answers(x, e);
}

/* ---- roles ---- */

static void set_role(encoding *x, size_t start, size_t end, mark_role role) {
    memset(x->roles + start, (int)role, end - start);
}

/* The stretch of a text from `at` on; the template may have trimmed it. */
static bool find_text(const encoding *x, const json_t *value, size_t at, size_t *start,
                      size_t *end) {
    const char *want = json_string_value(value), *text = strbuf_cstr(&x->text);
    size_t n = json_string_length(value);
    if (!want || at > x->text.len) return false;
    jinja_strip(&want, &n, true, true);
    const char *found = n ? memmem(text + at, x->text.len - at, want, n) : NULL;
    if (!found) return false;
    *start = (size_t)(found - text);
    *end = *start + n;
    return true;
}

static mark_role role_of(const json_t *message) {
    if (chat_is_role(message, "system") || chat_is_role(message, "developer")) return ROLE_SYSTEM;
    if (chat_is_role(message, "user")) return ROLE_USER;
    return chat_is_role(message, "tool") ? ROLE_TOOL : ROLE_ASSISTANT;
}

/* What the template writes around texts: the conversation with OTHER for each. Short texts stand in it, too ("a" in
 * "assistant"), long ones do not: then, and where it has not one OTHER for each, `out` stays empty. */
static void render_around(encoding *x, strbuf *out) {
    enum { SHORT_BYTES = 16 };
    json_t *messages = messages_of(x, 0, x->n);
    size_t others = 0;
    bool any_short = false;
    err none;
    for (size_t i = 0; i < x->n; i++) {
        size_t n = json_string_length(json_object_get(json_array_get(messages, i), "content"));
        any_short = any_short || (n > 0 && n < SHORT_BYTES);
        put_other(messages, i);
    }
    if (any_short && render_with(x, messages, x->s->tools, false, out, NULL, &none) != ST_OK)
        strbuf_clear(out);
    x->failed = false;
    json_decref(messages);
    for (size_t i = 0; i < out->len; i++) others += out->data[i] == *OTHER;
    if (others != x->n) strbuf_clear(out);
}

/* Behind what the template writes before the next text; `at` where that is not known. */
static size_t text_begins(const encoding *x, const strbuf *around, size_t *from, size_t at) {
    const char *text = strbuf_cstr(&x->text), *before = around->data + *from;
    const char *end = *from < around->len ? memchr(before, *OTHER, around->len - *from) : NULL;
    if (!end) return at;
    size_t n = (size_t)(end - before);
    const char *found = memmem(text + at, x->text.len - at, before, n);
    *from += n + 1;
    return found ? (size_t)(found - text) + n : at;
}

static void find_messages(encoding *x) {
    size_t at = 0, from = 0, start, end;
    strbuf around = {0};
    render_around(x, &around);
    for (size_t i = 0; i < x->n; i++) {
        const json_t *m = json_array_get(x->messages, i);
        size_t begins = text_begins(x, &around, &from, at);
        if (find_text(x, json_object_get(m, "reasoning_content"), at, &start, &end)) {
            set_role(x, start, end, ROLE_REASONING);
            at = end;
        }
        if (begins > at) at = begins;
        if (!find_text(x, json_object_get(m, "content"), at, &start, &end)) continue;
        set_role(x, start, end, role_of(m));
        at = end;
    }
    strbuf_free(&around);
}

/* What stands between <think> and </think> in the text of the assistant. */
static void find_thoughts(encoding *x, size_t start, size_t end) {
    static const char open[] = "<think>", close[] = "</think>";
    const char *text = strbuf_cstr(&x->text);
    while (start < end) {
        const char *a = memmem(text + start, end - start, open, sizeof open - 1);
        const char *b = a ? memmem(a, (size_t)(text + end - a), close, sizeof close - 1) : NULL;
        if (!b) return;
        const char *inner = a + sizeof open - 1;
        set_role(x, (size_t)(inner - text), (size_t)(b - text), ROLE_REASONING);
        start = (size_t)(b - text) + sizeof close - 1;
    }
}

static void find_roles(encoding *x) {
    x->roles = xcalloc(x->text.len + 1, 1);
    find_messages(x);
    for (int64_t k = 0; k < x->trained.n; k++) {
        jinja_span t = x->trained.span[k];
        for (size_t i = t.start; i < t.end; i++)
            if (x->roles[i] != ROLE_REASONING) x->roles[i] = ROLE_ASSISTANT;
        find_thoughts(x, t.start, t.end);
    }
}

/* ---- what is dropped ---- */

/* Dropped when the text is the same with another one. */
static void check_system(encoding *x) {
    const json_t *first = json_array_get(x->messages, 0);
    x->system_kept = true;
    if (role_of(first) != ROLE_SYSTEM || x->n < 2) return;
    if (json_string_length(json_object_get(first, "content")) == 0) return;
    json_t *messages = messages_of(x, 0, x->n);
    put_other(messages, 0);
    x->system_kept = !is_text_of(x, messages, x->s->tools);
}

/* The messages without their calls; NULL: there are none. */
static json_t *without_calls(const encoding *x) {
    json_t *out = messages_of(x, 0, x->n);
    bool any = false;
    for (size_t i = 0; i < x->n; i++) {
        json_t *m = json_array_get(out, i);
        if (!json_object_get(m, "tool_calls")) continue;
        any = true;
        json_array_set_new(out, i, json_copy(m));
        json_object_del(json_array_get(out, i), "tool_calls");
    }
    if (any) return out;
    json_decref(out);
    return NULL;
}

static void check_tools(encoding *x) {
    json_t *tools = x->s->tools, *bare = without_calls(x);
    bool dropped = json_array_size(tools) > 0 && is_text_of(x, messages_of(x, 0, x->n), NULL);
    if (bare && is_text_of(x, bare, tools)) dropped = true;
    x->tools_kept = !dropped;
}

/* ---- tokens ---- */

static bool is_trained(const encoding *x, tok_span t) {
    for (int64_t k = 0; k < x->trained.n; k++)
        if ((size_t)t.start < x->trained.span[k].end && (size_t)t.end > x->trained.span[k].start)
            return true;
    return false;
}

/* The role of the first byte of a token that is not the template's. */
static mark_role token_role(const encoding *x, tok_span t) {
    for (int32_t i = t.start; i < t.end; i++)
        if (x->roles[i] != ROLE_TEMPLATE) return (mark_role)x->roles[i];
    return ROLE_TEMPLATE;
}

static bool is_blank(const encoding *x, tok_span t) {
    const char *s = strbuf_cstr(&x->text) + t.start;
    size_t n = (size_t)(t.end - t.start);
    jinja_strip(&s, &n, true, true);
    return n == 0;
}

static void mark_tokens(const encoding *x, chat_document *out) {
    bool stops = false;
    out->marks = xcalloc((size_t)out->ids.n + 1, 1);
    for (int64_t i = 0; i < out->ids.n; i++) {
        tok_span t = x->places.span[i];
        mark_role role = token_role(x, t);
        bool trained = is_trained(x, t);
        out->marks[i] = mark_of(role, trained);
        out->reasons = out->reasons || role == ROLE_REASONING;
        if (trained && !is_blank(x, t)) stops = tok_is_added(x->k->tok, out->ids.id[i]);
    }
    out->ends_by_stop = stops;
}

/* ---- the whole ---- */

static status encode(encoding *x, chat_document *out, err *e) {
    jinja_spans marked = {0};
    status st = render(x, 0, x->n, false, &x->text, &marked, e);
    if (st == ST_OK) st = find_trained(x, &marked, e);
    free(marked.span);
    TRY(st);
    check_system(x);
    check_tools(x);
    find_roles(x);
    TRY(tok_encode_spans(x->k->tok, strbuf_cstr(&x->text), x->text.len, 0, &out->ids, &x->places,
                         e));
    out->text_bytes = x->text.len;
    mark_tokens(x, out);
    chat_view v = {.k = x->k,
                   .messages = x->messages,
                   .n = x->n,
                   .tools = x->s->tools,
                   .text = strbuf_cstr(&x->text),
                   .text_bytes = x->text.len,
                   .doc = out,
                   .stable = x->stable,
                   .system_kept = x->system_kept,
                   .tools_kept = x->tools_kept};
    return chat_checks_run(&v, &out->found, e);
}

status chat_encode(const chat_encoder *k, const chat_sample *s, const json_t *messages, size_t n,
                   chat_document *out, err *e) {
    encoding x = {.k = k, .s = s, .messages = messages, .n = n, .stable = true};
    *out = (chat_document){0};
    err why = {0};
    status st = encode(&x, out, &why);
    if (st != ST_OK && e) *e = why;
    if (st != ST_OK && x.failed && k->allowed & 1u << CHECK_TEMPLATE_FAILS) st = ST_OK;
    bool left_out = x.failed && st == ST_OK;
    strbuf_free(&x.text);
    free(x.trained.span);
    free(x.roles);
    tok_spans_free(&x.places);
    if (st != ST_OK || left_out) chat_document_free(out);
    if (left_out) out->found = 1u << CHECK_TEMPLATE_FAILS;
    return st;
}
