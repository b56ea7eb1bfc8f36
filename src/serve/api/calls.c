/* Reading order: the forms, reading calls from a text, the reader's states. */
#include "serve/api/calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { MOST_CALLS = 8 };

/* ---- forms ---- */

static const struct {
    const char *sign; /* a template with it has this form */
    const char *open, *close;
} forms[] = {[CALLS_NONE] = {"", "", ""},
             [CALLS_TAGGED] = {"<tool_call>", "<tool_call>", "</tool_call>"},
             [CALLS_LISTED] = {"[TOOL_CALLS]", "[TOOL_CALLS]", ""},
             [CALLS_BARE] = {"<|python_tag|>", "", ""}};

call_form call_form_of(const chat_template *t) {
    for (int i = CALLS_TAGGED; i < ARRAY_LEN(forms); i++)
        if (chat_template_mentions(t, forms[i].sign)) return (call_form)i;
    /* Llama 3.2 has no word of its own in its template but this sentence. */
    bool asks = chat_template_mentions(t, "\"parameters\": dictionary of argument name");
    return asks ? CALLS_BARE : CALLS_NONE;
}

const char *call_form_sign(call_form form) {
    return forms[form].sign;
}

call_words call_words_of(const chat_template *t, call_form form) {
    switch (form) {
        case CALLS_TAGGED:
            return (call_words){"<tool_call>\n{\"name\": ", ", \"arguments\": ",
                                "}\n</tool_call>", true, MOST_CALLS};
        case CALLS_LISTED:
            if (chat_template_mentions(t, "[ARGS]"))
                return (call_words){"[TOOL_CALLS]", "[ARGS]", "", false, 1};
            return (call_words){"[TOOL_CALLS] [{\"name\": ", ", \"arguments\": ", "}]", true, 1};
        default: return (call_words){"{\"name\": ", ", \"parameters\": ", "}", true, 1};
    }
}

const thought_marks *thought_marks_of(const chat_template *t) {
    static const thought_marks known[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (chat_template_mentions(t, known[i].close)) return &known[i];
    return NULL;
}

/* ---- calls in a text ---- */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool begins(const char *s, size_t n, const char *word) {
    size_t len = strlen(word);
    return n >= len && memcmp(s, word, len) == 0;
}

static bool is_offered(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *has = json_string_value(json_object_get(f, "name"));
        if (has && strcmp(has, name) == 0) return true;
    }
    return false;
}

/* Appends {"name", "arguments": object} for a call; false: it is none. */
static bool add_call(json_t *calls, const char *name, const json_t *arguments) {
    json_t *parsed = NULL;
    if (json_is_string(arguments)) /* the text of an object, as OpenAI has it */
        arguments = parsed = json_loadb(json_string_value(arguments), json_string_length(arguments),
                                        JSON_ALLOW_NUL, NULL);
    bool ok = name && *name && (!arguments || json_is_object(arguments));
    if (ok)
        json_array_append_new(
            calls, json_pack("{s:s, s:o}", "name", name, "arguments",
                             arguments ? json_incref((json_t *)arguments) : json_object()));
    json_decref(parsed);
    return ok;
}

static bool add_object(json_t *calls, const json_t *o) {
    const json_t *inner = json_object_get(o, "function");
    if (json_is_object(inner)) o = inner;
    const json_t *arguments = json_object_get(o, "arguments");
    if (!arguments) arguments = json_object_get(o, "parameters");
    return add_call(calls, json_string_value(json_object_get(o, "name")), arguments);
}

static bool add_value(json_t *calls, const json_t *v) {
    if (!json_is_array(v)) return add_object(calls, v);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_object(calls, json_array_get(v, i))) return false;
    return json_array_size(v) > 0;
}

/* The JSON at s; *used: its bytes. */
static json_t *value_at(const char *s, size_t n, size_t *used) {
    json_error_t je;
    json_t *v = json_loadb(s, n, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &je);
    *used = v ? (size_t)je.position : 0;
    return v;
}

