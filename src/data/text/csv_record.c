/* See csv_record.h. Both ways through the bytes agree on where a record ends: csv_whole_records
 * looks only at quotes and line ends, csv_record_scan also at separators. */
#include "data/text/csv_record.h"

#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"

/* The quote that closes a field (from: after the opening one); NULL when there is none. *doubled:
 * there were doubled ones before it. */
static const char *closing_quote(const char *from, const char *end, bool *doubled) {
    *doubled = false;
    for (;;) {
        const char *q = from < end ? memchr(from, '"', (size_t)(end - from)) : NULL;
        if (!q || q + 1 == end || q[1] != '"') return q;
        *doubled = true;
        from = q + 2;
    }
}

static bool opens(const char *s, const char *quote, char separator) {
    return quote == s || quote[-1] == separator || quote[-1] == '\n';
}

size_t csv_whole_records(const char *s, size_t n, csv_dialect d, bool final, size_t *open_quote) {
    const char *end = s + n, *p = s, *whole = s;
    *open_quote = n;
    while (p < end) {
        /* Outside quotes: the line ends up to the next quote are ends of records. */
        const char *quote = d.quotes ? memchr(p, '"', (size_t)(end - p)) : NULL;
        const char *stop = quote ? quote : end;
        const char *line = memrchr(p, '\n', (size_t)(stop - p));
        if (line) whole = line + 1;
        if (!quote) break;
        p = quote + 1;
        if (!opens(s, quote, d.separator)) continue;
        bool doubled;
        const char *close = closing_quote(p, end, &doubled);
        /* A quote at the very end may be the first of two. */
        if (!close || (close + 1 == end && !final)) {
            *open_quote = (size_t)(quote - s);
            break;
        }
        p = close + 1;
    }
    return final ? n : (size_t)(whole - s);
}

/* To the separator or line end, eight bytes at a time; the lowest bit that is set is right. */
static const char *skip_cell(const char *p, const char *end, char separator) {
    const uint64_t each = UINT64_C(0x0101010101010101), high = each << 7;
    for (uint64_t w; end - p >= 8; p += 8) {
        memcpy(&w, p, 8);
        uint64_t a = w ^ each * (uint8_t)separator, b = w ^ each * '\n';
        uint64_t found = (((a - each) & ~a) | ((b - each) & ~b)) & high;
        if (found) return p + __builtin_ctzll(found) / 8;
    }
    while (p < end && *p != separator && *p != '\n') p++;
    return p;
}

/* One field from p on: fills v, returns where its separator or line end is, or `end`. */
static const char *scan_field(const char *p, const char *end, csv_dialect d, field_value *v,
                              const char **why) {
    bool doubled = false, quoted = d.quotes && p < end && *p == '"';
    const char *from = p, *close = NULL;
    if (quoted) {
        from = p + 1;
        close = closing_quote(from, end, &doubled);
        if (!close) *why = "has a quote that is not closed";
        p = close ? close + 1 : end;
    }
    const char *after = p;
    p = skip_cell(p, end, d.separator);
    const char *stop = p < end && *p == '\n' && p > after && p[-1] == '\r' ? p - 1 : p;
    if (p == end && p > after && p[-1] == '\r') stop = p - 1;
    if (quoted && close && stop > after) *why = "has text after a closing quote";
    const char *to = quoted ? close ? close : end : stop;
    *v = (field_value){VALUE_TEXT, from, (size_t)(to - from), doubled};
    return p;
}

static bool is_empty_line(const char *s, const char *end, const char **after) {
    if (s < end && *s == '\r') s++;
    if (s < end && *s != '\n') return false;
    *after = s < end ? s + 1 : end;
    return true;
}

size_t csv_record_scan(const char *s, size_t n, csv_dialect d, const csv_columns *c, int n_fields,
                       field_value *value, int *columns, const char **why) {
    const char *p = s, *end = s + n;
    *columns = 0;
    *why = NULL;
    for (int i = 0; i < n_fields; i++) value[i] = (field_value){0};
    if (is_empty_line(s, end, &p)) return (size_t)(p - s);
    for (;;) {
        field_value v;
        p = scan_field(p, end, d, &v, why);
        int at = (*columns)++, field = at < c->n ? c->field[at] : -1;
        if (field >= 0) value[field] = v;
        if (p == end) return n;
        if (*p++ == '\n') return (size_t)(p - s);
    }
}

size_t csv_record_unescape(const char *s, size_t n, char *out) {
    const char *end = s + n;
    char *to = out;
    while (s < end) {
        const char *q = memchr(s, '"', (size_t)(end - s));
        size_t take = q ? (size_t)(q + 1 - s) : (size_t)(end - s);
        memcpy(to, s, take);
        to += take;
        s += take + (q != NULL); /* of two quotes one */
    }
    return (size_t)(to - out);
}

/* Line ends, eight bytes at a time. */
uint32_t count_lines(const char *s, size_t n) {
    const uint64_t low7 = UINT64_C(0x7f7f7f7f7f7f7f7f), ends = UINT64_C(0x0a0a0a0a0a0a0a0a);
    uint64_t w, lines = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&w, s + i, 8);
        w ^= ends;
        lines += (uint64_t)__builtin_popcountll(~(((w & low7) + low7) | w | low7));
    }
    for (; i < n; i++) lines += s[i] == '\n';
    return (uint32_t)lines;
}

/* ---- header ---- */

static int field_named(const record_fields *f, const char *name, size_t len) {
    for (int i = 0; i < f->n; i++)
        if (strlen(f->field[i].name) == len && memcmp(f->field[i].name, name, len) == 0) return i;
    return -1;
}

static status no_column(const record_fields *f, uint32_t missing, const char *path,
                        const strbuf *names, err *e) {
    int i = __builtin_ctz(missing);
    const char *extra = i == f->label   ? "label"
                        : i == f->id    ? "id"
                        : i == f->score ? "score"
                                        : NULL;
    err_set(e, ST_FORMAT, "%s has no column %s", path, f->field[i].name);
    err_where(e, "%s:1", path);
    return err_hint(e, "name the column that holds the %s: %s=NAME (it has %s)",
                    extra ? extra : "text", extra ? extra : "field", strbuf_cstr(names));
}

status csv_columns_parse(csv_columns *c, arena *a, const char *path, const char *s, size_t n,
                         csv_dialect d, const record_fields *f, err *e) {
    const char *p = s, *end = s + n, *why = NULL;
    strbuf names = {0}, name = {0};
    uint32_t found = 0;
    int cap = 0;
    *c = (csv_columns){0};
    do {
        field_value v;
        p = scan_field(p, end, d, &v, &why);
        strbuf_clear(&name);
        char *room = strbuf_extend(&name, v.len);
        if (v.escaped)
            strbuf_truncate(&name, csv_record_unescape(v.s, v.len, room));
        else
            memcpy(room, v.s, v.len);
        int field = field_named(f, name.data, name.len);
        if (field >= 0) found |= 1u << field;
        c->field = arena_grow(a, c->field, c->n, &cap, sizeof *c->field);
        c->field[c->n++] = field;
        if (names.len < 200) strbuf_printf(&names, "%s%s", names.len ? ", " : "", name.data);
    } while (p < end && *p++ != '\n');
    status st = ST_OK;
    if (why) {
        err_set(e, ST_FORMAT, "%s: its first record, which names the columns, %s", path, why);
        st = err_where(e, "%s:1", path);
    } else if (~found & f->needed) {
        st = no_column(f, ~found & f->needed, path, &names, e);
    }
    strbuf_free(&names);
    strbuf_free(&name);
    return st;
}
