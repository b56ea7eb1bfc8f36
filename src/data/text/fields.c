/* See fields.h. Names are entered once each, so a field that the template and the label share is
 * looked for once. */
#include "data/text/fields.h"

#include <string.h>

#include "base/strbuf.h"

static status bad_option(err *e, const char *key, const char *value, const char *why) {
    err_at(e, ST_USAGE, key, "%s=%s %s", key, value, why);
    return err_hint(
        e, "a field is named like text or meta.body; a template is like \"{title}: {text}\", "
           "with {{ and }} for braces");
}

static bool split_path(field_path *path) {
    for (const char *p = path->name;;) {
        const char *dot = strchrnul(p, '.');
        if (dot == p || path->n_parts == FIELD_MAX_DEPTH) return false;
        path->part[path->n_parts] = p;
        path->part_len[path->n_parts++] = (size_t)(dot - p);
        if (!*dot) return true;
        p = dot + 1;
    }
}

static status enter(record_fields *f, arena *a, const char *key, const char *name, size_t len,
                    int *number, err *e) {
    field_path path = {.name = arena_strndup(a, name, len)};
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->field[i].name, path.name) == 0) {
            *number = i;
            return ST_OK;
        }
    if (f->n == FIELDS_MAX) return bad_option(e, key, path.name, "is one field too many");
    if (!split_path(&path)) return bad_option(e, key, path.name, "is no name of a field");
    *number = f->n;
    f->field[f->n++] = path;
    return ST_OK;
}

static void add_piece(record_fields *f, arena *a, int *cap, template_piece piece) {
    f->piece = arena_grow(a, f->piece, f->n_pieces, cap, sizeof *f->piece);
    f->piece[f->n_pieces++] = piece;
}

static void add_text(record_fields *f, arena *a, int *cap, strbuf *text) {
    if (text->len == 0) return;
    char *copy = arena_memdup(a, text->data, text->len);
    add_piece(f, a, cap, (template_piece){.field = -1, .text = copy, .len = text->len});
    strbuf_clear(text);
}

static status parse_pieces(record_fields *f, arena *a, const char *template, strbuf *text, err *e) {
    int cap = 0;
    for (const char *p = template; *p;) {
        if ((*p == '{' || *p == '}') && p[1] == *p) {
            strbuf_putc(text, *p);
            p += 2;
        } else if (*p == '}') {
            return bad_option(e, "template", template, "has a } that closes nothing");
        } else if (*p == '{') {
            template_piece piece = {0};
            const char *close = strchr(p, '}');
            if (!close) return bad_option(e, "template", template, "has a { that is not closed");
            add_text(f, a, &cap, text);
            TRY(enter(f, a, "template", p + 1, (size_t)(close - p - 1), &piece.field, e));
            add_piece(f, a, &cap, piece);
            p = close + 1;
        } else {
            strbuf_putc(text, *p++);
        }
    }
    add_text(f, a, &cap, text);
    return f->n ? ST_OK : bad_option(e, "template", template, "names no field");
}

static status parse_template(record_fields *f, arena *a, const char *template, err *e) {
    strbuf text = {0};
    f->is_template = true;
    status st = parse_pieces(f, a, template, &text, e);
    strbuf_free(&text);
    return st;
}

static status parse_text_field(record_fields *f, arena *a, const char *name, err *e) {
    f->piece = ARENA_NEW(a, template_piece);
    f->n_pieces = 1;
    return enter(f, a, "field", name, strlen(name), &f->piece[0].field, e);
}

static status parse_extra(record_fields *f, arena *a, const char *key, const char *name,
                          int *number, err *e) {
    *number = -1;
    return name ? enter(f, a, key, name, strlen(name), number, e) : ST_OK;
}

status record_fields_parse(record_fields *f, arena *a, const reader_options *opt, err *e) {
    *f = (record_fields){0};
    if (opt->template && opt->field) {
        err_at(e, ST_USAGE, "field", "field= does nothing beside template=");
        return err_hint(e, "leave it out, or name the field in the template, as {field}");
    }
    if (opt->template)
        TRY(parse_template(f, a, opt->template, e));
    else
        TRY(parse_text_field(f, a, opt->field ? opt->field : "text", e));
    int n_text = f->n;
    TRY(parse_extra(f, a, "label", opt->label, &f->label, e));
    TRY(parse_extra(f, a, "id", opt->id, &f->id, e));
    TRY(parse_extra(f, a, "score", opt->score, &f->score, e));
    f->needed = f->n == FIELDS_MAX ? UINT32_MAX : (1u << f->n) - 1;
    if (opt->label_may_lack && f->label >= n_text) f->needed &= ~(1u << f->label);
    return ST_OK;
}