/* name{...} or name[ARGS]{...}; *used: bytes of all of it, 0: it is none. */
static bool add_named(json_t *calls, const char *s, size_t n, size_t *used) {
    size_t name = 0, skip;
    while (name < n && s[name] != '{' && s[name] != '[' && !is_space(s[name])) name++;
    skip = name + (begins(s + name, n - name, "[ARGS]") ? strlen("[ARGS]") : 0);
    while (skip < n && is_space(s[skip])) skip++;
    json_t *arguments = value_at(s + skip, n - skip, used);
    char *text = name ? strndup(s, name) : NULL;
    bool ok = arguments && add_call(calls, text, arguments);
    *used += skip;
    free(text);
    json_decref(arguments);
    return ok;
}

/* All calls of a text that holds nothing else; NULL: it does. */
static json_t *read_calls(call_form form, const char *s, size_t n) {
    json_t *calls = json_array();
    bool ok = true;
    for (size_t i = 0, used; ok && i < n; i += used) {
        used = 1;
        if (is_space(s[i]) || (form == CALLS_BARE && s[i] == ';')) continue;
        used = strlen(forms[form].open);
        if (used > 0 && begins(s + i, n - i, forms[form].open)) continue;
        if (form == CALLS_LISTED && s[i] != '[' && s[i] != '{') {
            ok = add_named(calls, s + i, n - i, &used);
            continue;
        }
        json_t *v = value_at(s + i, n - i, &used);
        ok = v && add_value(calls, v);
        json_decref(v);
    }
    if (ok && json_array_size(calls) > 0) return calls;
    json_decref(calls);
    return NULL;
}

/* ---- the reader ---- */

typedef enum reader_state {
    AT_START,   /* white space, perhaps a thought or a bare call */
    IN_THOUGHT, /* up to its mark */
    AFTER,      /* a thought or a call: white space is left out */
    IN_SPEECH,  /* text, up to the mark of a call */
    IN_CALL,    /* up to the mark that ends it, or the end */
} reader_state;

struct answer_reader {
    call_form form;
    const thought_marks *marks;
    const json_t *tools;
    answer_parts parts;
    reader_state state;
    bool has_called;
    strbuf held;
};

answer_reader *answer_reader_new(call_form form, const thought_marks *marks, bool thinks,
                                 const json_t *tools, const answer_parts *parts) {
    answer_reader *r = xcalloc(1, sizeof *r);
    *r = (answer_reader){.form = form, .marks = marks, .tools = tools, .parts = *parts};
    r->state = thinks ? IN_THOUGHT : marks || form == CALLS_BARE ? AT_START : IN_SPEECH;
    return r;
}

void answer_reader_free(answer_reader *r) {
    if (!r) return;
    strbuf_free(&r->held);
    free(r);
}

static void drop(answer_reader *r, size_t n) {
    memmove(r->held.data, r->held.data + n, r->held.len - n);
    strbuf_truncate(&r->held, r->held.len - n);
}

/* Tells the first n bytes that are held. */
static void tell(answer_reader *r, void (*to)(void *ctx, const char *text, size_t len), size_t n) {
    if (n == 0) return;
    to(r->parts.ctx, r->held.data, n);
    drop(r, n);
}

/* How many bytes at the end of what is held could begin the word. */
static size_t open_end(const answer_reader *r, const char *word) {
    size_t len = strlen(word), most = len - 1 < r->held.len ? len - 1 : r->held.len;
    for (size_t n = most; n > 0; n--)
        if (memcmp(r->held.data + r->held.len - n, word, n) == 0) return n;
    return 0;
}

static size_t spaces_before(const answer_reader *r, size_t end) {
    size_t n = 0;
    while (n < end && is_space(r->held.data[end - 1 - n])) n++;
    return n;
}

static size_t spaces_first(const answer_reader *r) {
    size_t n = 0;
    while (n < r->held.len && is_space(r->held.data[n])) n++;
    return n;
}

/* Whether what is held, from `at`, could still become the word, or is it. */
static bool may_become(const answer_reader *r, size_t at, const char *word, bool *is) {
    size_t n = r->held.len - at, len = strlen(word);
    *is = begins(r->held.data + at, n, word);
    return *is || (n < len && memcmp(r->held.data + at, word, n) == 0);
}

/* Each of these says whether the state has changed, so that there may be more to do. */
static bool go(answer_reader *r, reader_state state) {
    r->state = state;
    return true;
}

