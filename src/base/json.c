/* Writing: jansson prints all reals of a value with one precision, this printer finds the least for
 * each. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

status json_read_file(json_t **out, const char *path, int64_t most_bytes, err *e) {
    char *text;
    size_t len;
    json_error_t why;
    *out = NULL;
    TRY(file_read_part(path, most_bytes, &text, &len, e));
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (*out) return ST_OK;
    err_set(e, ST_FORMAT, "%s is not JSON: %s", path, why.text);
    err_hint(e, "the file is damaged; fetch it again, or restore it from a copy");
    err_where(e, "%s:%d", path, why.line);
    return ST_FORMAT;
}

json_t *json_f32(double exact) {
    char text[32];
    float value = (float)exact;
    if (!isfinite(value)) return json_null();
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return json_real(strtod(text, NULL));
}

json_t *json_f64(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* A real keeps a point or an exponent, so that it reads back as a real. Whole numbers that a double
 * counts exactly are written out. */
static void format_real(strbuf *out, double value) {
    char text[40];
    if (value == rint(value) && fabs(value) < 1e15) {
        strbuf_printf(out, "%.1f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    strbuf_puts(out, text);
    if (!strpbrk(text, ".e")) strbuf_puts(out, ".0");
}

/* What YAML does not take as it stands: U+0085, U+2028 and U+2029 end a line there, other controls and U+FEFF are refused or
 * left out. JSON may be read as YAML, as configs are. */
static bool needs_escape(uint32_t c) {
    return (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe ||
           c == 0xffff;
}

static void put_escaped(strbuf *out, const char *text) {
    static const char LEADS[] = "\x7f\xc2\xe2\xef"; /* first bytes of these */
    while (*text) {
        size_t n = strcspn(text, LEADS);
        strbuf_append(out, text, n);
        text += n;
        if (!*text) break;
        uint32_t c = utf8_next(text, &n);
        if (needs_escape(c))
            strbuf_printf(out, "\\u%04X", (unsigned)c);
        else
            strbuf_append(out, text, n);
        text += n;
    }
}

/* All but reals, as jansson writes them. */
static void format_scalar(strbuf *out, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    put_escaped(out, text);
    free(text);
}

static void format_key(strbuf *out, const char *key) {
    json_t *value = json_string(key);
    format_scalar(out, value);
    json_decref(value);
    strbuf_putc(out, ':');
}

static bool is_flat(const json_t *array) {
    json_t *item;
    size_t i;
    json_array_foreach(array, i, item) {
        if (json_is_object(item) || json_is_array(item)) return false;
    }
    return true;
}

static void new_line(strbuf *out, int spaces, bool wanted) {
    if (wanted) strbuf_printf(out, "\n%*s", spaces, "");
}

static void format_value(strbuf *out, const json_t *value, int indent, int level);

static void format_array(strbuf *out, const json_t *array, int indent, int level) {
    bool lines = indent && !is_flat(array);
    json_t *item;
    size_t i;
    strbuf_putc(out, '[');
    json_array_foreach(array, i, item) {
        if (i) strbuf_puts(out, lines ? "," : ", ");
        new_line(out, indent * (level + 1), lines);
        format_value(out, item, indent, level + 1);
    }
    new_line(out, indent * level, lines);
    strbuf_putc(out, ']');
}

static void format_object(strbuf *out, const json_t *object, int indent, int level) {
    bool lines = indent && json_object_size(object) > 0, first = true;
    const char *key;
    json_t *item;
    strbuf_putc(out, '{');
    json_object_foreach((json_t *)object, key, item) {
        if (!first) strbuf_puts(out, lines ? "," : ", ");
        first = false;
        new_line(out, indent * (level + 1), lines);
        format_key(out, key);
        strbuf_putc(out, ' ');
        format_value(out, item, indent, level + 1);
    }
    new_line(out, indent * level, lines);
    strbuf_putc(out, '}');
}

static void format_value(strbuf *out, const json_t *value, int indent, int level) {
    switch (json_typeof(value)) {
        case JSON_OBJECT: format_object(out, value, indent, level); break;
        case JSON_ARRAY: format_array(out, value, indent, level); break;
        case JSON_REAL: format_real(out, json_real_value(value)); break;
        default: format_scalar(out, value); break;
    }
}

void json_format(strbuf *out, const json_t *value, int indent) {
    format_value(out, value, indent, 0);
}

json_t *json_hash(uint64_t hash) {
    char hex[17];
    hash_format(hash, hex);
    return json_string(hex);
}

json_t *json_text(const char *bytes, size_t len) {
    strbuf clean = {0};
    utf8_append(&clean, bytes, len);
    json_t *s = json_stringn(strbuf_cstr(&clean), clean.len);
    strbuf_free(&clean);
    return s;
}

json_t *json_cstr(const char *text) {
    return text ? json_text(text, strlen(text)) : json_null();
}

void json_put_text(strbuf *out, const char *text) {
    json_t *value = json_cstr(text);
    json_format(out, value, 0);
    json_decref(value);
}

const char *json_quoted(arena *a, const char *text) {
    strbuf out = {0};
    json_put_text(&out, text);
    const char *copy = arena_strdup(a, strbuf_cstr(&out));
    strbuf_free(&out);
    return copy;
}
