/* format % values, and "{}".format(values) without format specifications. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jinja/run.h"

/* ---- % ---- */

/* One conversion: %(name)-+ 0#width.precision letter. */
typedef struct conversion {
    jv name; /* JV_ABSENT: the next of the values */
    bool left, plus, blank, zero, alternate;
    int64_t width, precision; /* -1: none */
    char letter;
} conversion;

enum {
    MAX_WIDTH = 10000,
    MAX_PRECISION = 300,
    DOUBLE_DIGITS = 309, /* before the point */
};

/* Values that conversions take in turn. */
typedef struct format_args {
    jv all;
    const jseq *tuple; /* NULL: one value */
    int32_t next;
} format_args;

static status next_value(jrun *r, format_args *a, jv *out) {
    int32_t n = a->tuple ? a->tuple->n : 1;
    if (a->next >= n) return jrun_fail(r, "not enough arguments for format string");
    *out = a->tuple ? a->tuple->item[a->next] : a->all;
    a->next++;
    return ST_OK;
}

static status named_value(jrun *r, const format_args *a, jv name, jv *out) {
    jv *value = NULL;
    if (a->all.kind != JV_DICT) return jrun_fail(r, "format requires a mapping");
    TRY(jdict_find(r, a->all.u.dict, name, &value));
    if (!value) return jrun_fail(r, "the format names a key that the mapping lacks");
    *out = *value;
    return ST_OK;
}

/* A width or a precision: digits, or '*' for one of the values. */
static status read_number(jrun *r, format_args *a, const char **s, const char *end, int64_t *out) {
    if (*s < end && **s == '*') {
        jv v;
        TRY(next_value(r, a, &v));
        if (!jv_is_int(v)) return jrun_fail(r, "* wants int");
        *out = jv_as_int(v);
        (*s)++;
        return ST_OK;
    }
    for (*out = 0; *s < end && **s >= '0' && **s <= '9'; (*s)++) {
        if (*out < 1000000) *out = *out * 10 + (**s - '0');
    }
    return ST_OK;
}

static bool read_flag(conversion *c, char flag) {
    switch (flag) {
        case '-': return c->left = true;
        case '+': return c->plus = true;
        case ' ': return c->blank = true;
        case '0': return c->zero = true;
        case '#': return c->alternate = true;
        default: return false;
    }
}

static status read_conversion(jrun *r, format_args *a, const char **s, const char *end,
                              conversion *c) {
    *c = (conversion){.precision = -1};
    if (*s < end && **s == '(') {
        const char *close = memchr(*s, ')', (size_t)(end - *s));
        if (!close) return jrun_fail(r, "incomplete format key");
        c->name = jv_bytes(*s + 1, (size_t)(close - *s) - 1);
        *s = close + 1;
    }
    while (*s < end && read_flag(c, **s)) (*s)++;
    TRY(read_number(r, a, s, end, &c->width));
    if (*s < end && **s == '.') {
        (*s)++;
        TRY(read_number(r, a, s, end, &c->precision));
        if (c->precision < 0) c->precision = 0;
    }
    if (*s == end) return jrun_fail(r, "incomplete format");
    c->letter = *(*s)++;
    if (c->width < -MAX_WIDTH || c->width > MAX_WIDTH || c->precision > MAX_PRECISION) {
        return jrun_fail(r, "a format is too wide");
    }
    if (c->width < 0) {
        c->left = true;
        c->width = -c->width;
    }
    return ST_OK;
}

static void add_padded(jrun *r, const conversion *c, jv s) {
    int64_t lack = c->width - jv_chars(s);
    if (!c->left) jtext_add_times(r, JV_WORD(" "), lack);
    jtext_add_str(r, s);
    if (c->left) jtext_add_times(r, JV_WORD(" "), lack);
}

/* A number through C's printf, which agrees with Python's. */
static status add_number(jrun *r, const conversion *c, jv v) {
    char format[24], buf[MAX_WIDTH + DOUBLE_DIGITS + MAX_PRECISION];
    bool whole = strchr("diuxXo", c->letter) != NULL, based = strchr("xXo", c->letter) != NULL;
    TRY(jrun_require(r, v));
    if (!jv_is_number(v) || (v.kind == JV_FLOAT && based)) {
        return jrun_fail(r, "%%%c format: a number is required, not %s", c->letter, jv_type(v));
    }
    snprintf(format, sizeof(format), "%%%s%s%s%s%s*%s%s%c", c->left ? "-" : "", c->plus ? "+" : "",
             c->blank ? " " : "", c->zero ? "0" : "", c->alternate ? "#" : "",
             c->precision >= 0 ? ".*" : "", whole ? "ll" : "", whole && !based ? 'd' : c->letter);
    int width = (int)c->width, precision = (int)c->precision;
    if (whole) {
        if (v.kind == JV_FLOAT && !(fabs(v.u.f) < 9e18)) {
            return jrun_fail(r, "a number does not fit in 64 bits");
        }
        long long i = v.kind == JV_FLOAT ? (long long)v.u.f : jv_as_int(v);
        if (based && i < 0) return jrun_fail(r, "%%%c of a negative number", c->letter);
        if (precision >= 0)
            snprintf(buf, sizeof(buf), format, width, precision, i);
        else
            snprintf(buf, sizeof(buf), format, width, i);
    } else if (precision >= 0) {
        snprintf(buf, sizeof(buf), format, width, precision, jv_as_float(v));
    } else {
        snprintf(buf, sizeof(buf), format, width, jv_as_float(v));
    }
    jtext_puts(r, buf);
    return jrun_spend(r, whole ? 1 : JFLOAT_STEPS + jcost_walk((int64_t)strlen(buf)));
}

