/* The filter tojson: json.dumps of Python. transformers has one of its own, with more arguments and without escaping
 * for HTML; strict templates have that of jinja2. */
#include <math.h>
#include <stdio.h>

#include "jinja/run.h"
#include "base/utf8.h"

typedef struct json_how {
    bool ascii, sort, lines, html;
    jv indent, comma, colon;
} json_how;

static status add_value(jrun *r, const json_how *h, jv v, int level);

/* A unit of UTF-16 as \uXXXX. */
static int put_unit(char *to, uint32_t unit) {
    return snprintf(to, 7, "\\u%04x", unit & 0xFFFFu);
}

static const char *json_escape(const void *how, uint32_t cp, char buf[16]) {
    static const char *const named[] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
        ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    const json_how *h = how;
    bool markup = h->html && (cp == '<' || cp == '>' || cp == '&' || cp == '\'');
    if (cp < ARRAY_LEN(named) && named[cp]) return named[cp];
    if (cp >= 0x20 && !markup && (!h->ascii || cp < 0x7F)) return NULL;
    if (cp < 0x10000) {
        put_unit(buf, cp);
    } else {
        put_unit(buf, 0xD800 + ((cp - 0x10000) >> 10));
        put_unit(buf + 6, 0xDC00 + ((cp - 0x10000) & 0x3FF));
    }
    return buf;
}

static void add_string(jrun *r, const json_how *h, jv s) {
    jtext_putc(r, '"');
    jtext_add_escaped(r, s, json_escape, h);
    jtext_putc(r, '"');
}

static void add_float(jrun *r, double f) {
    if (isnan(f))
        jtext_puts(r, "NaN");
    else if (isinf(f))
        jtext_puts(r, f > 0 ? "Infinity" : "-Infinity");
    else
        jtext_add_float(r, f);
}

/* What stands before item i, or after the last one (i < 0). */
static void add_gap(jrun *r, const json_how *h, int32_t i, int level) {
    if (i > 0) jtext_add_str(r, h->comma);
    if (!h->lines) return;
    jtext_putc(r, '\n');
    jtext_add_times(r, h->indent, level);
}

static status add_list(jrun *r, const json_how *h, const jseq *s, int level) {
    if (s->kind != JSEQ_LIST && s->kind != JSEQ_TUPLE) {
        jrun_fail(r, "an object of type %s is not JSON serializable", jv_type(jv_seq((jseq *)s)));
        return err_hint(r->e, "make it a list: add |list before |tojson");
    }
    jtext_putc(r, '[');
    for (int32_t i = 0; i < s->n; i++) {
        add_gap(r, h, i, level + 1);
        TRY(add_value(r, h, s->item[i], level + 1));
    }
    if (s->n > 0) add_gap(r, h, -1, level);
    jtext_putc(r, ']');
    return ST_OK;
}

static status add_key(jrun *r, const json_how *h, jv key) {
    if (key.kind == JV_STRING) {
        add_string(r, h, key);
        return ST_OK;
    }
    if (key.kind != JV_NONE && !jv_is_number(key)) {
        return jrun_fail(r, "keys of JSON must be strings, numbers or None, not %s", jv_type(key));
    }
    jtext_putc(r, '"');
    TRY(add_value(r, h, key, 0));
    jtext_putc(r, '"');
    return ST_OK;
}

/* The mapping with its keys sorted. */
static status sorted(jrun *r, const jdict *d, const jdict **out) {
    jdict *s = jdict_new(r);
    s->n = d->n;
    s->key = arena_memdup(r->mem, d->key, sizeof(jv) * (size_t)d->n);
    s->value = arena_memdup(r->mem, d->value, sizeof(jv) * (size_t)d->n);
    *out = s;
    return jv_sort(r, s->key, s->value, s->n, false);
}

static status add_dict(jrun *r, const json_how *h, const jdict *d, int level) {
    if (h->sort && d->n > 1) TRY(sorted(r, d, &d));
    jtext_putc(r, '{');
    for (int32_t i = 0; i < d->n; i++) {
        add_gap(r, h, i, level + 1);
        TRY(add_key(r, h, d->key[i]));
        jtext_add_str(r, h->colon);
        TRY(add_value(r, h, d->value[i], level + 1));
    }
    if (d->n > 0) add_gap(r, h, -1, level);
    jtext_putc(r, '}');
    return ST_OK;
}

static status add_nested(jrun *r, const json_how *h, jv v, int level) {
    TRY(jrun_enter(r));
    status st = v.kind == JV_SEQ ? add_list(r, h, v.u.seq, level) : add_dict(r, h, v.u.dict, level);
    r->depth--;
    return st;
}

static status add_value(jrun *r, const json_how *h, jv v, int level) {
    TRY(jrun_spend(r, 1));
    switch (v.kind) {
        case JV_NONE: jtext_puts(r, "null"); return ST_OK;
        case JV_BOOL: jtext_puts(r, v.u.b ? "true" : "false"); return ST_OK;
        case JV_INT: return jv_add_repr(r, v);
        case JV_FLOAT: add_float(r, v.u.f); return jrun_spend(r, JFLOAT_STEPS);
        case JV_STRING: add_string(r, h, v); return ST_OK;
        case JV_SEQ:
        case JV_DICT: return add_nested(r, h, v, level);
        default:
            TRY(jrun_require(r, v));
            return jrun_fail(r, "an object of type %s is not JSON serializable", jv_type(v));
    }
}

/* indent: a number of blanks, or a text; None: one line. */
static status read_indent(jrun *r, jv indent, json_how *h) {
    if (indent.kind == JV_ABSENT || indent.kind == JV_NONE) return ST_OK;
    h->lines = true;
    h->comma = JV_WORD(",");
    if (indent.kind == JV_STRING) {
        h->indent = indent;
        return ST_OK;
    }
    if (!jv_is_int(indent)) return jrun_fail(r, "indent must be a number or a string");
    size_t start = jtext_begin(r);
    int64_t n = jv_as_int(indent);
    if (n > 1000) return jrun_fail(r, "indent is more than 1000");
    jtext_add_times(r, JV_WORD(" "), n);
    return jtext_take(r, start, &h->indent);
}

static status read_separators(jrun *r, jv pair, json_how *h) {
    const jseq *s;
    if (pair.kind == JV_ABSENT || pair.kind == JV_NONE) return ST_OK;
    TRY(jv_iterate(r, pair, &s));
    if (s->n != 2 || s->item[0].kind != JV_STRING || s->item[1].kind != JV_STRING) {
        return jrun_fail(r, "separators must be two strings");
    }
    h->comma = s->item[0];
    h->colon = s->item[1];
    return ST_OK;
}

static status read_arguments(jrun *r, const jcall *c, json_how *h) {
    *h = (json_how){.comma = JV_WORD(", "), .colon = JV_WORD(": ")};
    h->html = r->t->strict;
    h->ascii = h->html || jarg_truth(c, 0);
    h->sort = h->html || jarg_truth(c, 3);
    TRY(read_indent(r, c->p[1], h));
    if (!h->html || c->args->n_pos + c->args->n_kw == (c->p[1].kind != JV_ABSENT))
        return read_separators(r, c->p[2], h);
    return jrun_fail(r, "tojson takes indent=N alone here");
}

status jfilter_tojson(jrun *r, const jcall *c, jv *out) {
    json_how h;
    TRY(read_arguments(r, c, &h));
    size_t start = jtext_begin(r);
    TRY(add_value(r, &h, c->self, 0));
    TRY(jtext_take(r, start, out));
    out->safe = h.html;
    return ST_OK;
}
