#include "serve/api/body.h"

#include <string.h>

#include "base/text.h"
#include "base/utf8.h"

/* ---- faults ---- */

status api_fault_as(api_fault *f, int http, const char *code) {
    f->http = http;
    f->code = code;
    return f->e.code;
}

int api_fault_status(const api_fault *f) {
    if (f->http) return f->http;
    return f->e.code == ST_USAGE || f->e.code == ST_FORMAT ? 400 : 500;
}

static const char *fault_type(int http) {
    switch (http) {
        case 404: return "not_found_error";
        case 429: return "rate_limit_error";
        default: return http < 500 ? "invalid_request_error" : "server_error";
    }
}

json_t *api_fault_json(const api_fault *f) {
    strbuf text = {0};
    strbuf_puts(&text, f->e.message);
    if (f->e.hint[0]) strbuf_printf(&text, "; %s", f->e.hint);
    json_t *o =
        json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
                  json_text(strbuf_cstr(&text), text.len), "type", fault_type(api_fault_status(f)),
                  "param", json_cstr(f->e.where[0] ? f->e.where : NULL), "code", f->code);
    strbuf_free(&text);
    return o;
}

/* ---- bodies ---- */

typedef struct size {
    int depth, deepest;
    int64_t nodes, values;
} size;

static void count(size *n, char c) {
    if (c == '{' || c == '[') {
        n->nodes++;
        if (++n->depth > n->deepest) n->deepest = n->depth;
    } else if (c == '}' || c == ']') {
        n->depth--;
    } else if (c == ',') {
        n->values++;
    }
}

/* Seen before it is parsed: the parser calls itself for each level, and so does all that walks over
 * what it gives. */
static size measure(const char *s, size_t len) {
    size n = {0};
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (!in_string) count(&n, s[i]);
        if (in_string && s[i] == '\\')
            i++;
        else if (s[i] == '"')
            in_string = !in_string;
    }
    return n;
}

static status check_size(const char *body, size_t len, err *e) {
    size n = measure(body, len);
    if (n.deepest > API_MAX_DEPTH)
        return err_set(e, ST_USAGE, "the body has more than %d lists and objects within each other",
                       API_MAX_DEPTH);
    if (n.nodes <= API_MAX_NODES && n.values <= API_MAX_VALUES) return ST_OK;
    return err_set(e, ST_USAGE, "the body has more than %d lists and objects, or than %d values",
                   API_MAX_NODES, API_MAX_VALUES);
}

status api_body_parse(json_t **out, const char *body, size_t len, err *e) {
    json_error_t je;
    *out = NULL;
    size_t mark = utf8_mark(body, len); /* RFC 8259, 8.1 */
    body += mark;
    len -= mark;
    if (len == 0) return err_set(e, ST_USAGE, "the body is empty, and should be a JSON object");
    TRY(check_size(body, len, e));
    json_t *o = json_loadb(body, len, JSON_ALLOW_NUL, &je);
    if (!o) {
        text_make_plain(je.text);
        err_set(e, ST_USAGE, "the body is no JSON: %s", je.text);
        return err_hint(e, "look at byte %d", je.position + (int)mark);
    }
    if (!json_is_object(o)) {
        json_decref(o);
        return err_set(e, ST_USAGE, "the body is no JSON object");
    }
    *out = o;
    return ST_OK;
}

void api_put_json(strbuf *out, json_t *value) {
    json_format(out, value, 0);
    json_decref(value);
}
