#include "data/chat/audit.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

/* Lengths are told exactly up to here. */
enum { LONGEST_COUNTED = 1 << 16 };

typedef struct tally {
    char *name;
    uint64_t samples, tokens, trained, no_system;
} tally;

typedef struct column {
    char *name;
    char *first; /* "FILE:LINE" of the first record that has it */
    uint64_t present, empty;
} column;

/* A prompt and how it is answered. */
typedef struct asked {
    uint64_t prompt;
    bool thinks;
} asked;

struct chat_audit {
    uint64_t samples, documents, left_out, no_system, think, no_think, stops;
    tally *source;
    int n_sources, cap_sources;
    tally role[MARK_ROLES];
    column *columns;
    int n_columns, cap_columns;
    asked *asked;
    size_t n_asked, cap_asked;
    uint64_t *length; /* [LONGEST_COUNTED + 1] documents of that many tokens; the last: longer */
    uint64_t longest;
    uint64_t found[CHAT_CHECKS];
    char *first[CHAT_CHECKS];
    char *first_sample;
};

chat_audit *chat_audit_new(void) {
    chat_audit *a = xcalloc(1, sizeof *a);
    a->length = xcalloc(LONGEST_COUNTED + 1, sizeof *a->length);
    return a;
}

void chat_audit_free(chat_audit *a) {
    if (!a) return;
    for (int i = 0; i < a->n_sources; i++) free(a->source[i].name);
    for (int i = 0; i < a->n_columns; i++) {
        free(a->columns[i].name);
        free(a->columns[i].first);
    }
    for (int c = 0; c < CHAT_CHECKS; c++) free(a->first[c]);
    free(a->source);
    free(a->columns);
    free(a->asked);
    free(a->length);
    free(a->first_sample);
    free(a);
}

const char *chat_role_name(mark_role role) {
    static const char *const NAMES[MARK_ROLES] = {"template",  "system", "user",
                                                  "assistant", "tool",   "reasoning"};
    return NAMES[role];
}

/* ---- columns ---- */

static bool is_empty(const json_t *v) {
    const char *s = json_string_value(v);
    if (s) return s[strspn(s, " \t\r\n")] == '\0' && strlen(s) == json_string_length(v);
    return (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static void add_column(chat_audit *a, const char *name, const json_t *value, const char *place) {
    int i = 0;
    if (json_is_null(value)) return;
    while (i < a->n_columns && strcmp(a->columns[i].name, name) != 0) i++;
    if (i == a->n_columns) {
        column c = {.name = xstrdup(name), .first = xstrdup(place)};
        VEC_PUSH(a->columns, a->n_columns, a->cap_columns, c);
    }
    a->columns[i].present++;
    a->columns[i].empty += is_empty(value);
}

void chat_audit_record(chat_audit *a, const json_t *record, const char *place) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)record, key, value) if (chat_column_is_read(key))
        add_column(a, key, value, place);
    json_object_foreach(json_object_get(record, "chat_template_kwargs"), key, value)
        add_column(a, key, value, place);
}

/* ---- samples ---- */

static tally *source_of(chat_audit *a, const char *name) {
    for (int i = a->n_sources - 1; i >= 0; i--)
        if (strcmp(a->source[i].name, name) == 0) return &a->source[i];
    tally t = {.name = xstrdup(name)};
    VEC_PUSH(a->source, a->n_sources, a->cap_sources, t);
    return &a->source[a->n_sources - 1];
}

static void note(chat_audit *a, int check, const char *place) {
    a->found[check]++;
    if (!a->first[check]) a->first[check] = xstrdup(place);
}

static void add_document(chat_audit *a, tally *source, const chat_document *d) {
    for (int64_t i = 0; i < d->ids.n; i++) {
        tally *role = &a->role[mark_get_role(d->marks[i])];
        bool trained = d->marks[i] & MARK_TRAINED;
        role->tokens++;
        role->trained += trained;
        source->trained += trained;
    }
    uint64_t n = (uint64_t)d->ids.n;
    source->tokens += n;
    a->length[n < LONGEST_COUNTED ? n : LONGEST_COUNTED]++;
    if (n > a->longest) a->longest = n;
    a->documents++;
    a->stops += d->ends_by_stop;
}

static const json_t *first_of(const chat_sample *s, const char *role) {
    for (size_t i = 0; i < json_array_size(s->messages); i++)
        if (chat_is_role(json_array_get(s->messages, i), role))
            return json_array_get(s->messages, i);
    return NULL;
}

/* Whether a sample says that it is answered without reasoning: by the variable of templates, or by the
 * switch in its text. */
static bool is_switched_off(const chat_sample *s) {
    if (json_is_false(json_object_get(s->variables, "enable_thinking"))) return true;
    for (size_t i = 0; i < json_array_size(s->messages); i++) {
        const json_t *m = json_array_get(s->messages, i);
        const char *text = json_string_value(json_object_get(m, "content"));
        if (!chat_is_role(m, "assistant") && text && strstr(text, "/no_think")) return true;
    }
    return false;
}

static void add_thinking(chat_audit *a, const chat_sample *s, bool reasons) {
    bool off = is_switched_off(s);
    a->think += reasons;
    a->no_think += off && !reasons;
    const json_t *content = json_object_get(first_of(s, "user"), "content");
    if (!json_is_string(content) || (!reasons && !off)) return;
    asked q = {hash_bytes(json_string_value(content), json_string_length(content)), reasons};
    VEC_PUSH(a->asked, a->n_asked, a->cap_asked, q);
}