static status add_text(jrun *r, const conversion *c, jv v) {
    size_t start = jtext_begin(r);
    jv s;
    TRY(c->letter == 's' ? jv_add_str(r, v) : jv_add_repr(r, v));
    TRY(jtext_take(r, start, &s));
    if (c->precision >= 0) s = jv_part(s, 0, jv_byte_of(s, c->precision));
    add_padded(r, c, s);
    return jrun_spend(r, jcost_search(s.n));
}

static status add_conversion(jrun *r, format_args *a, const conversion *c) {
    jv v;
    if (c->letter == '%') {
        jtext_putc(r, '%');
        return ST_OK;
    }
    if (!c->letter || !strchr("srdiuxXofFeEgG", c->letter)) {
        return jrun_fail(r, "unsupported format character");
    }
    TRY(c->name.kind == JV_ABSENT ? next_value(r, a, &v) : named_value(r, a, c->name, &v));
    return strchr("sr", c->letter) ? add_text(r, c, v) : add_number(r, c, v);
}

status jstr_format(jrun *r, jv format, jv args, jv *out) {
    format_args a = {.all = args, .tuple = jv_is_seq(args, JSEQ_TUPLE) ? args.u.seq : NULL};
    const char *s = format.u.s, *end = s + format.n;
    size_t start = jtext_begin(r);
    while (s < end) {
        conversion c;
        const char *mark = memchr(s, '%', (size_t)(end - s));
        size_t n = mark ? (size_t)(mark - s) : (size_t)(end - s);
        jtext_add(r, s, n);
        s += n;
        if (!mark) break;
        s++;
        TRY(read_conversion(r, &a, &s, end, &c));
        TRY(jrun_spend(r, 1 + c.width / 16));
        TRY(add_conversion(r, &a, &c));
    }
    bool rest = a.tuple ? a.next < a.tuple->n : a.next == 0 && a.all.kind != JV_DICT;
    bool indexed = a.all.kind == JV_SEQ || a.all.kind == JV_UNDEFINED; /* might be a mapping */
    if (rest && (a.tuple || !indexed)) {
        return jrun_fail(r, "not all arguments converted during string formatting");
    }
    return jtext_take(r, start, out);
}

/* ---- {} ---- */

/* The value of a field: "", a number, or a name. */
static status field_value(jrun *r, jv field, const jargs *args, int32_t *next, jv *out) {
    int64_t index;
    if (jv_is_index(field, &index) || field.n == 0) {
        if (field.n == 0) index = (*next)++;
        if (index >= args->n_pos) return jrun_fail(r, "Replacement index out of range");
        *out = args->pos[index];
        return ST_OK;
    }
    for (int32_t i = 0; i < args->n_kw; i++) {
        bool same;
        TRY(jv_equal(r, args->kw_name[i], field, &same));
        if (!same) continue;
        *out = args->kw[i];
        return ST_OK;
    }
    jrun_fail(r, "\"{%.*s}\".format is not supported", JV_SHOWN(field));
    return err_hint(r->e, "use {}, {0} or {name}, or the filter format with %%s");
}

/* The byte of the next brace from `at`, or the length. */
static uint32_t next_brace(jv s, uint32_t at) {
    while (at < s.n && s.u.s[at] != '{' && s.u.s[at] != '}') at++;
    return at;
}

status jstr_braces(jrun *r, jv format, const jargs *args, jv *out) {
    size_t start = jtext_begin(r);
    int32_t next = 0;
    TRY(jrun_spend(r, jcost_walk(format.n)));
    for (uint32_t at = 0;;) {
        uint32_t brace = next_brace(format, at);
        jtext_add(r, format.u.s + at, brace - at);
        if (brace == format.n) break;
        at = brace + 1;
        if (at < format.n && format.u.s[at] == format.u.s[brace]) { /* twice: itself */
            jtext_putc(r, format.u.s[at++]);
            continue;
        }
        const char *close =
            format.u.s[brace] == '{' ? memchr(format.u.s + at, '}', format.n - at) : NULL;
        if (!close) return jrun_fail(r, "a single { or } in the format string");
        uint32_t end = (uint32_t)(close - format.u.s);
        jv v;
        TRY(field_value(r, jv_part(format, at, end), args, &next, &v));
        TRY(jv_add_str(r, v));
        at = end + 1;
    }
    return jtext_take(r, start, out);
}
