/* Counts of an inspection, and its JSON. */
#include "app/data/inspect.h"

#include <inttypes.h>
#include <string.h>

#include "app/frame/cli_ids.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/chat/audit.h"
#include "tok/tok_format.h"

const char *inspect_label_name(inspect_label l) {
    static const char *const names[] = {[LABEL_NONE] = "",
                                        [LABEL_CHOSEN] = "chosen",
                                        [LABEL_REJECTED] = "rejected",
                                        [LABEL_DESIRABLE] = "desirable",
                                        [LABEL_UNDESIRABLE] = "undesirable",
                                        [LABEL_MISMATCHED] = "mismatched"};
    return names[l];
}

const char *inspect_visible(arena *a, const char *text) {
    strbuf b = {0};
    strbuf_append_visible(&b, text, strlen(text));
    const char *out = arena_strdup(a, strbuf_cstr(&b));
    strbuf_free(&b);
    return out;
}

const char *inspect_role_name(int role) {
    return role == INSPECT_TEXT ? "text" : chat_role_name((mark_role)role);
}

const inspect_span *inspect_span_at(const inspect_row *r, int at) {
    for (int i = 0; i < r->n_spans; i++)
        if (r->spans[i].first == at) return &r->spans[i];
    return NULL;
}

bool inspect_begins_line(const inspect_row *r, int at) {
    return at == 0 || inspect_span_at(r, at) ||
           inspect_role(r->marks[at]) != inspect_role(r->marks[at - 1]);
}

int inspect_stretch(const inspection *x, const inspect_row *r, int first) {
    const uint8_t shown = (uint8_t)~MARK_REJECTED;
    bool special = tok_special(x->t, r->ids[first]) != NULL;
    int end = first + 1;
    while (end < r->n && !inspect_span_at(r, end) &&
           ((r->marks[end] ^ r->marks[first]) & shown) == 0 &&
           (tok_special(x->t, r->ids[end]) != NULL) == special)
        end++;
    return end;
}

void inspect_count(inspect_counts *c, const uint8_t *marks, int64_t n) {
    bool has[INSPECT_ROLES] = {false};
    c->documents++;
    c->tokens += (uint64_t)n;
    for (int64_t i = 0; i < n; i++) {
        int role = inspect_role(marks[i]);
        c->trained += (marks[i] & MARK_TRAINED) != 0;
        c->role_tokens[role]++;
        has[role] = true;
    }
    for (int k = 0; k < INSPECT_ROLES; k++) c->role_documents[k] += has[k];
}

inspect_counts *inspect_source_of(inspection *x, const char *name) {
    for (int i = 0; i < x->n_sources; i++)
        if (strcmp(x->source[i].name, name) == 0) return &x->source[i].c;
    x->source = arena_grow(x->a, x->source, x->n_sources, &x->cap_sources, sizeof *x->source);
    x->source[x->n_sources] = (inspect_source){.name = arena_strdup(x->a, name)};
    return &x->source[x->n_sources++].c;
}

/* ---- hard stops ---- */

static const char *what_of(const char *name) {
    for (int c = 0; c < CHAT_CHECKS; c++)
        if (strcmp(chat_checks[c].name, name) == 0) return chat_checks[c].what;
    return "this version does not know the check";
}

static void add_stop(inspection *x, json_t *o) {
    const char *name, *place = NULL;
    json_int_t count = 0;
    if (json_unpack(o, "{s:s,s?I,s?s}", "name", &name, "count", &count, "first", &place) != 0)
        return;
    x->stop = arena_grow(x->a, x->stop, x->n_stops, &x->cap_stops, sizeof *x->stop);
    x->stop[x->n_stops++] = (inspect_stop){.name = inspect_visible(x->a, name),
                                           .what = what_of(name),
                                           .place = inspect_visible(x->a, place ? place : ""),
                                           .count = (uint64_t)count,
                                           .document = -1};
}

status inspect_read_stops(inspection *x, const char *dir, err *e) {
    const char *path = path_join(x->a, dir, "chat.json");
    json_t *o, *v;
    size_t i;
    if (!file_exists(path)) return ST_OK;
    TRY(json_read_file(&o, path, JSON_FILE_MAX_BYTES, e));
    json_array_foreach(json_object_get(o, "checks"), i, v) add_stop(x, v);
    json_decref(o);
    return ST_OK;
}

void inspect_put_stop(strbuf *out, const inspect_stop *s) {
    strbuf_printf(out, "%s: %s", s->name, s->what);
    if (s->count) strbuf_printf(out, "; %" PRIu64 " conversation%s", s->count, text_s(s->count));
    if (*s->place) strbuf_printf(out, ", the first is %s", s->place);
}

json_t *inspect_stops_json(const inspection *x) {
    json_t *list = json_array();
    for (int i = 0; i < x->n_stops; i++) {
        const inspect_stop *s = &x->stop[i];
        json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:o,s:b}", "name", s->name, "what",
                                              s->what, "count", (json_int_t)s->count, "first",
                                              json_cstr(s->place), "accepted", x->built));
    }
    return list;
}

/* ---- JSON ---- */

/* The text of a token; its bytes as numbers where they are no whole characters. */
static json_t *piece_json(const inspection *x, int32_t id) {
    size_t n = 0;
    const char *bytes = tok_bytes(x->t, id, &n);
    if (!bytes) return json_null();
    if (utf8_valid_prefix(bytes, n) == n) return json_stringn(bytes, n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return list;
}

json_t *inspect_row_json(const inspection *x, const inspect_row *r) {
    json_t *pieces = json_array(), *roles = json_array(), *trained = json_array();
    for (int i = 0; i < r->n; i++) {
        if (x->t) json_array_append_new(pieces, piece_json(x, r->ids[i]));
        json_array_append_new(roles, json_integer(inspect_role(r->marks[i])));
        json_array_append_new(trained, json_boolean(r->marks[i] & MARK_TRAINED));
    }
    json_t *o =
        json_pack("{s:s,s:o,s:o,s:o,s:o}", "label", inspect_label_name(r->label), "ids",
                  cli_id_list(r->ids, r->n), "trained", trained, "roles", roles, "pieces", pieces);
    if (!x->t) json_object_set_new(o, "pieces", json_null());
    if (r->label == LABEL_NONE) json_object_del(o, "label");
    return o;
}

static json_t *counts_json(const inspect_source *s) {
    json_t *roles = json_object();
    for (int k = 0; k < INSPECT_ROLES; k++)
        json_object_set_new(roles, inspect_role_name(k),
                            json_pack("{s:I,s:I}", "tokens", (json_int_t)s->c.role_tokens[k],
                                      "documents", (json_int_t)s->c.role_documents[k]));
    return json_pack("{s:o,s:I,s:I,s:I,s:o}", "source", json_cstr(s->name), "documents",
                     (json_int_t)s->c.documents, "tokens", (json_int_t)s->c.tokens, "trained",
                     (json_int_t)s->c.trained, "roles", roles);
}

json_t *inspect_audit_json(const inspection *x) {
    json_t *list = json_array();
    for (int i = 0; i < x->n_sources; i++) json_array_append_new(list, counts_json(&x->source[i]));
    return list;
}