void chat_audit_sample(chat_audit *a, const chat_sample *s, const char *source, const char *place,
                       const chat_document *docs, int n) {
    tally *t = source_of(a, source);
    bool reasons = false, kept = false;
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < CHAT_CHECKS; c++)
            if (docs[i].found & 1u << c) note(a, c, place);
        if (docs[i].ids.n == 0) continue;
        kept = true;
        reasons = reasons || docs[i].reasons;
        add_document(a, t, &docs[i]);
    }
    if (!kept) {
        a->left_out++;
        return;
    }
    bool no_system = !first_of(s, "system");
    if (!a->first_sample) a->first_sample = xstrdup(place);
    a->samples++;
    t->samples++;
    a->no_system += no_system;
    t->no_system += no_system;
    add_thinking(a, s, reasons);
}

/* ---- the whole set ---- */

static status fired(chat_audit *a, chat_check c, const char *place, const char *detail,
                    uint32_t allowed, err *e) {
    if (allowed & 1u << c) {
        note(a, c, place);
        return ST_OK;
    }
    status st = chat_check_error(c, detail, e);
    err_context(e, "%s", place);
    err_where(e, "%s", place);
    return st;
}

status chat_audit_check(chat_audit *a, uint32_t allowed, err *e) {
    for (int i = 0; i < a->n_columns; i++) {
        const column *c = &a->columns[i];
        if (c->empty == c->present)
            TRY(fired(a, CHECK_EMPTY_COLUMN, c->first, c->name, allowed, e));
    }
    if (a->documents > 0 && a->stops == 0)
        TRY(fired(a, CHECK_STOP_UNTRAINED, a->first_sample, NULL, allowed, e));
    return ST_OK;
}

/* ---- as JSON ---- */

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

static json_t *whole(uint64_t n) {
    return json_integer((json_int_t)n);
}

static uint64_t length_at(const chat_audit *a, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)a->documents), seen = 0;
    for (uint64_t n = 0; n < LONGEST_COUNTED; n++) {
        seen += a->length[n];
        if (seen > rank) return n;
    }
    return a->longest;
}

static int compare_asked(const void *x, const void *y) {
    const asked *a = x, *b = y;
    if (a->prompt != b->prompt) return a->prompt < b->prompt ? -1 : 1;
    return (int)a->thinks - (int)b->thinks;
}

/* Prompts that are answered with reasoning and without. */
static uint64_t count_paired(chat_audit *a) {
    uint64_t paired = 0;
    if (a->n_asked > 0) qsort(a->asked, a->n_asked, sizeof *a->asked, compare_asked);
    for (size_t i = 1; i < a->n_asked; i++)
        paired += a->asked[i].prompt == a->asked[i - 1].prompt && a->asked[i].thinks &&
                  !a->asked[i - 1].thinks;
    return paired;
}

static json_t *sources_json(const chat_audit *a, uint64_t tokens) {
    json_t *list = json_array();
    for (int i = 0; i < a->n_sources; i++) {
        const tally *t = &a->source[i];
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "path", json_cstr(t->name), "samples",
                            whole(t->samples), "samples_share",
                            json_f64(share(t->samples, a->samples)), "tokens", whole(t->tokens),
                            "tokens_share", json_f64(share(t->tokens, tokens)), "trained_tokens",
                            whole(t->trained), "no_system", whole(t->no_system)));
    }
    return list;
}

static json_t *roles_json(const chat_audit *a, uint64_t tokens) {
    json_t *o = json_object();
    for (int r = 0; r < MARK_ROLES; r++) {
        const tally *t = &a->role[r];
        if (t->tokens == 0) continue;
        json_object_set_new(o, chat_role_name((mark_role)r),
                            json_pack("{s:o,s:o,s:o}", "tokens", whole(t->tokens), "tokens_share",
                                      json_f64(share(t->tokens, tokens)), "trained_tokens",
                                      whole(t->trained)));
    }
    return o;
}

static json_t *checks_json(const chat_audit *a) {
    json_t *list = json_array();
    for (int c = 0; c < CHAT_CHECKS; c++)
        if (a->found[c])
            json_array_append_new(list,
                                  json_pack("{s:s,s:s,s:o,s:o}", "name", chat_checks[c].name,
                                            "what", chat_checks[c].what, "count",
                                            whole(a->found[c]), "first", json_cstr(a->first[c])));
    return list;
}

json_t *chat_audit_json(chat_audit *a) {
    uint64_t tokens = 0, trained = 0;
    for (int r = 0; r < MARK_ROLES; r++) {
        tokens += a->role[r].tokens;
        trained += a->role[r].trained;
    }
    json_t *o = json_pack("{s:o,s:o,s:o,s:o,s:o}", "samples", whole(a->samples), "documents",
                          whole(a->documents), "tokens", whole(tokens), "trained_tokens",
                          whole(trained), "left_out", whole(a->left_out));
    json_object_set_new(o, "lengths",
                        json_pack("{s:o,s:o,s:o,s:o}", "p50", whole(length_at(a, 0.5)), "p90",
                                  whole(length_at(a, 0.9)), "p99", whole(length_at(a, 0.99)), "max",
                                  whole(a->longest)));
    json_object_set_new(o, "sources", sources_json(a, tokens));
    json_object_set_new(o, "roles", roles_json(a, tokens));
    json_object_set_new(o, "no_system", whole(a->no_system));
    json_object_set_new(o, "thinking",
                        json_pack("{s:o,s:o,s:o}", "think", whole(a->think), "no_think",
                                  whole(a->no_think), "paired_prompts", whole(count_paired(a))));
    json_object_set_new(o, "checks", checks_json(a));
    return o;
}
