/* See chunk.h. chunk_next steps from record to record by format; build_document turns the fields of
 * one into a document, whose text lies in the record itself where nothing had to be unescaped. */
#include "data/text/chunk.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/utf8.h"
#include "data/text/charset.h"
#include "data/text/json_record.h"

/* ---- bad records ---- */

/* The start of a record for people: one line, ASCII and whole characters only. */
static char *printable(const char *s, size_t n) {
    strbuf out = {0};
    for (size_t i = 0; i < n && out.len < BAD_START_BYTES;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len == 0 || cp < 0x20 || cp == 0x7f)
            strbuf_putc(&out, len ? ' ' : '?');
        else
            strbuf_append(&out, s + i, (size_t)len);
        i += len ? (size_t)len : 1;
    }
    strbuf_puts(&out, "");
    return out.data ? out.data : xstrdup("");
}

void chunk_add_bad(chunk *c, const char *record, size_t len, const char *hint, const char *fmt,
                   ...) {
    c->bad++;
    if (c->n_samples == BAD_SAMPLES) return;
    char why[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    c->sample[c->n_samples++] = (bad_record){.line = c->line,
                                             .why = xstrdup(why),
                                             .start = printable(record, len),
                                             .hint = hint ? xstrdup(hint) : NULL};
}

/* ---- documents from fields ---- */

/* Where a piece of a document lies: in the record, or at an offset of c->text, which may move. */
typedef struct place {
    const char *in_record;
    size_t offset, len;
} place;

/* Rows of Parquet come as JSON. */
static bool is_json(const chunk *c) {
    return c->format == READER_JSONL || c->format == READER_PARQUET;
}

static void append_value(chunk *c, const field_value *v) {
    if (!v->escaped) {
        strbuf_append(&c->text, v->s, v->len);
        return;
    }
    size_t before = c->text.len;
    char *room = strbuf_extend(&c->text, v->len);
    size_t n = is_json(c) ? json_record_unescape(v->s, v->len, room)
                          : csv_record_unescape(v->s, v->len, room);
    strbuf_truncate(&c->text, before + n);
}

static void add_missing(chunk *c, const char *record, size_t len, const field_path *f,
                        value_kind kind) {
    char hint[256];
    size_t key_len;
    const char *key = json_record_first_key(record, len, &key_len);
    if (kind != VALUE_NONE)
        chunk_add_bad(c, record, len, NULL, "does not hold text in field %s", f->name);
    else if (key && snprintf(hint, sizeof hint,
                             "name the field that holds the text: field=NAME (the record has "
                             "\"%.*s\")",
                             (int)(key_len < 64 ? key_len : 64), key) > 0)
        chunk_add_bad(c, record, len, hint, "has no field %s", f->name);
    else
        chunk_add_bad(c, record, len, NULL, "has no field %s", f->name);
}

/* Without a template the field has to hold text; in one, numbers will do, and null is empty. */
static bool is_usable(const chunk *c, const field_value *v) {
    if (v->kind == VALUE_TEXT) return true;
    return c->fields->is_template && (v->kind == VALUE_SCALAR || v->kind == VALUE_NULL);
}

static bool place_text(chunk *c, const char *record, size_t len, const field_value *value,
                       place *out) {
    const record_fields *f = c->fields;
    *out = (place){.offset = c->text.len};
    for (int i = 0; i < f->n_pieces; i++) {
        const template_piece *piece = &f->piece[i];
        if (piece->field < 0) {
            strbuf_append(&c->text, piece->text, piece->len);
            continue;
        }
        const field_value *v = &value[piece->field];
        if (!is_usable(c, v)) {
            add_missing(c, record, len, &f->field[piece->field], v->kind);
            return false;
        }
        if (f->n_pieces == 1 && !v->escaped && v->kind == VALUE_TEXT) {
            *out = (place){.in_record = v->s, .len = v->len};
            return true;
        }
        if (v->kind != VALUE_NULL) append_value(c, v);
    }
    out->len = c->text.len - out->offset;
    return true;
}

/* A label or an id, with a NUL after it; false when there is none. */
static bool place_extra(chunk *c, const field_value *value, int field, size_t *offset) {
    if (field < 0) return false;
    const field_value *v = &value[field];
    if (v->kind != VALUE_TEXT && v->kind != VALUE_SCALAR) return false;
    *offset = c->text.len;
    append_value(c, v);
    strbuf_append(&c->text, "", 1);
    return true;
}

static double number_of(const chunk *c, const field_value *value) {
    char text[64], *end;
    int field = c->fields->score;
    if (field < 0) return NAN;
    const field_value *v = &value[field];
    if (v->len == 0 || v->len >= sizeof text) return NAN;
    if (v->kind != VALUE_TEXT && v->kind != VALUE_SCALAR) return NAN;
    memcpy(text, v->s, v->len);
    text[v->len] = '\0';
    double x = strtod(text, &end);
    return *end == '\0' && isfinite(x) ? x : NAN;
}

/* False when the record is bad (then tallied) or its text is empty. */
static bool build_document(chunk *c, const char *record, size_t len, const field_value *value,
                           document *doc) {
    place text;
    size_t label = 0, id = 0;
    strbuf_clear(&c->text);
    if (!place_text(c, record, len, value, &text)) return false;
    if (text.len == 0) return false;
    bool has_label = place_extra(c, value, c->fields->label, &label);
    bool has_id = place_extra(c, value, c->fields->id, &id);
    const char *own = strbuf_cstr(&c->text);
    *doc = (document){.text = text.in_record ? text.in_record : own + text.offset,
                      .len = text.len,
                      .source = c->source,
                      .line = c->line,
                      .offset = c->offset + (uint64_t)(record - c->data),
                      .label = has_label ? own + label : NULL,
                      .id = has_id ? own + id : NULL,
                      .score = number_of(c, value)};
    return true;
}

/* ---- JSONL ---- */

static bool is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') return false;
    return true;
}