static bool at_start(answer_reader *r) {
    size_t at = spaces_first(r);
    bool is = false;
    if (at == r->held.len) return false;
    if (r->marks && may_become(r, at, r->marks->open, &is)) {
        if (!is) return false;
        drop(r, at + strlen(r->marks->open));
        return go(r, IN_THOUGHT);
    }
    if (r->form == CALLS_BARE) {
        if (r->held.data[at] == '{') return go(r, IN_CALL);
        if (may_become(r, at, forms[CALLS_BARE].sign, &is)) return is && go(r, IN_CALL);
    }
    return go(r, IN_SPEECH);
}

static bool in_thought(answer_reader *r) {
    const char *close = r->marks->close;
    const char *at = memmem(strbuf_cstr(&r->held), r->held.len, close, strlen(close));
    if (!at) {
        tell(r, r->parts.thought, r->held.len - open_end(r, close));
        return false;
    }
    tell(r, r->parts.thought, (size_t)(at - r->held.data));
    drop(r, strlen(close));
    return go(r, AFTER);
}

static bool after(answer_reader *r) {
    if (r->held.len == 0) return false;
    drop(r, spaces_first(r));
    if (r->held.len == 0) return false;
    bool bare = r->form == CALLS_BARE && !r->has_called;
    return go(r, bare ? AT_START : IN_SPEECH);
}

static bool in_speech(answer_reader *r) {
    const char *open = forms[r->form].open;
    if (!*open) {
        tell(r, r->parts.says, r->held.len);
        return false;
    }
    const char *at = memmem(strbuf_cstr(&r->held), r->held.len, open, strlen(open));
    size_t end = at ? (size_t)(at - r->held.data) : r->held.len - open_end(r, open);
    size_t spaces = spaces_before(r, end); /* those before a call are not told */
    tell(r, r->parts.says, end - spaces);
    if (!at) return false;
    drop(r, spaces);
    return go(r, IN_CALL);
}

static bool all_offered(const answer_reader *r, const json_t *calls) {
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *name = json_object_get(json_array_get(calls, i), "name");
        if (!is_offered(r->tools, json_string_value(name))) return false;
    }
    return true;
}

/* Tells the first n bytes, which hold a call in its marks, or what only looked like one. */
static void end_call(answer_reader *r, size_t n) {
    const char *s = strbuf_cstr(&r->held), *close = forms[r->form].close;
    size_t skip = strlen(forms[r->form].open), len = n;
    if (r->form == CALLS_BARE) {
        skip = spaces_first(r);
        if (begins(s + skip, n - skip, forms[CALLS_BARE].sign))
            skip += strlen(forms[CALLS_BARE].sign);
    }
    if (*close && len >= skip + strlen(close) &&
        memcmp(s + len - strlen(close), close, strlen(close)) == 0)
        len -= strlen(close);
    json_t *calls = read_calls(r->form, s + skip, len - skip), *call;
    size_t i;
    if (!calls || (r->form == CALLS_BARE && !all_offered(r, calls))) {
        json_decref(calls);
        tell(r, r->parts.says, n);
        return;
    }
    json_array_foreach(calls, i, call)
        r->parts.call(r->parts.ctx, json_string_value(json_object_get(call, "name")),
                      json_object_get(call, "arguments"));
    r->has_called = true;
    json_decref(calls);
    drop(r, n);
}

static bool in_call(answer_reader *r) {
    const char *close = forms[r->form].close;
    if (!*close) return false; /* it goes to the end */
    const char *at = memmem(strbuf_cstr(&r->held), r->held.len, close, strlen(close));
    if (!at) return false;
    end_call(r, (size_t)(at - r->held.data) + strlen(close));
    return go(r, r->has_called ? AFTER : IN_SPEECH);
}

void answer_reader_push(answer_reader *r, const char *text, size_t len) {
    static bool (*const step[])(answer_reader *) = {[AT_START] = at_start,
                                                    [IN_THOUGHT] = in_thought,
                                                    [AFTER] = after,
                                                    [IN_SPEECH] = in_speech,
                                                    [IN_CALL] = in_call};
    strbuf_append(&r->held, text, len);
    while (step[r->state](r)) continue;
}

void answer_reader_end(answer_reader *r) {
    if (r->held.len == 0) return;
    if (r->state == IN_CALL)
        end_call(r, r->held.len);
    else if (r->state == IN_THOUGHT)
        tell(r, r->parts.thought, r->held.len);
    else if (r->state != AFTER)
        tell(r, r->parts.says, r->held.len);
}