static bool read_json(chunk *c, const char *line, size_t len, document *doc) {
    field_value value[FIELDS_MAX];
    json_problem problem;
    bool is_object;
    c->records++;
    if (!json_record_scan(line, len, c->fields, value, &is_object, &problem)) {
        if (c->format == READER_PARQUET)
            chunk_add_bad(c, line, len, NULL, "cannot be read: %s", problem.why);
        else
            chunk_add_bad(c, line, len,
                          "JSONL has one object a line; for plain text use format=text",
                          "is not JSON: %s, at byte %zu", problem.why, problem.at + 1);
        return false;
    }
    if (is_object) return build_document(c, line, len, value, doc);
    chunk_add_bad(c, line, len, "JSONL has one object a line; for plain text use format=text",
                  "is not a JSON object");
    return false;
}

static bool next_json(chunk *c, document *doc) {
    while (c->at < c->len) {
        const char *line = c->data + c->at;
        const char *end = memchr(line, '\n', c->len - c->at);
        size_t len = end ? (size_t)(end - line) : c->len - c->at;
        c->at += len + (end != NULL);
        bool given = !is_blank(line, len) && read_json(c, line, len, doc);
        c->line++;
        if (given) return true;
    }
    return false;
}

/* ---- CSV and TSV ---- */

static bool values_are_text(chunk *c, const char *record, size_t len, const field_value *value) {
    for (int i = 0; i < c->fields->n; i++) {
        const field_value *v = &value[i];
        if (v->len && memchr(v->s, 0, v->len)) {
            chunk_add_bad(c, record, len, NULL, "holds a NUL byte");
            return false;
        }
        if (utf8_valid_prefix(v->s, v->len) < v->len) {
            chunk_add_bad(c, record, len, "name the charset: charset=NAME",
                          "holds bytes that are not UTF-8");
            return false;
        }
    }
    return true;
}

static bool read_csv(chunk *c, const char *record, size_t len, const field_value *value,
                     int columns, const char *why, document *doc) {
    c->records++;
    if (why)
        chunk_add_bad(c, record, len, NULL, "%s", why);
    else if (columns != c->columns->n)
        chunk_add_bad(c, record, len, NULL, "has %d columns, the header names %d", columns,
                      c->columns->n);
    else
        return values_are_text(c, record, len, value) && build_document(c, record, len, value, doc);
    return false;
}

static bool next_csv(chunk *c, document *doc) {
    while (c->at < c->len) {
        field_value value[FIELDS_MAX];
        const char *record = c->data + c->at, *why;
        int columns;
        size_t len = csv_record_scan(record, c->len - c->at, c->dialect, c->columns, c->fields->n,
                                     value, &columns, &why);
        c->at += len;
        bool given = columns > 0 && read_csv(c, record, len, value, columns, why, doc);
        c->line += count_lines(record, len);
        if (given) return true;
    }
    return false;
}

/* ---- text ---- */

static bool next_text(chunk *c, document *doc) {
    if (c->at > 0) return false;
    c->at = 1;
    if (c->len == 0) return false;
    c->records++;
    if (!chunk_prepare_text(c)) return false;
    *doc = (document){.text = c->copied ? strbuf_cstr(&c->text) : c->data,
                      .len = c->copied ? c->text.len : c->len,
                      .source = c->source,
                      .score = NAN};
    size_t n_mark = doc->len < 3 ? doc->len : 3;
    if (chunk_need(c, doc->text, n_mark, &c->failure) != ST_OK) return false;
    n_mark = utf8_mark(doc->text, n_mark);
    doc->text += n_mark;
    doc->len -= n_mark;
    return doc->len > 0;
}

/* ---- all ---- */

bool chunk_next(chunk *c, document *doc) {
    bool more = false;
    switch (c->format) {
        case READER_AUTO: break; /* resolved by the reader */
        case READER_TEXT: more = next_text(c, doc); break;
        case READER_JSONL:
        case READER_PARQUET: more = next_json(c, doc); break;
        case READER_CSV:
        case READER_TSV: more = next_csv(c, doc); break;
    }
    c->documents += more;
    return more;
}

size_t chunk_bytes(const chunk *c) {
    return c->len;
}

void chunk_free(chunk *c) {
    if (!c) return;
    for (int i = 0; i < c->n_samples; i++) {
        free(c->sample[i].why);
        free(c->sample[i].start);
        free(c->sample[i].hint);
    }
    if (c->space) {
        munmap(c->space, c->len);
        close(c->fd);
    }
    free(c->own);
    strbuf_free(&c->text);
    free(c);
}
